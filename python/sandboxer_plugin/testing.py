"""Tries a strategy without the host: the same checks, the same JSON, in one process.

    with Sandbox(BucketStrategy(), "s3://bucket/a") as sandbox:
        sandbox.write("key", b"content")
        assert [entry["kind"] for entry in sandbox.diff()] == ["created"]
        sandbox.commit()
"""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import Any, Dict, List, Optional, Sequence

from . import calls, roles, shape, wire
from .loading import Loaded
from .results import Answer


class Sandbox:
    """One sandbox of `strategy`, in a scratch directory of its own. Leaving it cleans up."""

    def __init__(self, strategy: Any, location: str, **properties: Any) -> None:
        methods = shape.describe(type(strategy))
        unfit = [name for name in roles.STRATEGY.calls if shape.accepted(methods.get(name), name) is None]
        if unfit:
            raise TypeError(f"{type(strategy).__name__} cannot be called: {', '.join(unfit)}")
        self._calls = calls.of(Loaded(type(strategy), methods, strategy))
        self._resource = {"id": location, "type": "test", "location": location, "properties": properties}
        self.metadata: Dict[str, Any] = {}

    def __enter__(self) -> "Sandbox":
        self.scratch = tempfile.mkdtemp(prefix="sandboxer-test-")
        try:
            resource = {**self._resource, "properties": {**self._resource["properties"], "scratch": self.scratch}}
            created = self._call("create", plan_id="pln_test", resource=resource).result
            self.metadata = created["metadata"]
        except BaseException:
            shutil.rmtree(self.scratch, ignore_errors=True)
            raise
        return self

    def __exit__(self, *_error: Any) -> None:
        try:
            self.cleanup()
        finally:
            shutil.rmtree(self.scratch, ignore_errors=True)

    def read(self, path: str, offset: Optional[int] = None, length: int = 4 << 20) -> bytes:
        """The content at `path`, or a range of it."""
        part = {} if offset is None else {"range": {"offset": offset, "length": length}}
        return bytes(self._on("read", part, path=path).attachment or b"")

    def write(self, path: str, content: bytes) -> Any:
        """Replaces the content at `path`."""
        return self._on("write", content=content, path=path).result

    def diff(self) -> List[Dict[str, Any]]:
        """The entries, as the host gets them."""
        entries: List[Dict[str, Any]] = self._on("diff").result["entries"]
        return entries

    def commit(self, **request: Any) -> Any:
        """Commits; the arguments are the fields of `CommitRequest`."""
        return self._on("commit", request=request).result

    def rollback(self, scope: Sequence[str] = ()) -> Any:
        """Throws the differences away."""
        return self._on("rollback", {"scope": list(scope)} if scope else {}).result

    def checkpoint(self, checkpoint_id: str) -> Any:
        """Keeps the present state."""
        return self._on("checkpoint", checkpoint_id=checkpoint_id).result

    def restore_checkpoint(self, checkpoint_id: str) -> Any:
        """Brings a state back."""
        return self._on("restore_checkpoint", checkpoint_id=checkpoint_id).result

    def cleanup(self) -> None:
        """Removes every trace."""
        self._on("cleanup")

    def _on(self, method: str, more: Optional[Dict[str, Any]] = None, content: bytes = b"", **params: Any) -> Answer:
        metadata = {**self.metadata, "scratch": self.scratch, **(more or {})}
        ref = {"plan_id": "pln_test", "resource_id": self._resource["id"], "strategy_name": "test", "metadata": metadata}
        return self._call(method, content, ref=ref, **params)

    def _call(self, method: str, content: bytes = b"", **params: Any) -> Answer:
        """There and back through JSON, so that what would be lost on the wire is lost here."""
        answer = self._calls[method](json.loads(wire.to_bytes(params)), content)
        return Answer(json.loads(wire.to_bytes({"result": answer.result}))["result"], answer.attachment)
