"""Trees of files, for strategies that work on copies. No function here follows a symbolic link below the root it is given.

What is kept: content, permission bits, symbolic links, empty directories. Owners, times, extended attributes and hard links are
not; pipes, sockets and devices are seen, and never copied.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
from dataclasses import replace
from typing import BinaryIO, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from .errors import NotFound, Refused
from .models import Change, DiffEntry, Node, Notice

COPIED = ("file", "directory", "symlink")

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CONTENT = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TYPES = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "fifo", stat.S_IFSOCK: "socket",
}

# The bits that nothing gets out of a sandbox with. On a directory setgid only says which group new files get.
_POWERS = {"file": stat.S_ISUID | stat.S_ISGID, "directory": stat.S_ISUID}


def read(root: str, path: str) -> bytes:
    """The content of the file at `path` below `root`."""
    with _parent(root, path) as (directory, name), _open(directory, name, path) as file:
        return file.read()


def write(root: str, path: str, content: bytes) -> Change:
    """Replaces the content of the file at `path` below `root`, and makes the directories above it."""
    with _parent(root, path, make=True) as (directory, name):
        old = _stat(directory, name)
        if old is not None and not stat.S_ISREG(old.st_mode):
            raise Refused(f"{path} is no regular file")
        mode = 0o644 if old is None else stat.S_IMODE(old.st_mode)
        with _replacing(directory, name, mode) as file:
            file.write(content)
    return Change(path, "created" if old is None else "modified", len(content), old.st_size if old else None)


def compare(old_root: str, new_root: str) -> List[DiffEntry]:
    """Everything that differs between two trees, by path."""
    old, new = scan(old_root), scan(new_root)
    changed = (path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path))
    entries = [_entry(path, old.get(path), new.get(path)) for path in changed]
    return [replace(entry, binary=_is_binary(entry, old_root, new_root)) for entry in entries]


def _is_binary(entry: DiffEntry, old_root: str, new_root: str) -> bool:
    node, root = (entry.new, new_root) if entry.new is not None else (entry.old, old_root)
    if node is None or node.type != "file":
        return False
    # What vanishes meanwhile is nothing that could be shown.
    with contextlib.suppress(FileNotFoundError, NotFound, Refused):
        with _parent(root, entry.path) as (directory, name), _open(directory, name, entry.path) as file:
            return b"\0" in file.read(8000)
    return False


def apply(entries: Iterable[DiffEntry], source: str, target: str) -> List[Notice]:
    """Makes `target` at these paths what `source` is there; durable when it returns. What gives whoever runs a file somebody else's
    powers is left out, and told."""
    notices: List[Notice] = []
    _apply([_relieved(entry, notices) for entry in entries], source, target)
    return notices


def _relieved(entry: DiffEntry, notices: List[Notice]) -> DiffEntry:
    """The entry without setuid and setgid bits; a file of which nothing but the mode differs may keep those it had."""
    if entry.new is None or entry.new.type not in _POWERS:
        return entry
    held = entry.old.mode if entry.old is not None and entry.kind == "metadata" else 0
    taken = entry.new.mode & _POWERS[entry.new.type] & ~held
    for bit, name in ((stat.S_ISUID, "setuid"), (stat.S_ISGID, "setgid")):
        if taken & bit:
            notices.append(Notice(entry.path, f"{name} bit removed"))
    return replace(entry, new=replace(entry.new, mode=entry.new.mode & ~taken))


def _apply(entries: Iterable[DiffEntry], source: str, target: str) -> None:
    listed = sorted(entries, key=lambda entry: entry.path)
    for entry in reversed(listed):
        if entry.kind in ("deleted", "type"):
            _remove(target, entry.path)
    kept = [entry for entry in listed if entry.new is not None and entry.new.type in COPIED]
    for entry in kept:
        _copy(source, target, entry)
    # Last, and from below: a directory may not be writable any more once it has its own mode.
    for entry in reversed(kept):
        if entry.new is not None and entry.new.type == "directory":
            _set_mode(target, entry.path, entry.new.mode)


def mirror(source: str, target: str) -> int:
    """Makes the whole tree at `target` what the one at `source` is, and says how many entries that took."""
    os.makedirs(target, exist_ok=True)
    entries = compare(target, source)
    _apply(entries, source, target)
    return len(entries)


def overlaps(ours: Iterable[DiffEntry], theirs: Iterable[DiffEntry]) -> List[str]:
    """The paths of `ours` that `theirs` has changed too, above or below included, but not into the same."""
    others = {entry.path: entry for entry in theirs}
    above = {parent for path in others for parent in _parents(path)}
    return [entry.path for entry in ours if _is_taken(entry, others, above)]


def _is_taken(entry: DiffEntry, others: Dict[str, DiffEntry], above: Set[str]) -> bool:
    same = others.get(entry.path)
    if same is not None:
        return same.new != entry.new
    if entry.kind in ("deleted", "type") and entry.path in above:
        return True
    over = (others[parent] for parent in _parents(entry.path) if parent in others)
    return any(other.new is None or other.new.type != "directory" for other in over)


def scan(root: str) -> Dict[str, Node]:
    """All that is below `root`."""
    found: Dict[str, Node] = {}
    directory = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
    try:
        _scan(directory, "", found)
    finally:
        os.close(directory)
    return found


def _scan(directory: int, prefix: str, found: Dict[str, Node]) -> None:
    with os.scandir(directory) as listing:
        names = [entry.name for entry in listing]
    for name in names:
        # What vanishes meanwhile, or becomes something else, was not there.
        with contextlib.suppress(FileNotFoundError, NotFound, Refused):
            node = _node(directory, name)
            found[prefix + name] = node
            if node.type == "directory":
                with _descend(directory, name) as below:
                    _scan(below, f"{prefix}{name}/", found)


def _node(directory: int, name: str) -> Node:
    status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    kind = _TYPES.get(stat.S_IFMT(status.st_mode), "device")
    mode = stat.S_IMODE(status.st_mode)
    if kind == "file":
        size, digest = _digest(directory, name)
        return Node(mode=mode, size=size, digest=digest)
    if kind == "symlink":
        target = os.readlink(name, dir_fd=directory)
        # The text of a target may be lossy on the wire; the digest is exact.
        return Node(kind, mode, digest="sha256:" + hashlib.sha256(os.fsencode(target)).hexdigest(), target=target)
    return Node(kind, mode)


def _digest(directory: int, name: str) -> Tuple[int, str]:
    hasher, size = hashlib.sha256(), 0
    with _open(directory, name, name) as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            hasher.update(piece)
            size += len(piece)
    return size, "sha256:" + hasher.hexdigest()


def _entry(path: str, old: Optional[Node], new: Optional[Node]) -> DiffEntry:
    refused = f"a {new.type} is never committed" if new is not None and new.type not in COPIED else None
    return DiffEntry(path, _kind(old, new), old=old, new=new, refused=refused)


def _kind(old: Optional[Node], new: Optional[Node]) -> str:
    if old is None:
        return "created"
    if new is None:
        return "deleted"
    if old.type != new.type:
        return "type"
    same_content = (old.digest, old.target) == (new.digest, new.target)
    return "metadata" if same_content else "modified"


def _copy(source: str, target: str, entry: DiffEntry) -> None:
    assert entry.new is not None
    with _parent(target, entry.path, make=True) as (directory, name):
        if entry.new.type == "directory":
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
        elif entry.new.type == "symlink":
            _link(directory, name, entry.new.target or "")
        else:
            with _parent(source, entry.path) as (from_directory, from_name):
                with _open(from_directory, from_name, entry.path) as old, _replacing(directory, name, entry.new.mode) as new:
                    shutil.copyfileobj(old, new, 1 << 20)
        os.fsync(directory)


def _link(directory: int, name: str, target: str) -> None:
    beside = _temporary_name()
    os.symlink(target, beside, dir_fd=directory)
    os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)


def _remove(root: str, path: str) -> None:
    with contextlib.suppress(NotFound, FileNotFoundError), _parent(root, path) as (directory, name):
        status = _stat(directory, name)
        if status is not None and stat.S_ISDIR(status.st_mode):
            os.rmdir(name, dir_fd=directory)
        elif status is not None:
            os.unlink(name, dir_fd=directory)
        os.fsync(directory)


def _set_mode(root: str, path: str, mode: int) -> None:
    with _parent(root, path) as (directory, name), _descend(directory, name) as below:
        os.fchmod(below, mode)


@contextlib.contextmanager
def _parent(root: str, path: str, make: bool = False) -> Iterator[Tuple[int, str]]:
    """The directory that holds `path`, reached name by name, and the last name."""
    *above, name = path.split("/")
    if any(part in ("", ".", "..") for part in (*above, name)):
        raise Refused(f"{path!r} is no plain relative path")
    with contextlib.ExitStack() as held:
        directory = os.open(root, _DIRECTORY & ~os.O_NOFOLLOW)
        held.callback(os.close, directory)
        for part in above:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=directory)
            directory = held.enter_context(_descend(directory, part, path))
        yield directory, name


@contextlib.contextmanager
def _descend(directory: int, name: str, path: str = "") -> Iterator[int]:
    try:
        below = os.open(name, _DIRECTORY, dir_fd=directory)
    except FileNotFoundError:
        raise NotFound("file", path or name) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Refused(f"{path or name}: {name} is no directory, and links are not followed") from None
        raise
    try:
        yield below
    finally:
        os.close(below)


@contextlib.contextmanager
def _open(directory: int, name: str, path: str) -> Iterator[BinaryIO]:
    try:
        fd = os.open(name, _CONTENT, dir_fd=directory)
    except FileNotFoundError:
        raise NotFound("file", path) from None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise Refused(f"{path} is no regular file, and links are not followed") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise Refused(f"{path} is no regular file")
    with os.fdopen(fd, "rb") as file:
        yield file


@contextlib.contextmanager
def _replacing(directory: int, name: str, mode: int) -> Iterator[BinaryIO]:
    """A file that takes the place of `name` once it is written."""
    beside = _temporary_name()
    fd = os.open(beside, _NEW, 0o600, dir_fd=directory)
    try:
        with os.fdopen(fd, "wb") as file:
            yield file
            file.flush()
            os.fchmod(fd, mode)
            os.fsync(fd)
        os.rename(beside, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(beside, dir_fd=directory)
        raise


def _temporary_name() -> str:
    return f".sandboxer-{os.urandom(8).hex()}"


def _stat(directory: int, name: str) -> Optional[os.stat_result]:
    try:
        return os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _parents(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path
