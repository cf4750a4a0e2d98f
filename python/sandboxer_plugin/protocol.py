"""The nine methods of a strategy. A class need not inherit from this: having them is enough."""

from __future__ import annotations

from typing import Any, Mapping, Optional, Protocol, Sequence, Union

from .models import (
    Change, CommitRequest, CommitResult, DiffEntry, DiffView, Resource, RollbackResult, SandboxRef,
)
from .paths import AnyPath

Json = Mapping[str, Any]


class SandboxStrategy(Protocol):
    """How a resource is isolated.

    The resource is changed by `commit` alone. A ref is valid in another process, until `cleanup`. An error leaves the
    resource as it was, and calling again is safe. Wherever a model is returned, a dict with the same names does as well.
    """

    def create(self, plan_id: str, resource: Resource) -> Union[SandboxRef, Json]:
        """Isolates `resource`."""
        raise NotImplementedError

    def read(self, ref: SandboxRef, path: str) -> bytes:
        """The content at `path` as the sandbox sees it."""
        raise NotImplementedError

    def write(self, ref: SandboxRef, path: str, content: bytes) -> Union[Change, Json, None]:
        """Replaces the content at `path`, making parent directories as needed."""
        raise NotImplementedError

    def diff(self, ref: SandboxRef) -> Union[DiffView, Sequence[DiffEntry], Sequence[Json], Json]:
        """Everything that differs from the base. Changes nothing."""
        raise NotImplementedError

    def commit(self, ref: SandboxRef, request: CommitRequest) -> Union[CommitResult, Json, None]:
        """Makes the differences real, or refuses and changes nothing. `request` may be left out of the signature."""
        raise NotImplementedError

    def rollback(self, ref: SandboxRef) -> Union[RollbackResult, Json, None]:
        """Throws the differences away."""
        raise NotImplementedError

    def checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> Optional[AnyPath]:
        """Keeps the present state under that name; one that exists is replaced."""
        raise NotImplementedError

    def restore_checkpoint(self, ref: SandboxRef, checkpoint_id: str) -> Union[RollbackResult, Json, None]:
        """Brings that state back. The base stays as it is."""
        raise NotImplementedError

    def cleanup(self, ref: SandboxRef) -> None:
        """Removes every trace of the sandbox but the resource. Idempotent."""
        raise NotImplementedError
