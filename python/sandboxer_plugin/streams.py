"""The pipes to the host, out of reach of what a strategy prints or starts."""

from __future__ import annotations

import io
import os
import select
import sys
import threading
import time
from typing import BinaryIO, Callable, NamedTuple


class Streams(NamedTuple):
    """Private copies of standard input and output."""

    source: BinaryIO
    source_fd: int
    sink_fd: int


def take_over() -> Streams:
    """Keeps both pipes for the protocol. Everybody else reads nothing, and writes to standard error."""
    source_fd, sink_fd = os.dup(0), os.dup(1)
    os.set_blocking(source_fd, True)
    os.set_blocking(sink_fd, True)
    _put_null(0)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    os.register_at_fork(after_in_child=lambda: (_put_null(source_fd), _put_null(sink_fd)))
    source = io.open(source_fd, "rb", buffering=64 << 10, closefd=False)
    return Streams(source, source_fd, sink_fd)


def _put_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, fd, inheritable=fd < 3)
    os.close(null)


def watch_for_the_end(fd: int, patience_seconds: Callable[[], float]) -> None:
    """Ends this process where the host is gone and a call goes on for longer than the host would have waited."""
    threading.Thread(target=_watch, args=(fd, patience_seconds), daemon=True, name="watchdog").start()


def _watch(fd: int, patience_seconds: Callable[[], float]) -> None:
    poll = select.poll()
    # No event is asked for: hanging up is told all the same, and input does not wake this thread.
    poll.register(fd, 0)
    poll.poll()
    time.sleep(patience_seconds())
    os._exit(1)
