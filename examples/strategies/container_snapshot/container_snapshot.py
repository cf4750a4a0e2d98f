"""A container with its files, isolated by images.

`create` makes an image of the container and starts a second one from it. The sandbox's user works in that one; the original
goes on. `commit` copies the files that differ into the original, unless somebody else has changed them there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, Optional
from urllib.parse import urlsplit

from sandboxer_plugin import (
    Capabilities, Change, CommitRequest, CommitResult, DiffView, NotFound, Refused, Resource, RollbackResult, SandboxRef,
    Unsupported, Usage,
)
from container_engine import Engine
from container_tree import new_directory, new_file
from container_workspace import Workspace, container_name, remove


class ContainerStrategy:
    """Isolates `docker://NAME`, by the client program of docker or podman."""

    capabilities = Capabilities(checkpoints=True, resource_types=["container"])
    summary = "running containers: a second container from an image of the first; commits copy files back"

    def __init__(self, command: str = "docker", host: Optional[str] = None, network: str = "none", start: bool = True) -> None:
        self._engine = Engine(command, host)
        self._network, self._start = network, start

    def create(self, plan_id: str, resource: Resource) -> SandboxRef:
        original = self._engine.inspect(parse_url(resource.location))
        sandbox = os.path.basename(resource.scratch)
        metadata = {"sandbox": sandbox, "container": container_name(sandbox), **_facts(original)}
        ref = SandboxRef(plan_id, resource.id, metadata=metadata)
        workspace = self._workspace(metadata, resource.scratch)
        try:
            workspace.begin(running=self._start and original["State"]["Running"])
        except Exception:
            remove(self._engine, sandbox)
            raise
        return ref

    def read(self, ref: SandboxRef, path: str) -> bytes:
        node, content = self._open(ref, path).tree().content(path)
        if node is None:
            raise NotFound("file", path)
        return content

    def write(self, ref: SandboxRef, path: str, content: bytes) -> Change:
        workspace = self._open(ref, path)
        tree = workspace.tree()
        missing = tree.missing_parents(path)
        old = None if missing else tree.node(path)
        if old and old.type != "file":
            raise Refused(f"{path} is a {old.type}, not a regular file")
        with self._engine.unpack(tree.container) as archive:
            for parent in missing:
                archive.addfile(new_directory(parent))
            archive.addfile(*new_file(path, content, old))
        return Change(path, "modified" if old else "created", len(content), old and old.size)

    def diff(self, ref: SandboxRef) -> DiffView:
        return DiffView(self._open(ref).differences())

    def commit(self, ref: SandboxRef, request: CommitRequest) -> CommitResult:
        whole = not (request.paths or request.hunks) and request.phase == "whole" and request.on_conflict == "fail"
        if not whole:
            raise Unsupported("commit that way", "a container's commit is whole, and refuses on conflict")
        return CommitResult(self._open(ref).commit())

    def rollback(self, ref: SandboxRef) -> RollbackResult:
        workspace = self._open(ref)
        changed = workspace.recreate(workspace.state["image"])
        return RollbackResult(restored_files=changed, message="a new container from the base's image")

    def checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> None:
        self._open(ref).checkpoint(checkpoint_id)

    def restore_checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> RollbackResult:
        workspace = self._open(ref)
        image = workspace.state["checkpoints"].get(checkpoint_id)
        if image is None:
            raise NotFound("checkpoint", checkpoint_id)
        changed = workspace.recreate(image)
        return RollbackResult(restored_files=changed, message="a new container from the checkpoint's image",
                              checkpoint_id=checkpoint_id)

    def cleanup(self, ref: SandboxRef) -> None:
        if "original" not in ref.metadata:
            # A `create` that was cut short: all there may be carries the label.
            remove(self._engine, os.path.basename(ref.scratch))
            return
        workspace = self._workspace(ref.metadata, ref.scratch)
        # Cleaned up before, or the original is gone: there is nothing to take back.
        with suppress(NotFound):
            workspace.settle()
        remove(self._engine, workspace.sandbox)
        workspace.forget()

    def _open(self, ref: SandboxRef, path: Optional[str] = None) -> Workspace:
        workspace = self._workspace(ref.metadata, ref.scratch)
        if path is not None:
            workspace.check(path)
        return workspace.load()

    def _workspace(self, metadata: Dict[str, Any], scratch: str) -> Workspace:
        return Workspace(self._engine, metadata, scratch, self._network)


def parse_url(url: str) -> str:
    """The name or id of the container that `docker://NAME` stands for."""
    parts = urlsplit(url)
    name = parts.netloc
    if parts.scheme not in ("docker", "podman") or not name or name.startswith("-") or parts.path.strip("/") or "@" in name:
        raise Usage("a container is named as docker://NAME")
    return name


def _facts(original: Dict[str, Any]) -> Dict[str, Any]:
    """What has to be known of the original for as long as the sandbox lives."""
    mounts = sorted(mount["Destination"].strip("/") for mount in original.get("Mounts") or ())
    tmpfs = sorted(path.strip("/") for path in original["HostConfig"].get("Tmpfs") or ())
    return {"original": original["Id"], "mounts": mounts + tmpfs, "labels": sorted(original["Config"].get("Labels") or ())}
