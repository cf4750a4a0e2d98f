"""What methods return, checked and turned into JSON. Models and dicts of the same shape are both welcome."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Type

from . import paths
from .models import (
    DIFF_KINDS, NODE_TYPES, PATH_KEYS, Change, CommitResult, Conflict, DiffEntry, DiffView, Node, Notice, RollbackResult,
    SandboxRef, plain,
)
from .wire import ATTACHMENT_LIMIT

Json = Dict[str, Any]


class WrongResult(Exception):
    """A method returned what it may not; the message is a sentence without its subject."""


class Answer(NamedTuple):
    """A result, and the content that goes with it."""

    result: Any
    attachment: Optional[memoryview] = None


def _wrong(where: str, value: Any, wanted: str) -> WrongResult:
    return WrongResult(f"{where} must be {wanted}, not {type(value).__name__}")


def _fields(value: Any, model: Type[Any], where: str, others: bool = False) -> Json:
    """The fields of a model or of a dict of its shape, defaults filled in. With `others`, a dict may have more, which is passed over."""
    if isinstance(value, Mapping):
        names = {"from_" if name == "from" else name: part for name, part in value.items()}
        if others:
            names = {name: part for name, part in names.items() if name in model.__dataclass_fields__}
        try:
            value = model(**names)
        except TypeError as error:
            raise WrongResult(f"{where} has not the fields of {model.__name__}: {_cause(error)}") from None
    if not isinstance(value, model):
        raise _wrong(where, value, f"{model.__name__} or a dict")
    return plain(value)


def _cause(error: TypeError) -> str:
    """Python's sentence without the name of the constructor."""
    return str(error).partition("() ")[2] or str(error)


def _encode_path(fields: Json, where: str, name: str = "path") -> None:
    value = fields.get(name)
    try:
        fields[name] = paths.encode(value)
    except (TypeError, ValueError):
        raise _wrong(f"{where}.{name}", value, "a path") from None


def _listed(values: Any, where: str, convert: Callable[[Any, str], Json]) -> List[Json]:
    if isinstance(values, (str, bytes, Mapping)) or not hasattr(values, "__iter__"):
        raise _wrong(where, values, "a list")
    return [convert(value, f"{where}[{index}]") for index, value in enumerate(values)]


def _one_of(fields: Json, name: str, words: Any, where: str) -> None:
    value = fields.get(name)
    if value not in words:
        raise WrongResult(f"{where}.{name} is {value!r}, not one of {', '.join(words)}")


def _readable(fields: Json, name: str, where: str) -> None:
    """Text for people, if it is there."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(f"{where}.{name}", value, "text")
    if value is not None:
        fields[name] = paths.readable(value)


def node(value: Any, where: str, others: bool = False) -> Json:
    """One side of an entry."""
    fields = _fields(value, Node, where, others)
    _one_of(fields, "type", NODE_TYPES, where)
    _readable(fields, "target", where)
    return fields


def _texts(fields: Json, name: str, where: str) -> None:
    """A list of words; a text alone is a list of its letters, which nobody means."""
    values = fields.get(name, ())
    if isinstance(values, (str, bytes)) or not all(isinstance(value, str) for value in values):
        raise _wrong(f"{where}.{name}", values, "a list of texts")
    fields[name] = [paths.readable(value) for value in values]


def entry(value: Any, where: str, others: bool = False) -> Json:
    """One difference."""
    fields = _fields(value, DiffEntry, where, others)
    _one_of(fields, "kind", DIFF_KINDS, where)
    _encode_path(fields, where)
    if "from" in fields:
        _encode_path(fields, where, "from")
    for side in ("old", "new"):
        if side in fields:
            fields[side] = node(fields[side], f"{where}.{side}", others)
    for name in ("text", "refused"):
        _readable(fields, name, where)
    _texts(fields, "flags", where)
    return fields


def conflict(value: Any, where: str) -> Json:
    """One path on which a commit and the original disagree."""
    fields = _fields(value, Conflict, where)
    _encode_path(fields, where)
    for name in ("reason", "parked"):
        _readable(fields, name, where)
    fields["hunks"] = list(fields.get("hunks", ()))
    return fields


def notice(value: Any, where: str) -> Json:
    """Something to know about one path."""
    fields = _fields(value, Notice, where)
    _encode_path(fields, where)
    _readable(fields, "message", where)
    return fields


def create(value: Any) -> Answer:
    """A ref. Fields that were not set are left out; the host knows them."""
    fields = _fields(value, SandboxRef, "the result")
    metadata = fields.pop("metadata", None)
    if not isinstance(metadata, Mapping):
        raise _wrong("metadata", metadata, "a dict")
    metadata = dict(metadata)
    for key in PATH_KEYS:
        if metadata.get(key) is not None:
            _encode_path(metadata, "metadata", key)
    given = {name: part for name, part in fields.items() if part != ""}
    return Answer({**given, "metadata": metadata})


def read(value: Any) -> Answer:
    """Content, as the attachment."""
    try:
        content = memoryview(value).cast("B")
    except TypeError:
        raise _wrong("the result", value, "bytes") from None
    if content.nbytes > ATTACHMENT_LIMIT:
        raise WrongResult(f"the result has {content.nbytes} bytes; up to {ATTACHMENT_LIMIT} can be sent at once")
    return Answer({}, content)


def write(value: Any) -> Answer:
    """A change, or nothing."""
    if value is None:
        return Answer(None)
    fields = _fields(value, Change, "the result")
    _one_of(fields, "kind", DIFF_KINDS, "the result")
    _encode_path(fields, "the result")
    return Answer(fields)


def diff(value: Any) -> Answer:
    """Entries: as a view, as a list, or as a dict that has them."""
    view: Json = {}
    if isinstance(value, Mapping) and "entries" in value:
        view = {"at_decision": value.get("at_decision")}
        value = value["entries"]
    elif isinstance(value, DiffView):
        view = {"at_decision": value.at_decision}
        value = value.entries
    _readable(view, "at_decision", "the result")
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__"):
        raise _wrong("the result", value, "a DiffView or a list of entries")
    given = {name: part for name, part in view.items() if part is not None}
    return Answer({"entries": _listed(value, "entries", entry), **given})


def commit(value: Any) -> Answer:
    """What was committed, or nothing. It has happened by now: what is said too much of it is passed over, a digest for one."""
    if value is None:
        return Answer(None)
    fields = _fields(value, CommitResult, "the result", others=True)
    for name, convert in (("entries", partial(entry, others=True)), ("notices", notice), ("conflicts", conflict)):
        if fields.get(name) is not None:
            fields[name] = _listed(fields[name], name, convert)
    return Answer({name: value for name, value in fields.items() if value is not None})


def rollback(value: Any) -> Answer:
    """What was brought back, or nothing."""
    return Answer(None if value is None else _fields(value, RollbackResult, "the result"))


def checkpoint(value: Any) -> Answer:
    """Where it is kept, or nothing."""
    if value is None:
        return Answer(None)
    try:
        return Answer(paths.encode(value))
    except (TypeError, ValueError):
        raise _wrong("the result", value, "a path or None") from None


def cleanup(_value: Any) -> Answer:
    """Nothing, whatever it was: nobody would look at it, and what is gone is gone."""
    return Answer(None)


BY_METHOD: Dict[str, Callable[[Any], Answer]] = {
    "create": create,
    "read": read,
    "write": write,
    "diff": diff,
    "commit": commit,
    "rollback": rollback,
    "checkpoint": checkpoint,
    "restore_checkpoint": rollback,
    "cleanup": cleanup,
}
