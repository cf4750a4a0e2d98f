"""What lies at which path of a container, and how two containers differ."""

from __future__ import annotations

import hashlib
import io
import stat
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Collection, Dict, Iterable, List, Optional, Set, Tuple

from sandboxer_plugin import DiffEntry, Failed, Node, Refused, text_diff

from container_engine import Engine

TEXT_LIMIT = 256 << 10
"""Larger files are shown by size and digest alone."""
READ_LIMIT = 64 << 20
"""A content that is handed over as a whole may be as large as this."""
AT_ONCE = 8
LOOK = 20 << 20
"""To look at one path costs about as much as to stream so many bytes: the engine mounts, and starts a process, for each."""
_PIECE = 1 << 20
_XATTR = "SCHILY.xattr."
_TYPES = {tarfile.REGTYPE: "file", tarfile.AREGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink",
          tarfile.FIFOTYPE: "fifo", tarfile.CHRTYPE: "device", tarfile.BLKTYPE: "device"}
COMMITTABLE = ("file", "directory", "symlink")


class Tree:
    """The files of one container, each looked at once. Follows no link, neither at the end of a path nor on the way."""

    def __init__(self, engine: Engine, container: str, size: int) -> None:
        self.engine, self.container, self.size = engine, container, size
        self._seen: Dict[str, Optional[Node]] = {}
        self._walked: Set[str] = set()

    def look_at(self, paths: Iterable[str]) -> None:
        """Looks at many paths in one go, where that is cheaper than one by one."""
        wanted = {name for path in paths for name in (*parents(path), path)} - set(self._seen)
        if not self._is_worth_it(wanted):
            return
        found: Dict[str, Optional[Node]] = dict.fromkeys(wanted)
        with self.engine.export(self.container) as archive:
            for member in archive or ():
                name = member.name.strip("/")
                if name not in wanted:
                    continue
                if member.islnk():
                    # The second name of a file has no content here: it is looked at when it is asked for.
                    del found[name]
                else:
                    found[name] = _node(archive, member)
        self._seen.update(found)

    def node(self, path: str) -> Optional[Node]:
        """What is at a path; `None` where nothing is, or where a parent is no directory."""
        if path not in self._seen:
            self._seen[path] = self._look(path) if self.is_reachable(path) else None
        return self._seen[path]

    def is_directory(self, path: str) -> bool:
        """Whether a directory is at a path."""
        node = self.node(path)
        return node is not None and node.type == "directory"

    def is_reachable(self, path: str) -> bool:
        """Whether what is above a path is a directory; and so on, up to the root."""
        above = path.rpartition("/")[0]
        return not above or self.is_directory(above)

    def below(self, path: str) -> List[str]:
        """Every path below a directory. All of them are looked at on the way."""
        if self._walked.isdisjoint({path, *parents(path)}):
            self._walked.add(path)
            if self.is_directory(path):
                self._walk(path)
        return [name for name, node in self._seen.items() if node and name.startswith(path + "/")]

    def _walk(self, path: str) -> None:
        with self.engine.archive(self.container, path) as archive:
            for member in archive or ():
                # Names in the archive start with the directory's own.
                name = member.name.rstrip("/").partition("/")[2]
                name = f"{path}/{name}" if name else path
                self._seen[name] = self._look(name) if member.islnk() else _node(archive, member)

    def _is_worth_it(self, paths: Collection[str]) -> bool:
        return len(paths) * LOOK > self.size

    def _look(self, path: str) -> Optional[Node]:
        with self.engine.archive(self.container, path) as archive:
            return archive and _node(archive, archive.next())

    def missing_parents(self, path: str) -> List[str]:
        """The directories above a path that are not there, topmost first; one that is something else is refused."""
        missing = [parent for parent in parents(path) if not self.is_directory(parent)]
        if missing and self.node(missing[0]) is not None:
            raise Refused(f"{missing[0]} is no directory, so {path} cannot be below it")
        return missing

    def content(self, path: str) -> Tuple[Optional[Node], bytes]:
        """A regular file with its content; other things are refused."""
        if not self.is_reachable(path):
            return None, b""
        with self.engine.archive(self.container, path) as archive:
            member = archive and archive.next()
            if member is None:
                return None, b""
            if not member.isreg():
                raise Refused(f"{path} is no regular file")
            if member.size > READ_LIMIT:
                raise Refused(f"{path} has {member.size} bytes; up to {READ_LIMIT} are read at once")
            content = archive.extractfile(member).read()
            return _plain(member, _digest(content)), content

    def copy_into(self, archive: tarfile.TarFile, paths: Iterable[str]) -> None:
        """Adds what is at some paths to an archive, under their whole paths; of directories, themselves alone."""
        left = set(paths)
        if self._is_worth_it(left):
            with self.engine.export(self.container) as source:
                for member in source or ():
                    name = member.name.strip("/")
                    if name in left and not member.islnk():
                        left.remove(name)
                        _add(archive, name, member, source)
        for path in sorted(left):
            with self.engine.archive(self.container, path) as source:
                member = source and source.next()
                if member is None:
                    raise Failed(f"/{path} has gone from container {self.container}")
                _add(archive, path, member, source)


def differences(old: Tree, new: Tree, touched: Iterable[str]) -> List[DiffEntry]:
    """How two containers differ, if they differ at no other paths than those, and below them where directories came or went."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done: Dict[str, Optional[DiffEntry]] = {}
        waiting = set(touched)
        while waiting:
            for tree in (old, new):
                tree.look_at(waiting)
            found = list(pool.map(lambda path: (path, _difference(old, new, path)), sorted(waiting)))
            done.update(found)
            changed = [entry for _, entry in found if entry]
            waiting = {path for entry in changed for path in _further(old, new, entry)} - set(done)
    return [done[path] for path in sorted(done) if done[path]]


def _difference(old: Tree, new: Tree, path: str) -> Optional[DiffEntry]:
    before, after = old.node(path), new.node(path)
    if before == after:
        return None
    kind = _kind(before, after)
    text = _text(old, new, path, before, after) if kind != "metadata" else None
    sides = [node for node in (before, after) if node and node.type == "file"]
    return DiffEntry(path, kind, old=before, new=after, text=text, binary=bool(sides) and text is None and kind != "metadata",
                     refused=_refusal(before, after), flags=["setuid"] if after and after.mode & 0o6000 else [])


def _kind(before: Optional[Node], after: Optional[Node]) -> str:
    if before is None or after is None:
        return "created" if before is None else "deleted"
    if before.type != after.type:
        return "type"
    same = (before.digest, before.target) == (after.digest, after.target)
    return "metadata" if same else "modified"


def _further(old: Tree, new: Tree, entry: DiffEntry) -> List[str]:
    """The engine names a directory that is gone, and nothing that was in it."""
    was = entry.old is not None and entry.old.type == "directory"
    is_now = entry.new is not None and entry.new.type == "directory"
    if was == is_now:
        return []
    return old.below(entry.path) if was else new.below(entry.path)


def _text(old: Tree, new: Tree, path: str, before: Optional[Node], after: Optional[Node]) -> Optional[str]:
    sides = [node for node in (before, after) if node]
    if any(node.type != "file" or node.size > TEXT_LIMIT for node in sides):
        return None
    entry = text_diff(path, before and old.content(path)[1], after and new.content(path)[1])
    return entry and entry.text


def _refusal(before: Optional[Node], after: Optional[Node]) -> Optional[str]:
    odd = [node.type for node in (before, after) if node and node.type not in COMMITTABLE]
    return f"a {odd[0]} cannot be copied between containers" if odd else None


def _add(archive: tarfile.TarFile, path: str, member: tarfile.TarInfo, source: tarfile.TarFile) -> None:
    member.name = path
    archive.addfile(member, source.extractfile(member) if member.isreg() else None)


def _node(archive: tarfile.TarFile, member: Optional[tarfile.TarInfo]) -> Optional[Node]:
    if member is None:
        return None
    digest = None
    if member.isreg():
        hasher, stream = hashlib.sha256(), archive.extractfile(member)
        for piece in iter(lambda: stream.read(_PIECE), b""):
            hasher.update(piece)
        digest = "sha256:" + hasher.hexdigest()
    return _plain(member, digest)


def _plain(member: tarfile.TarInfo, digest: Optional[str]) -> Node:
    """Times are left out: they differ between snapshots of one state."""
    attributes = sorted((key, value) for key, value in member.pax_headers.items() if key.startswith(_XATTR))
    return Node(type=_TYPES.get(member.type, "other"), mode=stat.S_IMODE(member.mode), uid=member.uid, gid=member.gid,
                size=member.size if member.isreg() else 0, digest=digest, target=member.linkname or None,
                xattrs=_digest(repr(attributes).encode()) if attributes else None)


def _digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def new_file(path: str, content: bytes, like: Optional[Node]) -> Tuple[tarfile.TarInfo, io.BytesIO]:
    """A member for an archive: a file with that content, owned and permitted as the one it replaces."""
    member = tarfile.TarInfo(path)
    member.size, member.mode = len(content), like.mode if like else 0o644
    member.uid, member.gid = (like.uid, like.gid) if like else (0, 0)
    member.mtime = time.time()
    return member, io.BytesIO(content)


def new_directory(path: str) -> tarfile.TarInfo:
    """A member for an archive: a directory that everybody may look into."""
    member = tarfile.TarInfo(path)
    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, time.time()
    return member


def parents(path: str) -> List[str]:
    """The directories above a path, topmost first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]
