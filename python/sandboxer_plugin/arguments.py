"""From the params of a request to what a method is called with."""

from __future__ import annotations

import base64
from typing import Any, Callable, Dict, FrozenSet, List

from . import paths
from .models import PATH_KEYS, CommitRequest, HunkSelection, Resource, SandboxRef

Argument = Callable[[Dict[str, Any], bytes], Any]

_REF_FIELDS = frozenset(SandboxRef.__dataclass_fields__)
_RESOURCE_FIELDS = frozenset(Resource.__dataclass_fields__)
_REQUEST_FIELDS = frozenset(CommitRequest.__dataclass_fields__)


def _ref(params: Dict[str, Any], _content: bytes) -> SandboxRef:
    fields = _known(params["ref"], _REF_FIELDS)
    fields["metadata"] = _with_places(fields.get("metadata", {}))
    return SandboxRef(**fields)


def _resource(params: Dict[str, Any], _content: bytes) -> Resource:
    fields = _known(params["resource"], _RESOURCE_FIELDS)
    fields["properties"] = _with_places(fields.get("properties", {}))
    return Resource(**fields)


def _with_places(values: Dict[str, Any]) -> Dict[str, Any]:
    for key in PATH_KEYS:
        if type(values.get(key)) is str:
            values[key] = paths.decode(values[key])
    return values


def _request(params: Dict[str, Any], _content: bytes) -> CommitRequest:
    fields = _known(params.get("request") or {}, _REQUEST_FIELDS)
    fields["paths"] = [paths.decode_relative(path) for path in fields.get("paths", ())]
    fields["hunks"] = [_hunk(hunk) for hunk in fields.get("hunks", ())]
    return CommitRequest(**fields)


def _hunk(value: Dict[str, Any]) -> HunkSelection:
    patch = value["patch"]
    exact = base64.b64decode(patch["b64"], validate=True) if type(patch) is dict else patch.encode("utf-8")
    return HunkSelection(paths.decode_relative(value["path"]), exact)


def _known(value: Dict[str, Any], names: FrozenSet[str]) -> Dict[str, Any]:
    """Without what a later version of the host may add."""
    return {name: part for name, part in value.items() if name in names}


def _path(params: Dict[str, Any], _content: bytes) -> str:
    return paths.decode_relative(params["path"])


def _content(_params: Dict[str, Any], content: bytes) -> bytes:
    return content


def _plan_id(params: Dict[str, Any], _content: bytes) -> str:
    return _id(params["plan_id"])


def _checkpoint_id(params: Dict[str, Any], _content: bytes) -> str:
    return _id(params["checkpoint_id"])


def _id(value: Any) -> str:
    if type(value) is not str or not value:
        raise ValueError("an id is text")
    return value


BY_METHOD: Dict[str, List[Argument]] = {
    "create": [_plan_id, _resource],
    "read": [_ref, _path],
    "write": [_ref, _path, _content],
    "diff": [_ref],
    "commit": [_ref, _request],
    "rollback": [_ref],
    "checkpoint": [_ref, _checkpoint_id],
    "restore_checkpoint": [_ref, _checkpoint_id],
    "cleanup": [_ref],
}
