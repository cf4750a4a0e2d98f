"""One sandbox over one container, as it is during one call.

There are two containers of its own beside the original: the *sandbox*, which its user works in, and the *base*, which is never
started and has every file as the original had it. All their names and images carry one label. What there is at present is
written down in the sandbox's scratch directory.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from dataclasses import replace
from typing import Any, Dict, Iterable, List, Optional, Sequence

from sandboxer_plugin import Conflict, Conflicts, DiffEntry, Failed, Node, NotFound, Refused, Uncommittable

from container_engine import Engine
from container_tree import Tree, differences, parents

LABEL = "sandboxer.sandbox"
MOST_NAMES = 200
"""So many paths are removed by one command."""
ENGINES_OWN = ("dev", "proc", "sys", "etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv")
"""What the engine puts over the files of every container that runs."""


class Workspace:
    """The sandbox that a ref stands for."""

    def __init__(self, engine: Engine, metadata: Dict[str, Any], scratch: str, network: str) -> None:
        self.engine, self.network = engine, network
        self.sandbox, self.original, self.mounts = metadata["sandbox"], metadata["original"], metadata["mounts"]
        self.labels = {**{key: "" for key in metadata["labels"]}, LABEL: self.sandbox}
        self._file = os.path.join(scratch, "containers.json")
        self.state: Dict[str, Any] = {}
        self.is_lost = False

    def begin(self, running: bool) -> None:
        """Makes the base and the sandbox of the original as it is now."""
        image = self.snapshot(self.original, "base")
        base = self._make(image)
        self.state = {"base": base, "image": image, "size": self.engine.size(image), "running": running,
                      "touched": [], "checkpoints": {}, "committing": None}
        self.state["sandbox"] = self._make(image)
        self.save()
        self._bring_up()

    def load(self) -> "Workspace":
        """Reads what there is, and takes back a commit that was killed."""
        self._read()
        self._check_containers()
        if self.state["committing"]:
            self._recover()
        return self

    def settle(self) -> None:
        """Takes back a commit that was killed, and looks at nothing else: what is about to be removed may be there in part."""
        self._read()
        if self.state["committing"]:
            self.load()

    def forget(self) -> None:
        """Removes what was written down."""
        with suppress(FileNotFoundError):
            os.remove(self._file)

    def _read(self) -> None:
        try:
            with open(self._file, encoding="utf-8") as file:
                self.state = json.load(file)
        except FileNotFoundError:
            raise NotFound("sandbox", self.sandbox) from None

    def _check_containers(self) -> None:
        """A container that is gone must not be taken for one without files."""
        under_way = self.state["committing"]
        own = [self.state["base"], self.state["sandbox"], *([under_way["snapshot"]] if under_way else [])]
        there = self.engine.existing(self.original, *own)
        # The id, not the name: a container made anew under that name is not what was isolated.
        if self.original not in there:
            raise NotFound("container", self.original)
        self.is_lost = self.state["sandbox"] not in there
        # What never runs is the first to be pruned; the images are still there.
        if under_way and under_way["snapshot"] not in there:
            under_way["snapshot"] = self._make(under_way["image"])
            self.save()
        if self.state["base"] not in there:
            self.state["base"] = self._make(self.state["image"])
            self.save()

    def save(self) -> None:
        """Writes down what there is, all of it or nothing."""
        with open(self._file + ".new", "w", encoding="utf-8") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._file + ".new", self._file)

    def tree(self) -> Tree:
        """The files that the sandbox's user sees."""
        return self._tree(self._container())

    def _container(self) -> str:
        if self.is_lost:
            raise Failed(f"container {container_name(self.sandbox)} has been removed; roll back, or restore a checkpoint")
        return self.state["sandbox"]

    def _tree(self, container: str) -> Tree:
        return Tree(self.engine, container, self.state["size"])

    def check(self, path: str) -> None:
        """Refuses what is no file of the container itself."""
        if self._is_outside(path):
            raise Refused(f"/{path} lies in a mount, which is not isolated")

    def snapshot(self, container: str, name: str) -> str:
        """An image of a container under a tag of this sandbox."""
        # An image's name takes few characters, and not every row of them.
        repository = "sandboxer/" + re.sub("[^a-z0-9]+", "-", self.sandbox.lower()).strip("-")
        return self.engine.snapshot(container, f"{repository}:{name}", {LABEL: self.sandbox})

    def checkpoint(self, name: str) -> None:
        """Keeps the sandbox as it is."""
        tag = "checkpoint-" + hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        self.state["checkpoints"][name] = self.snapshot(self._container(), tag)
        self.state["touched"] = self._touched()
        self.save()

    def differences(self, current: Optional[Tree] = None) -> List[DiffEntry]:
        """How the sandbox, or a snapshot of it, differs from the base."""
        base, original = self._tree(self.state["base"]), self._tree(self.original)
        found = differences(base, current or self.tree(), self._touched())
        original.look_at([entry.path for entry in found])
        return [self._judged(entry, original, found) for entry in found]

    def recreate(self, image: str) -> int:
        """Puts a container of that image in the sandbox's place; how many paths the old one had changed since its own."""
        old, new = self.state["sandbox"], self._make(image)
        changed = self._changed()
        above = {parent for path in changed for parent in parents(path)}
        self.state.update(touched=self._touched(), sandbox=new)
        self.save()
        self.engine.remove(old)
        self._bring_up()
        return len(set(changed) - above)

    def commit(self) -> List[DiffEntry]:
        """Copies what differs into the original. It is taken from a snapshot, which becomes the base."""
        image = self.snapshot(self._container(), "commit")
        snapshot = self._make(image)
        try:
            entries = self.differences(self._tree(snapshot))
            _check(entries)
            self._check_running(entries)
        except Exception:
            self.engine.remove(snapshot)
            self.engine.remove_images([image])
            raise
        self._write_down(snapshot, image, entries)
        try:
            self._apply(self._tree(snapshot), entries)
        except Exception:
            self._take_back(entries)
            self._forget_commit(snapshot)
            raise
        before = self.state["base"]
        self.state.update(base=snapshot, image=image, touched=self._touched())
        self._forget_commit(before)
        return entries

    def _check_running(self, entries: Sequence[DiffEntry]) -> None:
        """What removes needs the original to run, and so does taking it back: without that nothing is begun."""
        if _removed(entries) and not self.engine.inspect(self.original)["State"]["Running"]:
            raise Refused("the original is stopped, and deleting in it takes a program that runs there",
                          hint="start it, and commit again")

    def _write_down(self, snapshot: str, image: str, entries: Sequence[DiffEntry]) -> None:
        self.state["committing"] = {"snapshot": snapshot, "image": image, "paths": [entry.path for entry in entries]}
        self.save()

    def _forget_commit(self, container: str) -> None:
        """The commit is over, and so is the use of one container."""
        self.state["committing"] = None
        self.save()
        self.engine.remove(container)

    def _recover(self) -> None:
        """Takes back what a process that was killed had copied. What is neither as it was nor as it was to be, somebody
        else has changed since: it is left alone."""
        under_way = self.state["committing"]
        base, snapshot = self._tree(self.state["base"]), self._tree(under_way["snapshot"])
        original = self._tree(self.original)
        entries = differences(base, snapshot, under_way["paths"])
        self._take_back([entry for entry in entries if original.node(entry.path) == entry.new])
        self._forget_commit(under_way["snapshot"])

    def _take_back(self, entries: Sequence[DiffEntry]) -> None:
        inverse = [replace(entry, old=entry.new, new=entry.old) for entry in entries]
        try:
            self._apply(self._tree(self.state["base"]), inverse)
        except Failed as error:
            # What was to be done stays written down: the next call tries again.
            raise Failed(f"a commit failed, and could not be taken back yet: {error}") from None

    def _apply(self, source: Tree, entries: Sequence[DiffEntry]) -> None:
        """Makes the original like `source` at the entries' paths. Removal comes first: it may need what is not there."""
        gone = _removed(entries)
        topmost = [path for path in gone if not any(path.startswith(other + "/") for other in gone)]
        for at in range(0, len(topmost), MOST_NAMES):
            names = ["/" + path for path in topmost[at:at + MOST_NAMES]]
            self.engine.execute(self.original, "rm", "-rf", "--", *names)
        present = sorted(entry.path for entry in entries if entry.new)
        if present:
            with self.engine.unpack(self.original) as archive:
                source.copy_into(archive, present)

    def _judged(self, entry: DiffEntry, original: Tree, entries: Sequence[DiffEntry]) -> DiffEntry:
        """The entry, with what stands against committing it."""
        outside = "it lies in a mount of the original" if self._is_outside(entry.path) else None
        moved = not _has_room(entry, original, entries) or original.node(entry.path) != entry.old
        return replace(entry, moved=moved, refused=entry.refused or outside)

    def _is_outside(self, path: str) -> bool:
        return any(path == top or path.startswith(top + "/") for top in (*ENGINES_OWN, *self.mounts))

    def _touched(self) -> List[str]:
        """Every path at which any state of this sandbox may differ from another."""
        return sorted({*self.state["touched"], *self._changed()} - set(ENGINES_OWN))

    def _changed(self) -> List[str]:
        return [] if self.is_lost else self.engine.changed(self.state["sandbox"])

    def _make(self, image: str) -> str:
        """A container like the original, but alone: no network, no volumes, no labels that others act on. Directories
        that are mounts in the original are empty and forget what is written to them."""
        flags = [f"--network={self.network}"]
        base = self.state.get("base")
        for mount in self.mounts if base else ():
            node: Optional[Node] = self._tree(base).node(mount)
            if node is None or node.type == "directory":
                flags.append(f"--mount=type=tmpfs,destination=/{mount}")
        return self.engine.make(image, self.labels, *flags)

    def _bring_up(self) -> None:
        self.engine.rename(self.state["sandbox"], container_name(self.sandbox))
        if self.state["running"]:
            self.engine.start(self.state["sandbox"])


def container_name(sandbox: str) -> str:
    """What the sandbox's container is called."""
    return f"sandboxer-{sandbox}"


def remove(engine: Engine, sandbox: str) -> None:
    """Removes every container and image of a sandbox, whatever there is of it."""
    containers, images = engine.labelled(f"{LABEL}={sandbox}")
    engine.remove(*containers)
    engine.remove_images(images)


def _has_room(entry: DiffEntry, original: Tree, entries: Sequence[DiffEntry]) -> bool:
    """Whether an entry can come to be in the original without anything else being harmed."""
    if entry.old and entry.old.type == "directory" and (entry.new is None or entry.new.type != "directory"):
        # What others have put into the directory meanwhile would go with it.
        return set(original.below(entry.path)) <= {other.path for other in entries}
    # A link where a directory was would lead the copy elsewhere.
    made = {other.path for other in entries if other.new and other.new.type == "directory"}
    return entry.new is None or all(parent in made or original.is_directory(parent) for parent in parents(entry.path))


def _removed(entries: Sequence[DiffEntry]) -> List[str]:
    """The paths at which something goes, whatever comes instead."""
    return [e.path for e in entries if e.old and (e.new is None or e.new.type != e.old.type)]


def _check(entries: Iterable[DiffEntry]) -> None:
    """Refuses what may not, or cannot any more, be copied into the original."""
    entries = list(entries)
    refused = [(entry.path, entry.refused) for entry in entries if entry.refused]
    if refused:
        raise Uncommittable(refused)
    moved = [Conflict(entry.path) for entry in entries if entry.moved]
    if moved:
        raise Conflicts(moved)
