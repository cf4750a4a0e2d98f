"""The difference of two contents, for strategies whose content is no file."""

from __future__ import annotations

import difflib
import hashlib
import io
from typing import Iterator, List, Optional

from . import paths
from .models import DiffEntry, Node

_LOOKED_AT = 8000
# Python's comparison of lines takes its time: larger contents are told apart by their digests alone.
_LONGEST_TEXT = 1 << 20


def digest(content: bytes) -> str:
    """The digest of a content."""
    return "sha256:" + hashlib.sha256(content).hexdigest()


def is_binary(content: bytes) -> bool:
    """Whether it is no text: it has a NUL byte near its beginning."""
    return b"\0" in content[:_LOOKED_AT]


def text_diff(path: str, old: Optional[bytes], new: Optional[bytes], mode: int = 0o644) -> Optional[DiffEntry]:
    """The entry for a content that was `old` and is `new`, with a unified patch; `None` where they are equal."""
    if old == new:
        return None
    kind = "created" if old is None else "deleted" if new is None else "modified"
    binary = is_binary(old or b"") or is_binary(new or b"")
    is_long = max(len(old or b""), len(new or b"")) > _LONGEST_TEXT
    text = None if binary or is_long else _patch(path, old, new)
    return DiffEntry(path, kind, old=_node(old, mode), new=_node(new, mode), binary=binary, text=text)


def _node(content: Optional[bytes], mode: int) -> Optional[Node]:
    return None if content is None else Node(mode=mode, size=len(content), digest=digest(content))


def _patch(path: str, old: Optional[bytes], new: Optional[bytes]) -> str:
    # A tab after a name with spaces tells `patch` where the name ends.
    shown = paths.readable(path) + ("\t" if " " in path else "")
    old_name = "/dev/null" if old is None else f"a/{shown}"
    new_name = "/dev/null" if new is None else f"b/{shown}"
    return "".join(_marked(difflib.unified_diff(_lines(old), _lines(new), old_name, new_name)))


def _lines(content: Optional[bytes]) -> List[str]:
    """Split at newlines alone: other line ends of Unicode are no line ends of a patch."""
    return list(io.StringIO((content or b"").decode("utf-8", "replace"), newline="\n"))


def _marked(lines: Iterator[str]) -> Iterator[str]:
    for line in lines:
        yield line
        if not line.endswith("\n"):
            yield "\n\\ No newline at end of file\n"
