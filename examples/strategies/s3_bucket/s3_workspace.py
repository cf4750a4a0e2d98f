"""One sandbox over one bucket, as it is during one call."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Iterable, List, Optional

from sandboxer_plugin import CommitResult, DiffEntry, NotFound, Refused

from s3_changes import compare
from s3_promotion import Promotion, version_of
from s3_staging import Entry, Staging, State
from s3_store import Bucket

LONGEST_KEY = 1024


class Workspace:
    """What the sandbox sees: staged objects, else the versions of the base."""

    def __init__(self, bucket: Bucket, prefix: str, staging: Staging, buckets: Callable[[str], Bucket]) -> None:
        self.bucket, self.prefix, self.staging, self.buckets = bucket, prefix, staging, buckets
        self.promotion = Promotion(bucket, prefix, staging)
        self.base: Dict[str, Any] = {}
        self.state: State = {}

    def begin(self) -> None:
        """Makes the sandbox: the versions that the bucket has now are its base."""
        if self._is_staging(self.prefix):
            raise Refused(f"{self.prefix} is where sandboxes stage what they change")
        found = self.bucket.snapshot(self.prefix)
        self.staging.begin({key[len(self.prefix):]: v for key, v in found if not self._is_staging(key)})

    def save(self) -> None:
        """Publishes the state."""
        self.staging.save(self.state)

    def present(self, path: str) -> Entry:
        """The object that the sandbox sees at a path."""
        key = self.prefix + path
        if self._is_staging(key):
            raise Refused(f"{key} is where sandboxes stage what they change")
        _check_key(key)
        staged = self.state["staged"]
        return staged[path] if path in staged else self.based(path)

    def based(self, path: str) -> Entry:
        """The object that the base has at a path: as it was at first, or as a commit of this sandbox left it."""
        return self._object(path, self._version_in(self.state["moved"], path))

    def differences(self) -> List[DiffEntry]:
        """Everything staged whose content is not the base's."""
        found = (self._difference(path) for path in sorted(self.state["staged"]))
        return [entry for entry in found if entry]

    def _difference(self, path: str) -> Optional[DiffEntry]:
        base = self.based(path)
        entry = compare(self.buckets, path, base, self.state["staged"][path])
        moved = entry and self.promotion.history(path).current != version_of(base)
        return entry and replace(entry, moved=bool(moved))

    def commit(self, paths: Iterable[str], operation: Optional[str]) -> None:
        """Makes what is staged at those paths real, or refuses and changes nothing."""
        self._promote({path: self.state["staged"][path] for path in paths}, operation)

    def undo(self, undone: str, operation: Optional[str]) -> CommitResult:
        """Takes a commit back, or makes one again that was taken back."""
        if undone not in self.state["operations"]:
            raise NotFound("operation", undone)
        record = self.state["operations"][undone]
        entries = [self._inverse(path, move, record["back"]) for path, move in record["moves"].items()]
        if record["back"]:
            self._promote({path: move["entry"] for path, move in record["moves"].items()}, operation)
        else:
            self._demote(record["moves"], operation)
        return CommitResult([entry for entry in entries if entry], undo_bytes=0)

    def restore(self, checkpoint: Dict[str, Any]) -> int:
        """Stages what differs between the base and a checkpoint; how many objects that changed. What was committed since
        has to be taken out again: those paths are staged as the base had them then."""
        staged = dict(checkpoint["staged"])
        for path in self.state["moved"]:
            then = self._object(path, self._version_in(checkpoint["moved"], path))
            if path not in staged and version_of(then) != version_of(self.based(path)):
                staged[path] = then
        before, self.state["staged"] = self.state["staged"], staged
        return sum(before.get(path, ...) != staged.get(path, ...) for path in {*before, *staged})

    def _promote(self, changes: Dict[str, Entry], operation: Optional[str]) -> None:
        base = {path: self.based(path) for path in changes}
        made = self.promotion.promote(self.state, changes, base) if changes else {}
        for path, entry in changes.items():
            self.state["moved"][path] = entry and {"version": made[path], "size": entry["size"]}
            if self.state["staged"].get(path, ...) == entry:
                del self.state["staged"][path]
        moves = {path: {"before": base[path], "after": made[path], "entry": changes[path]} for path in changes}
        self._finish(moves, operation, back=False)

    def _demote(self, moves: Dict[str, Any], operation: Optional[str]) -> None:
        # All are looked at before the first is touched.
        for path, move in moves.items():
            self.promotion.check_demotable(path, move["after"], move["before"])
        for path, move in moves.items():
            self.promotion.demote(path, move["after"], move["before"])
        for path, move in moves.items():
            before = move["before"]
            self.state["moved"][path] = before and {"version": before["version"], "size": before["size"]}
            self.state["staged"].setdefault(path, move["entry"])
        self._finish(moves, operation, back=True)

    def _finish(self, moves: Dict[str, Any], operation: Optional[str], back: bool) -> None:
        if operation:
            self.state["operations"][operation] = {"moves": moves, "back": back}
        self.state["promoting"] = None
        self.save()

    def _inverse(self, path: str, move: Dict[str, Any], back: bool) -> Optional[DiffEntry]:
        """What taking back one move changes: from the entry to what was before it, or the other way about."""
        old, new = (move["before"], move["entry"]) if back else (move["entry"], move["before"])
        return compare(self.buckets, path, old, new)

    def _version_in(self, moved: Dict[str, Any], path: str) -> Optional[Dict[str, Any]]:
        return moved[path] if path in moved else self.base.get(path)

    def _object(self, path: str, version: Optional[Dict[str, Any]]) -> Entry:
        return version and {"bucket": self.bucket.name, "key": self.prefix + path, **version}

    def _is_staging(self, key: str) -> bool:
        """Whether a key of the bucket belongs to this sandbox's staging area or to another's beside it."""
        return self.bucket.name == self.staging.bucket.name and key.startswith(self.staging.root)


def _check_key(key: str) -> None:
    """Refuses what S3 has no keys for."""
    try:
        length = len(key.encode("utf-8"))
    except UnicodeEncodeError:
        raise Refused(f"{key!r} is not UTF-8, as keys have to be") from None
    if length > LONGEST_KEY:
        raise Refused(f"the key {key[:40]!r}… has {length} bytes; {LONGEST_KEY} are the most")
