"""What a strategy raises so that the caller knows what kind of failure it was. Anything else it raises counts as `Failed`."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Optional, Tuple, Union

from . import paths
from .models import Conflict
from .results import conflict

__all__ = [
    "StrategyError", "AlreadyDecided", "Busy", "Conflicts", "DigestMismatch", "Failed", "NotFound", "Refused", "Unavailable",
    "Uncommittable", "Unsupported", "Usage",
]


class StrategyError(Exception):
    """The base of all of them."""

    kind = "failed"

    def data(self) -> Dict[str, Any]:
        """What programs read beside the message."""
        return {"kind": self.kind}


class Failed(StrategyError):
    """It did not work."""


class _Hinted(StrategyError):
    """One that may say what to do instead."""

    def __init__(self, *words: object, hint: Optional[str] = None) -> None:
        super().__init__(*words)
        self.hint = hint

    def data(self) -> Dict[str, Any]:
        return {"kind": self.kind, **({} if self.hint is None else {"hint": paths.readable(self.hint)})}


class Usage(_Hinted):
    """The request does not make sense as it stands: `Usage("no such region", hint="regions are eu and us")`."""

    kind = "usage"


class Refused(_Hinted):
    """A rule says no: `Refused("it is locked", hint="unlock it first")`."""

    kind = "refused"


class AlreadyDecided(StrategyError):
    """The answer of `commit` to the phase `abort` if the commit is decided: `AlreadyDecided(operation)`."""

    kind = "already_decided"


class Unavailable(StrategyError):
    """The isolation is not to be had here."""

    kind = "unavailable"


class Busy(StrategyError):
    """Somebody else holds it for longer than we wait."""

    kind = "busy"


class NotFound(StrategyError):
    """Nothing goes by that name: `NotFound("file", path)`."""

    kind = "not_found"

    def __init__(self, what: str, name: object) -> None:
        super().__init__(f"no {what} {str(name)!r}")
        self.what, self.name = what, str(name)

    def data(self) -> Dict[str, Any]:
        return {"kind": self.kind, "what": self.what, "name": paths.readable(self.name)}


class Unsupported(StrategyError):
    """The strategy has no such ability: `Unsupported("rename", "buckets have no names to change")`."""

    kind = "unsupported"

    def __init__(self, what: str, reason: str = "it is not implemented") -> None:
        super().__init__(f"cannot {what}: {reason}")
        self.what = what

    def data(self) -> Dict[str, Any]:
        return {"kind": self.kind, "what": self.what}


class Conflicts(StrategyError):
    """The original has changed where the commit wants to write."""

    kind = "conflict"

    def __init__(self, conflicts: Iterable[Union[Conflict, str]]) -> None:
        self.conflicts: List[Conflict] = [c if isinstance(c, Conflict) else Conflict(c) for c in conflicts]
        super().__init__("changed in the original since the sandbox was made: " + _listed(c.path for c in self.conflicts))

    def data(self) -> Dict[str, Any]:
        return {"kind": self.kind, "conflicts": [conflict(c, "conflicts") for c in self.conflicts]}


class Uncommittable(StrategyError):
    """Entries that may never be committed are among the selection: pairs of a path and the reason."""

    kind = "uncommittable"

    def __init__(self, entries: Iterable[Tuple[str, str]]) -> None:
        self.entries = [(path, reason) for path, reason in entries]
        super().__init__("cannot be committed: " + _listed(path for path, _ in self.entries))

    def data(self) -> Dict[str, Any]:
        entries = [{"path": paths.encode(path), "reason": paths.readable(reason)} for path, reason in self.entries]
        return {"kind": self.kind, "entries": entries}


class DigestMismatch(StrategyError):
    """What is to be committed is not what was reviewed."""

    kind = "digest_mismatch"

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"the difference has digest {found}, not {expected}")
        self.expected, self.found = expected, found

    def data(self) -> Dict[str, Any]:
        return {"kind": self.kind, "expected": self.expected, "found": self.found}


def _listed(names: Iterable[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    all_names = list(names)
    more = len(all_names) - most
    return ", ".join(all_names[:most]) + (f" and {more} more" if more > 0 else "")
