"""How two versions of an object differ, as an entry of a diff."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from sandboxer_plugin import DiffEntry, Node, text_diff

from s3_staging import Entry
from s3_store import Bucket

TEXT_LIMIT = 256 << 10
"""Larger objects are shown by size and digest alone."""

Buckets = Callable[[str], Bucket]


def compare(buckets: Buckets, path: str, old: Entry, new: Entry) -> Optional[DiffEntry]:
    """The difference between two objects; `None` where the content is the same."""
    if old is None and new is None:
        return None
    digest = _digest(buckets, new)
    if old and new and old["size"] == new["size"] and _digest(buckets, old) == digest:
        return None
    kind = "created" if old is None else "deleted" if new is None else "modified"
    text = _text(buckets, path, old, new)
    return DiffEntry(path, kind, old=_node(old, old and old.get("digest")), new=_node(new, digest),
                     binary=text is None, text=text)


def _text(buckets: Buckets, path: str, old: Entry, new: Entry) -> Optional[str]:
    """A unified patch; `None` where a side is large or no text."""
    if any(entry and entry["size"] > TEXT_LIMIT for entry in (old, new)):
        return None
    entry = text_diff(path, _content(buckets, old), _content(buckets, new))
    return entry and entry.text


def _content(buckets: Buckets, entry: Entry) -> Optional[bytes]:
    return entry and buckets(entry["bucket"]).get(entry["key"], entry["version"])


def _digest(buckets: Buckets, entry: Entry) -> Optional[str]:
    """The digest that was kept when the object was staged; else it is read, however large it is."""
    return entry and (entry.get("digest") or buckets(entry["bucket"]).digest(entry["key"], entry["version"]))


def _node(entry: Optional[Dict[str, Any]], digest: Optional[str]) -> Optional[Node]:
    return entry and Node(type="other", mode=0, uid=0, gid=0, size=entry["size"], digest=digest)
