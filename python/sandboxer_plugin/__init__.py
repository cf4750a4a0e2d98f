"""What a strategy or an extension written in Python needs: the protocol, the models, the errors, and a few helpers."""

from . import trees
from .diffing import text_diff
from .errors import (
    AlreadyDecided, Busy, Conflicts, DigestMismatch, Failed, NotFound, Refused, StrategyError, Unavailable, Uncommittable,
    Unsupported, Usage,
)
from .extensions import (
    Cost, Endpoint, EnvironmentExtension, Found, Handle, Health, Mount, NotReady, Provision, Ready,
)
from .models import (
    Capabilities, Change, CommitRequest, CommitResult, Conflict, DiffEntry, DiffView, HunkSelection, Node, Notice,
    Resource, RollbackResult, SandboxRef,
)
from .protocol import SandboxStrategy
from .session import state_directory

__all__ = [
    "AlreadyDecided", "Busy", "Capabilities", "Change", "CommitRequest", "CommitResult", "Conflict", "Conflicts", "Cost",
    "DiffEntry", "DiffView", "DigestMismatch", "Endpoint", "EnvironmentExtension", "Failed", "Found", "Handle", "Health",
    "HunkSelection", "Mount", "Node", "NotFound", "NotReady", "Notice", "Provision", "Ready", "Refused", "Resource",
    "RollbackResult", "SandboxRef", "SandboxStrategy", "StrategyError", "Unavailable", "Uncommittable", "Unsupported",
    "Usage", "state_directory", "text_diff", "trees",
]
