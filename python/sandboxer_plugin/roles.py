"""What a plugin can be: the methods of each role, how they are called, and what they return."""

from __future__ import annotations

from typing import Any, Callable, Dict, FrozenSet, List, NamedTuple, Optional, Tuple

from . import arguments, extensions, results
from .models import Capabilities
from .protocol import SandboxStrategy


class Role(NamedTuple):
    """One thing that a plugin can be."""

    name: str
    # With how many arguments each method may be called.
    calls: Dict[str, Tuple[int, ...]]
    # What it may do without.
    optional: FrozenSet[str]
    arguments: Dict[str, List[arguments.Argument]]
    results: Dict[str, Callable[[Any], results.Answer]]
    # What promises the methods, and has none of them itself.
    protocols: Tuple[type, ...]
    # What its attribute `capabilities` is; `None` where a definition says what it can do.
    capabilities: Optional[type] = None


STRATEGY = Role(
    name="strategy",
    calls={
        "create": (2,),
        "read": (2,),
        "write": (3,),
        "diff": (1,),
        "commit": (2, 1),
        "rollback": (1,),
        "checkpoint": (2,),
        "restore_checkpoint": (2,),
        "cleanup": (1,),
    },
    optional=frozenset(),
    arguments=arguments.BY_METHOD,
    results=results.BY_METHOD,
    protocols=(SandboxStrategy,),
    capabilities=Capabilities,
)

EXTENSION = Role(
    name="extension",
    calls=extensions.CALLS,
    optional=extensions.OPTIONAL,
    arguments=extensions.ARGUMENTS,
    results=extensions.RESULTS,
    protocols=(extensions.EnvironmentExtension, extensions.OptionalMethods),
)

BY_NAME = {role.name: role for role in (STRATEGY, EXTENSION)}
