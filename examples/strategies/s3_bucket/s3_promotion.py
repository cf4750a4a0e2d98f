"""Making staged objects the newest versions of their keys, all of them or none.

S3 changes one key at a time, so what is about to be done is written down first. Taking a promotion back removes the version
that it made: the one before is the newest again, with its own id, metadata and access list.
"""

from __future__ import annotations

from typing import Any, Dict, Iterable, Optional

from sandboxer_plugin import Conflict, Conflicts, Failed

from s3_staging import Entry, Staging, State
from s3_store import Bucket, History


class Promotion:
    """One sandbox's way into its bucket."""

    def __init__(self, bucket: Bucket, prefix: str, staging: Staging) -> None:
        self.bucket, self.prefix, self.staging = bucket, prefix, staging

    def promote(self, state: State, changes: Dict[str, Entry], base: Dict[str, Entry]) -> Dict[str, str]:
        """Makes each entry the newest version at its path, where the base is still current; the versions it made."""
        found = {path: self.history(path) for path in changes}
        refuse([path for path in changes if found[path].current != version_of(base[path])])
        state["promoting"] = {path: _intent(entry, found[path]) for path, entry in changes.items()}
        self.staging.save(state)
        made: Dict[str, str] = {}
        try:
            for path, entry in changes.items():
                made[path] = self._put(path, entry)
                self._check_nobody_slipped_in(path, found[path], made[path])
        except Exception:
            self.take_back(state, made)
            raise
        return made

    def recover(self, state: State) -> None:
        """Takes back what a process that was killed had promoted."""
        if state["promoting"]:
            self.take_back(state, {})

    def take_back(self, state: State, made: Dict[str, str]) -> None:
        """Removes the versions of an unfinished promotion: those we know we made, and what looks like the one whose
        answer never came."""
        failures = []
        for path, intent in state["promoting"].items():
            try:
                for version in [made[path]] if path in made else self._lookalikes(path, intent):
                    self.bucket.remove(self.prefix + path, version)
            except Exception as error:
                failures.append(f"{path}: {error}")
        if failures:
            # The intent stays written down: the next call tries again.
            raise Failed("an unfinished commit could not be taken back: " + "; ".join(failures))
        state["promoting"] = None
        self.staging.save(state)

    def check_demotable(self, path: str, version: str, before: Entry) -> bool:
        """Whether a committed version is still the newest and can be removed; false where that was done before."""
        history = self.history(path)
        if version not in history.etags and history.current == version_of(before):
            return False
        refuse([path] if history.latest != version else [])
        return True

    def demote(self, path: str, version: str, before: Entry) -> None:
        """Removes a version that was committed: the one before it is the newest again."""
        if self.check_demotable(path, version, before):
            self.bucket.remove(self.prefix + path, version)

    def history(self, path: str) -> History:
        """What there is and was at a path."""
        return self.bucket.history(self.prefix + path)

    def _put(self, path: str, entry: Entry) -> str:
        key = self.prefix + path
        return self.bucket.hide(key) if entry is None else self.bucket.copy(entry, key)

    def _check_nobody_slipped_in(self, path: str, before: History, made: str) -> None:
        """Another version beside ours was written after we looked: it must not be hidden by ours."""
        if set(self.history(path).etags) - set(before.etags) - {made}:
            refuse([path])

    def _lookalikes(self, path: str, intent: Dict[str, Any]) -> Iterable[str]:
        etags = self.history(path).etags
        return [v for v, etag in etags.items() if v not in intent["known"] and etag == intent["etag"]]


def refuse(paths: Iterable[str]) -> None:
    """Raises a conflict, if there are paths."""
    conflicts = [Conflict(path) for path in paths]
    if conflicts:
        raise Conflicts(conflicts)


def version_of(entry: Entry) -> Optional[str]:
    """The version of a base entry; `None` where there was no object."""
    return entry and entry["version"]


def _intent(entry: Entry, history: History) -> Dict[str, Any]:
    return {"known": sorted(history.etags), "etag": entry and entry.get("etag")}
