"""What the host told this process about itself."""

from __future__ import annotations

_state = ""


def state_directory() -> str:
    """A directory of this plugin's own that outlives its process; known from before its module is imported."""
    return _state


def _set_state_directory(path: str) -> None:
    global _state
    _state = path
