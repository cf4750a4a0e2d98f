"""A bucket of S3, or what lies below a prefix of it, isolated by versions.

`create` writes down which version every key has. The sandbox reads those versions, whatever happens to the bucket later, and
what it writes goes to a staging area that nobody takes for the bucket's content. `commit` makes staged objects the newest
versions of their keys, unless somebody else got there first.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import Any, Dict, Iterable, Optional
from urllib.parse import quote

import boto3
from botocore.config import Config

from sandboxer_plugin import (
    Capabilities, Change, CommitRequest, CommitResult, DiffView, NotFound, Resource,
    RollbackResult, SandboxRef, Unavailable, Unsupported, Usage,
)
from s3_staging import Staging
from s3_store import Bucket, parse_url
from s3_workspace import Workspace

STAGING_PREFIX = ".sandboxer/"


class BucketStrategy:
    """Isolates `s3://BUCKET[/PREFIX]`. Credentials come from where boto3 looks for them: environment, files, roles."""

    capabilities = Capabilities(select_paths=True, scoped_rollback=True, checkpoints=True, undo=True, ranges=True,
                                resource_types=["s3-bucket"])
    summary = "S3 buckets with versions: reads are of the base's versions, commits are server-side copies"

    def __init__(self, endpoint: Optional[str] = None, region: Optional[str] = None, staging: Optional[str] = None) -> None:
        retries = Config(retries={"mode": "standard", "max_attempts": 4})
        self._client = boto3.client("s3", endpoint_url=endpoint, region_name=region, config=retries)
        self._staging = staging
        self._bases: Dict[str, Dict[str, Any]] = {}

    def create(self, plan_id: str, resource: Resource) -> SandboxRef:
        name, prefix = parse_url(resource.location)
        if not self._bucket(name).is_versioned():
            raise Unavailable(f"versioning is not enabled on bucket {name}, so its base could be overwritten "
                              "(aws s3api put-bucket-versioning --bucket … --versioning-configuration Status=Enabled)")
        unique = os.path.basename(resource.properties.get("scratch") or uuid.uuid4().hex)
        area = self._area(name, plan_id, unique)
        ref = SandboxRef(plan_id, resource.id, metadata={"bucket": name, "prefix": prefix, "staging": area})
        try:
            self._workspace(ref).begin()
        except Exception:
            self.cleanup(ref)
            raise
        return ref

    def read(self, ref: SandboxRef, path: str) -> bytes:
        workspace = self._open(ref)
        entry = workspace.present(path)
        if entry is None:
            raise NotFound("object", path)
        return self._bucket(entry["bucket"]).get(entry["key"], entry["version"], ref.range)

    def write(self, ref: SandboxRef, path: str, content: bytes) -> Change:
        workspace = self._open(ref)
        old = workspace.present(path)
        attributes = self._bucket(old["bucket"]).attributes(old["key"], old["version"]) if old else {}
        workspace.state["staged"][path] = workspace.staging.add(content, attributes)
        workspace.save()
        return Change(path, "modified" if old else "created", len(content), old and old["size"])

    def diff(self, ref: SandboxRef) -> DiffView:
        return DiffView(self._open(ref).differences())

    def commit(self, ref: SandboxRef, request: CommitRequest) -> CommitResult:
        if request.on_conflict != "fail" or request.phase != "whole" or request.hunks:
            raise Unsupported("commit that way", "a bucket's commit is whole, and refuses on conflict")
        workspace = self._open(ref)
        if ref.undo:
            return workspace.undo(ref.undo, ref.operation)
        entries = [entry for entry in workspace.differences() if _within(entry.path, request.paths)]
        workspace.commit([entry.path for entry in entries], ref.operation)
        return CommitResult(entries, undo_bytes=0 if ref.operation else None)

    def rollback(self, ref: SandboxRef) -> RollbackResult:
        workspace = self._open(ref)
        thrown = [path for path in workspace.state["staged"] if _within(path, ref.scope)]
        for path in thrown:
            del workspace.state["staged"][path]
        workspace.save()
        return RollbackResult(restored_files=len(thrown), message=f"{len(thrown)} staged objects thrown away")

    def checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> None:
        workspace = self._open(ref)
        kept = {"staged": dict(workspace.state["staged"]), "moved": dict(workspace.state["moved"])}
        workspace.state["checkpoints"][checkpoint_id] = kept
        workspace.save()

    def restore_checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> RollbackResult:
        workspace = self._open(ref)
        if checkpoint_id not in workspace.state["checkpoints"]:
            raise NotFound("checkpoint", checkpoint_id)
        changed = workspace.restore(workspace.state["checkpoints"][checkpoint_id])
        workspace.save()
        return RollbackResult(restored_files=changed, message=f"{changed} objects changed", checkpoint_id=checkpoint_id)

    def cleanup(self, ref: SandboxRef) -> None:
        ref = self._completed(ref)
        if ref is None:
            return
        # A commit that was killed is taken back while it is still known what it did.
        for step in (lambda: self._open(ref), self._workspace(ref).staging.purge):
            with suppress(NotFound):
                step()
        self._bases.pop(ref.metadata["staging"], None)

    def _completed(self, ref: SandboxRef) -> Optional[SandboxRef]:
        """The ref of a `create` that was cut short has no metadata of ours; where it wrote follows from the rest."""
        if "staging" in ref.metadata:
            return ref
        at = ref.resource_id.find("s3://")
        if at < 0 or "scratch" not in ref.metadata:
            return None
        name, prefix = parse_url(ref.resource_id[at:])
        area = self._area(name, ref.plan_id, os.path.basename(ref.scratch))
        return SandboxRef(ref.plan_id, ref.resource_id, metadata={"bucket": name, "prefix": prefix, "staging": area})

    def _area(self, bucket: str, plan_id: str, unique: str) -> str:
        staging, prefix = parse_url(self._staging or f"s3://{bucket}/{STAGING_PREFIX}")
        if staging == bucket and not prefix:
            raise Usage("a staging area in the bucket itself needs a prefix")
        return f"s3://{staging}/{prefix}{quote(plan_id, safe='')}/{unique}"

    def _open(self, ref: SandboxRef) -> Workspace:
        workspace = self._workspace(ref)
        workspace.state = workspace.staging.load()
        workspace.promotion.recover(workspace.state)
        area = ref.metadata["staging"]
        if area not in self._bases:
            self._bases[area] = workspace.staging.base()
        workspace.base = self._bases[area]
        return workspace

    def _workspace(self, ref: SandboxRef) -> Workspace:
        staging, prefix = parse_url(ref.metadata["staging"])
        bucket = self._bucket(ref.metadata["bucket"])
        return Workspace(bucket, ref.metadata["prefix"], Staging(self._bucket(staging), prefix), self._bucket)

    def _bucket(self, name: str) -> Bucket:
        return Bucket(self._client, name)


def _within(path: str, chosen: Iterable[str]) -> bool:
    """Whether a path is among those chosen or below one of them; none chosen means all."""
    chosen = list(chosen)
    return not chosen or any(path == top or path.startswith(top + "/") for top in chosen)
