"""Paths on the wire: text where they are UTF-8, `base64:…` where they are not. In Python: `str`, as `os.fsdecode` makes it."""

from __future__ import annotations

import base64
import binascii
import os
from typing import Union

ENCODED = "base64:"
_NO_NAMES = ("", ".", "..")

AnyPath = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


def decode(text: object) -> str:
    """The path that a piece of text from the wire stands for."""
    if type(text) is not str:
        raise ValueError(f"a path is text, not {type(text).__name__}")
    if not text.startswith(ENCODED):
        return text
    try:
        return os.fsdecode(base64.b64decode(text[len(ENCODED):], validate=True))
    except binascii.Error as error:
        raise ValueError(f"{text!r} is no base64: {error}") from None


def decode_relative(text: object) -> str:
    """The same for a path inside a sandbox: what could lead out of it is refused."""
    path = decode(text)
    if "\0" in path or any(part in _NO_NAMES for part in path.split("/")):
        raise ValueError(f"{path!r} is no plain relative path")
    return path


def encode(path: AnyPath) -> str:
    """The text that stands for a path on the wire. `TypeError` or `ValueError` for what is none."""
    name = os.fsdecode(path)
    if not name.startswith(ENCODED):
        if name.isascii():
            return name
        try:
            name.encode("utf-8")
            return name
        except UnicodeEncodeError:
            pass
    return ENCODED + base64.b64encode(os.fsencode(name)).decode("ascii")


def readable(text: str) -> str:
    """Text for people: what is not UTF-8 is replaced."""
    for how in ("strict", "surrogateescape", "replace"):
        try:
            return text.encode("utf-8", how).decode("utf-8", "replace")
        except UnicodeEncodeError:
            continue
    return text
