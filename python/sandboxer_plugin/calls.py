"""One method of one plugin: params in, a checked answer out."""

from __future__ import annotations

import inspect
from typing import Any, Dict

from . import loading, paths, results, roles, shape
from .failures import failure
from .wire import INVALID_PARAMS, RpcError


IN_DOUBT = "; what it had changed by then is not known: look at the original"


def _is_safe(method: str, params: Dict[str, Any]) -> bool:
    """Whether an answer that cannot be used is no news of the resource."""
    return method != "commit" or (params.get("request") or {}).get("phase", "whole") != "whole"


class Call:
    """A method that was found fit to be called."""

    def __init__(self, loaded: loading.Loaded, name: str, role: roles.Role) -> None:
        count = shape.accepted(loaded.methods[name], name, role)
        self._name = name
        self._function = getattr(loaded.instance, name)
        self._arguments = role.arguments[name][:count]
        self._convert = role.results[name]

    def __call__(self, params: Dict[str, Any], content: bytes) -> results.Answer:
        """What it returned, in the form of the wire. Whatever it raises is raised."""
        try:
            values = [argument(params, content) for argument in self._arguments]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = paths.readable(f"{self._name}: {type(error).__name__}: {error}")
            raise RpcError(INVALID_PARAMS, reason) from None
        return self._checked(self._function(*values), "" if _is_safe(self._name, params) else IN_DOUBT)

    def _checked(self, value: Any, doubt: str) -> results.Answer:
        try:
            return self._convert(value)
        except results.WrongResult as wrong:
            if inspect.iscoroutine(value):
                # Python would complain that nobody waited for it.
                value.close()
            raise failure(f"{self._name}: {wrong}{doubt}") from None


def of(loaded: loading.Loaded, role: roles.Role = roles.STRATEGY) -> Dict[str, Call]:
    """All that can be called."""
    return {} if loaded.instance is None else {name: Call(loaded, name, role) for name in loaded.methods}
