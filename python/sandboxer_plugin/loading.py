"""From the names in `initialize` to a plugin that can be called."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
from typing import Any, Dict, NamedTuple, Optional

from . import shape
from .failures import failure, log, named
from .models import Capabilities, plain
from .roles import STRATEGY, Role

MOST_AT_ONCE = 64


class Loaded(NamedTuple):
    """A class that was looked at, and its instance; none where the class is not what it has to be."""

    cls: type
    methods: Dict[str, shape.Description]
    instance: Optional[Any]

    def attribute(self, name: str) -> Any:
        """An attribute of the instance, or of the class; `None` where there is none."""
        return getattr(self.cls if self.instance is None else self.instance, name, None)


def look_in(directory: Optional[str]) -> None:
    """Adds the user's own directory to where modules are looked for: last, so that no name in it hides one of Python's."""
    if directory and directory not in sys.path:
        sys.path.append(directory)


def load(module_name: str, class_name: str, options: Dict[str, Any], role: Role = STRATEGY) -> Loaded:
    """Imports, looks, and makes an instance if all methods that the role needs are there."""
    cls = _find(_import(module_name), module_name, class_name)
    methods = shape.describe(cls, role)
    instance = _make(cls, f"{module_name}:{class_name}", options) if shape.is_complete(methods, role) else None
    return Loaded(cls, methods, instance)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except BaseException as error:
        log(error)
        raise failure(f"cannot import {name}: {named(error)}") from None


def _find(module: Any, module_name: str, class_name: str) -> type:
    found = module
    for part in class_name.split("."):
        if not hasattr(found, part):
            raise failure(f"{module_name} has no class {class_name}{_near(found, part)}", "usage")
        found = getattr(found, part)
    if not inspect.isclass(found):
        raise failure(f"{module_name}:{class_name} is no class but {type(found).__name__}", "usage")
    return found


def _near(owner: Any, name: str) -> str:
    classes = {key.lower(): key for key, value in vars(owner).items() if inspect.isclass(value)}
    near = [classes[key] for key in difflib.get_close_matches(name.lower(), classes)]
    return f"; it has {', '.join(near)}" if near else ""


def _make(cls: type, name: str, options: Dict[str, Any]) -> Any:
    _check_options(cls, name, options)
    try:
        return cls(**options)
    except BaseException as error:
        log(error)
        raise failure(f"cannot make {name}: {named(error)}") from None


def _check_options(cls: type, name: str, options: Dict[str, Any]) -> None:
    try:
        signature = inspect.signature(cls)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**options)
    except TypeError as error:
        raise failure(f"the options do not fit {name}: {error}", "usage") from None


def capabilities(loaded: Loaded) -> Dict[str, Any]:
    """What it declares, over the defaults. Names nobody knows are the host's to judge."""
    declared = loaded.attribute("capabilities")
    if isinstance(declared, Capabilities):
        declared = plain(declared)
    elif declared is None or (loaded.instance is None and not isinstance(declared, dict)):
        declared = {}
    elif not isinstance(declared, dict):
        kind = type(declared).__name__
        raise failure(f"capabilities of {loaded.cls.__name__} must be Capabilities or a dict, not {kind}", "usage")
    return {name: _jsonable(value) for name, value in {**plain(Capabilities()), **declared}.items()}


def _jsonable(value: Any) -> Any:
    return list(value) if isinstance(value, (tuple, set, frozenset)) else value


def concurrency(loaded: Loaded) -> int:
    """How many calls it takes at once."""
    count = loaded.attribute("concurrency")
    if count is None or loaded.instance is None:
        return 1
    if type(count) is not int or not 1 <= count <= MOST_AT_ONCE:
        raise failure(f"concurrency of {loaded.cls.__name__} must be a number from 1 to {MOST_AT_ONCE}", "usage")
    return count


def summary(loaded: Loaded) -> str:
    """One line about it: its own, or the first of its description."""
    own = loaded.attribute("summary")
    text = own if isinstance(own, str) else _description(loaded.cls)
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _description(cls: type) -> str:
    """Its own: what it inherits describes something else."""
    return vars(cls).get("__doc__") or ""
