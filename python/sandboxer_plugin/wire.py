"""Frames and JSON-RPC 2.0: what goes over the pipe, and nothing about strategies."""

from __future__ import annotations

import json
import os
from typing import Any, BinaryIO, Dict, List, NamedTuple, Optional

from . import paths

HEADER_LIMIT = 4 << 10
MESSAGE_LIMIT = 32 << 20
ATTACHMENT_LIMIT = 64 << 20

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
INVALID_PARAMS = -32602
APPLICATION_ERROR = -32000


class FrameError(Exception):
    """What arrived is no frame: where the next one begins is not known."""


class RpcError(Exception):
    """An answer that says no."""

    def __init__(self, code: int, message: str, data: Optional[Dict[str, Any]] = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data

    def to_json(self) -> Dict[str, Any]:
        """The `error` of the answer."""
        error: Dict[str, Any] = {"code": self.code, "message": self.message}
        if self.data is not None:
            error["data"] = self.data
        return error


class Frame(NamedTuple):
    """One message and what is attached to it, neither of them looked into."""

    message: bytes
    attachment: bytes


class Reader:
    """Reads frames from a stream."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def next(self) -> Optional[Frame]:
        """The next frame; `None` at the end."""
        lengths = self._lengths()
        if lengths is None:
            return None
        message = self._exactly(lengths[0])
        return Frame(message, self._exactly(lengths[1]) if lengths[1] else b"")

    def _lengths(self) -> Optional[List[int]]:
        message, attachment, left = -1, 0, HEADER_LIMIT
        while True:
            line = self._stream.readline(left + 1)
            if not line and left == HEADER_LIMIT:
                return None
            left -= len(line)
            if left < 0:
                raise FrameError(f"a header of more than {HEADER_LIMIT} bytes")
            if line == b"\r\n":
                break
            if line[-2:] != b"\r\n":
                raise FrameError(f"no header line: {line[:80]!r}")
            name, colon, value = line.partition(b":")
            if not colon:
                raise FrameError(f"no header line: {line[:80]!r}")
            name = name.strip().lower()
            if name == b"content-length":
                message = _length(value, MESSAGE_LIMIT)
            elif name == b"attachment-length":
                attachment = _length(value, ATTACHMENT_LIMIT)
        if message < 0:
            raise FrameError("a header without Content-Length")
        return [message, attachment]

    def _exactly(self, count: int) -> bytes:
        content = self._stream.read(count)
        if len(content) != count:
            raise FrameError(f"the input ended {count - len(content)} bytes early")
        return content


def _length(text: bytes, limit: int) -> int:
    digits = text.strip()
    if not digits.isdigit():
        raise FrameError(f"no length: {digits[:80]!r}")
    # A number that long is over the limit whatever it is; converting it would take its time.
    if len(digits) > 20 or int(digits) > limit:
        raise FrameError(f"a length of {digits[:20].decode()} bytes; up to {limit} are read")
    return int(digits)


def parse(message: bytes) -> Any:
    """The JSON of a message."""
    try:
        return json.loads(message.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, f"the message is no JSON: {error}") from None


def _other(value: Any) -> Any:
    if isinstance(value, os.PathLike):
        return paths.encode(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_other).encode


def to_bytes(message: Dict[str, Any]) -> bytes:
    """A message as it is sent. `ValueError` or `TypeError` where it has something that JSON has no form for."""
    text = _encode(message).encode("utf-8")
    if len(text) > MESSAGE_LIMIT:
        raise ValueError(f"{len(text)} bytes of JSON; a message takes up to {MESSAGE_LIMIT}")
    return text


def send(fd: int, message: bytes, attachment: Optional[memoryview] = None) -> None:
    """Writes one frame."""
    if attachment is None:
        _write_all(fd, [b"Content-Length: %d\r\n\r\n" % len(message), message])
    else:
        header = b"Content-Length: %d\r\nAttachment-Length: %d\r\n\r\n" % (len(message), attachment.nbytes)
        _write_all(fd, [header, message, attachment])


def _write_all(fd: int, parts: List[Any]) -> None:
    left = sum(len(part) for part in parts)
    written = os.writev(fd, parts)
    while written < left:
        left -= written
        parts = _without(parts, written)
        written = os.writev(fd, parts)


def _without(parts: List[Any], count: int) -> List[Any]:
    """What is left of `parts` after their first `count` bytes."""
    rest = []
    for part in parts:
        if count < len(part):
            rest.append(memoryview(part)[count:])
        count = max(0, count - len(part))
    return rest
