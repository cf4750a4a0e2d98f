"""Where a sandbox keeps what it changes: a prefix of its own, outside of what it isolates.

`base` is what the bucket had when the sandbox was made and never changes. `state` is one small document that says which
object stands for which path; each object below `blob/` is written once. So a new state is published by one `put`, and a
checkpoint is a copy of a few names.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from typing import Any, Dict, Optional, Set, Tuple

from sandboxer_plugin import NotFound
from s3_store import Bucket

Entry = Optional[Dict[str, Any]]
"""An object (`bucket`, `key`, `version`, `size`, `etag`, `digest`); `None` stands for a deleted one."""
State = Dict[str, Any]


class Staging:
    """The staging area of one sandbox."""

    def __init__(self, bucket: Bucket, prefix: str) -> None:
        self.bucket, self.prefix = bucket, prefix
        # Above the area are its plan, and then the root of all areas.
        self.root = prefix.rstrip("/").rsplit("/", 2)[0] + "/" if prefix.count("/") > 2 else ""

    def begin(self, base: Dict[str, Any]) -> None:
        """Writes the documents of a new sandbox."""
        self.bucket.put(self.prefix + "base", json.dumps(base).encode())
        state = {"moved": {}, "staged": {}, "checkpoints": {}, "operations": {}, "promoting": None}
        self.bucket.put(self.prefix + "state", json.dumps(state).encode())

    def base(self) -> Dict[str, Any]:
        """What the bucket had at first, path by path."""
        return json.loads(self._document("base"))

    def load(self) -> State:
        """The state as it was last saved."""
        return json.loads(self._document("state"))

    def save(self, state: State) -> None:
        """Publishes a state, then removes what only earlier ones used."""
        before = self.bucket.history(self.prefix + "state")
        unused = self._blobs(self.load()) - self._blobs(state)
        self.bucket.put(self.prefix + "state", json.dumps(state).encode())
        for key, version in unused:
            self.bucket.remove(key, version)
        for version in before.etags:
            # Without versions the `put` has replaced it, and this would remove the new one.
            if version != "null":
                self.bucket.remove(self.prefix + "state", version)

    def add(self, content: bytes, attributes: Dict[str, Any]) -> Dict[str, Any]:
        """Stores content; nothing refers to it before a state does."""
        key = f"{self.prefix}blob/{uuid.uuid4().hex}"
        version, etag = self.bucket.put(key, content, **attributes)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        return {"bucket": self.bucket.name, "key": key, "version": version, "size": len(content), "etag": etag,
                "digest": digest}

    def purge(self) -> None:
        """Removes everything, old versions included."""
        self.bucket.purge(self.prefix)

    def _document(self, name: str) -> bytes:
        try:
            return self.bucket.get(self.prefix + name, None)
        except NotFound:
            raise NotFound("sandbox", f"s3://{self.bucket.name}/{self.prefix}") from None

    def _blobs(self, state: State) -> Set[Tuple[str, Optional[str]]]:
        """Every object of this area that a state refers to."""
        groups = [state["staged"], *(c["staged"] for c in state["checkpoints"].values())]
        entries = [entry for group in groups for entry in group.values()]
        for operation in state["operations"].values():
            entries.extend(move["entry"] for move in operation["moves"].values())
        own = (e for e in entries if e and e["bucket"] == self.bucket.name and e["key"].startswith(self.prefix))
        return {(entry["key"], entry["version"]) for entry in own}
