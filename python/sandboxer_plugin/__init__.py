"""What a strategy written in Python needs: the protocol, the models, the errors, and a few helpers."""

from . import trees
from .diffing import text_diff
from .errors import (
    Busy, Conflicts, DigestMismatch, Failed, NotFound, Refused, StrategyError, Unavailable, Uncommittable, Unsupported,
    Usage,
)
from .models import (
    Capabilities, Change, CommitRequest, CommitResult, Conflict, DiffEntry, DiffView, HunkSelection, Node, Notice,
    Resource, RollbackResult, SandboxRef,
)
from .protocol import SandboxStrategy
from .session import state_directory

__all__ = [
    "Busy", "Capabilities", "Change", "CommitRequest", "CommitResult", "Conflict", "Conflicts", "DiffEntry", "DiffView",
    "DigestMismatch", "Failed", "HunkSelection", "Node", "NotFound", "Notice", "Refused", "Resource", "RollbackResult",
    "SandboxRef", "SandboxStrategy", "StrategyError", "Unavailable", "Uncommittable", "Unsupported", "Usage",
    "state_directory", "text_diff", "trees",
]
