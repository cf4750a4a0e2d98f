"""The values that strategies are given and give back. The fields are those of the JSON models, name by name."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from . import paths

DIFF_KINDS = ("created", "modified", "deleted", "renamed", "metadata", "type")
NODE_TYPES = ("file", "directory", "symlink", "fifo", "socket", "device", "other")


# What is a path among metadata and properties.
PATH_KEYS = ("path", "base", "history", "scratch")


class _Keyed:
    """Fields by subscript, as of a dict; `_more` names the field with further keys."""

    _more = ""

    def __getitem__(self, key: str) -> Any:
        if key in self.__dict__:
            return self.__dict__[key]
        return self.__dict__[self._more][key]

    def keys(self) -> List[str]:
        """All of them, those of the further keys included: `dict(ref)` has what `ref[key]` has."""
        return list(dict.fromkeys([*self.__dict__, *self.__dict__[self._more]]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self.__dict__ or key in self.__dict__[self._more]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default` where there is none."""
        return self[key] if key in self else default


@dataclass(frozen=True)
class Resource(_Keyed):
    """A thing that may be changed: a directory, a bucket, a table."""

    id: str
    type: str
    location: str
    properties: Dict[str, Any] = field(default_factory=dict)

    _more = "properties"

    @property
    def scratch(self) -> str:
        """A directory of this sandbox's own, on the filesystem of the resource; it goes away after `cleanup`."""
        return self.properties["scratch"]


@dataclass(frozen=True)
class SandboxRef(_Keyed):
    """The handle of one isolated resource. `create` makes it with `metadata` alone: the host knows the rest."""

    plan_id: str = ""
    resource_id: str = ""
    strategy_name: str = ""
    metadata: Dict[str, Any] = field(default_factory=dict)

    _more = "metadata"

    @property
    def scratch(self) -> str:
        """The directory that `resource.scratch` was when the sandbox was made."""
        return self.metadata["scratch"]

    @property
    def scope(self) -> List[str]:
        """The paths that a `rollback` is limited to; empty means everything."""
        return [paths.decode_relative(path) for path in self.metadata.get("scope") or ()]

    @property
    def range(self) -> Optional[Tuple[int, int]]:
        """The offset and length that a `read` is limited to."""
        part = self.metadata.get("range")
        return None if part is None else (part["offset"], part["length"])

    @property
    def operation(self) -> Optional[str]:
        """The operation that a `commit` is logged as."""
        return self.metadata.get("operation")

    @property
    def undo(self) -> Optional[str]:
        """The operation that a `commit` takes back, if that is what it does."""
        return self.metadata.get("undo")

    @property
    def part(self) -> Optional[str]:
        """What a `cleanup` is limited to; `None` means everything."""
        return self.metadata.get("part")


@dataclass(frozen=True)
class Change:
    """What one `write` did."""

    path: str
    kind: str
    new_size: int
    old_size: Optional[int] = None


@dataclass(frozen=True)
class Node:
    """One side of an entry."""

    type: str = "file"
    mode: int = 0o644
    uid: int = field(default_factory=os.getuid)
    gid: int = field(default_factory=os.getgid)
    size: int = 0
    digest: Optional[str] = None
    target: Optional[str] = None
    xattrs: Optional[str] = None


@dataclass(frozen=True)
class DiffEntry:
    """One difference. `from_` is where a renamed entry was; `text` is for content that is no file, `row` for one of a table."""

    path: str
    kind: str
    from_: Optional[str] = None
    old: Optional[Node] = None
    new: Optional[Node] = None
    binary: bool = False
    moved: bool = False
    text: Optional[str] = None
    refused: Optional[str] = None
    flags: Sequence[str] = ()
    row: Optional[Mapping[str, Any]] = None


@dataclass(frozen=True)
class DiffView:
    """Everything that differs. The digest over it is the host's business."""

    entries: Sequence[DiffEntry] = ()
    at_decision: Optional[str] = None


@dataclass(frozen=True)
class HunkSelection:
    """Some hunks of one text file, as a unified patch without file headers."""

    path: str
    patch: bytes


@dataclass(frozen=True)
class CommitRequest:
    """What to commit, and how."""

    paths: List[str] = field(default_factory=list)
    hunks: List[HunkSelection] = field(default_factory=list)
    message: Optional[str] = None
    digest: Optional[str] = None
    on_conflict: str = "fail"
    branch: Optional[str] = None
    history: str = "squash"
    phase: str = "whole"


@dataclass(frozen=True)
class Notice:
    """Something a careful person wants to know about one path: `Notice("bin/x", "setuid bit removed")`."""

    path: str
    message: str


@dataclass(frozen=True)
class Conflict:
    """One path on which a commit and the original disagree."""

    path: str
    reason: str = "modified in the original since the sandbox was made"
    parked: Optional[str] = None
    hunks: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class CommitResult:
    """What a commit did. Without entries, it is what differed. The digest is the host's business, and computed from the entries."""

    entries: Optional[Sequence[DiffEntry]] = None
    notices: Sequence[Notice] = ()
    conflicts: Sequence[Conflict] = ()
    undo_bytes: Optional[int] = None
    revision: Optional[Mapping[str, Any]] = None
    at_decision: Optional[str] = None


@dataclass(frozen=True)
class RollbackResult:
    """What a rollback did, to the base or to a checkpoint."""

    success: bool = True
    restored_files: int = 0
    message: str = ""
    checkpoint_id: Optional[str] = None


@dataclass(frozen=True)
class Capabilities:
    """What a strategy can do; what is not declared is never asked of it."""

    isolates: bool = True
    file_tree: bool = False
    faithful: bool = False
    two_phase: bool = False
    prepare_ends: bool = False
    select_paths: bool = False
    select_hunks: bool = False
    scoped_rollback: bool = False
    checkpoints: bool = True
    keeps_base: bool = False
    resolves: bool = False
    undo: bool = False
    parts: bool = False
    looks_through: bool = False
    refreshes: bool = False
    branches: bool = False
    ranges: bool = False
    resource_types: Sequence[str] = ()


def plain(value: Any) -> Dict[str, Any]:
    """The fields of a model under their JSON names; those that are `None` are left out."""
    pairs = ((f.name.rstrip("_"), getattr(value, f.name)) for f in fields(value))
    return {name: part for name, part in pairs if part is not None}
