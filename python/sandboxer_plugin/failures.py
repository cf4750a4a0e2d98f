"""Turns whatever a strategy raised into an answer that names it; the traceback goes to standard error."""

from __future__ import annotations

import sys
import traceback
from typing import Any, Dict

from . import errors, paths
from .wire import APPLICATION_ERROR, RpcError

_LONGEST = 4000


def failure(message: str, kind: str = "failed", **more: Any) -> RpcError:
    """An error of the application."""
    return RpcError(APPLICATION_ERROR, _line(message), {"kind": kind, **more})


def from_exception(error: BaseException, method: str) -> RpcError:
    """The answer to a call that ended in `error`."""
    if isinstance(error, RpcError):
        return error
    if isinstance(error, errors.StrategyError):
        return _declared(error)
    if isinstance(error, FileNotFoundError):
        name = _line(error.filename if isinstance(error.filename, str) else _text(error))
        return failure(f"no file {name!r}", "not_found", what="file", name=name)
    if isinstance(error, NotImplementedError):
        return failure(f"{method} is not implemented: {_text(error)}".rstrip(": "), "unsupported", what=method)
    log(error)
    return failure(named(error))


def _declared(error: errors.StrategyError) -> RpcError:
    try:
        data: Dict[str, Any] = error.data()
    except Exception as broken:
        log(broken)
        return failure(f"{named(error)} (and its data cannot be read: {named(broken)})")
    return RpcError(APPLICATION_ERROR, _line(_text(error)) or type(error).__name__, data)


def named(error: BaseException) -> str:
    """The exception's type and message, in one line."""
    return _line(f"{type(error).__name__}: {_text(error)}".rstrip(": "))


def log(error: BaseException) -> None:
    """Writes the traceback where the host keeps it. That it cannot be written is no reason to fail."""
    try:
        traceback.print_exception(type(error), error, error.__traceback__, file=sys.stderr)
        sys.stderr.flush()
    except Exception:
        pass


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message cannot be read)"


def _line(text: str) -> str:
    line = " ".join(paths.readable(text).split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + "…"
