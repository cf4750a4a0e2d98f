"""Looks at a class, without making an instance of it, and says which methods of a role it has and how they are called."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import Any, Dict, List, Optional

from .roles import STRATEGY, Role

Description = Dict[str, Any]

_ASYNCHRONOUS = (
    (inspect.iscoroutinefunction, "is a coroutine"),
    (inspect.isasyncgenfunction, "is an asynchronous generator"),
    (inspect.isgeneratorfunction, "is a generator"),
)
_MISSING = object()


def describe(cls: type, role: Role = STRATEGY) -> Dict[str, Description]:
    """What there is of the role's methods, each with its parameters or what is wrong with it."""
    found = ((name, _defined(cls, name, role)) for name in role.calls)
    return {name: _describe(cls, name, value) for name, value in found if value is not _MISSING}


def is_complete(methods: Dict[str, Description], role: Role = STRATEGY) -> bool:
    """Whether all that are needed, and those that are there, can be called as they will be."""
    asked = (name for name in role.calls if name in methods or name not in role.optional)
    return all(accepted(methods.get(name), name, role) is not None for name in asked)


def accepted(description: Optional[Description], name: str, role: Role = STRATEGY) -> Optional[int]:
    """With how many arguments the method is to be called; `None` if it cannot be."""
    if description is None or "wrong" in description:
        return None
    return next((count for count in role.calls[name] if _takes(description, count)), None)


def _takes(description: Description, count: int) -> bool:
    enough = description["required"] <= count
    return enough and (description["rest"] or count <= len(description["parameters"]))


def _defined(cls: type, name: str, role: Role) -> Any:
    """What the class itself has under that name; a protocol's or an abstract method is a promise, not a method."""
    for owner in cls.__mro__:
        if name in vars(owner):
            value = vars(owner)[name]
            promised = owner in role.protocols or vars(owner).get("_is_protocol", False)
            return _MISSING if promised or getattr(value, "__isabstractmethod__", False) else value
    return _MISSING


def _describe(cls: type, name: str, value: Any) -> Description:
    if isinstance(value, (property, functools.cached_property)):
        return {"wrong": "is a property"}
    function = _function(cls, name, value)
    if inspect.isclass(function) or not callable(function):
        return {"wrong": "is not a method"}
    for test, what in _ASYNCHRONOUS:
        if test(function) or test(getattr(type(function), "__call__", None)):
            return {"wrong": what}
    return _signature(function, _takes_self(value))


def _function(cls: type, name: str, value: Any) -> Any:
    if isinstance(value, functools.partialmethod):
        return getattr(cls, name)
    return value.__func__ if isinstance(value, (staticmethod, classmethod)) else value


def _takes_self(value: Any) -> bool:
    """Whether the first parameter is filled in by the look-up on an instance."""
    if isinstance(value, staticmethod):
        return False
    if isinstance(value, functools.partial):
        return sys.version_info >= (3, 14)
    return hasattr(type(value), "__get__")


def _signature(function: Any, takes_self: bool) -> Description:
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        # Written in C, without a signature: only a call will tell.
        return {"parameters": [], "required": 0, "rest": True}
    if takes_self and not (parameters and parameters[0].kind is parameters[0].VAR_POSITIONAL):
        if not parameters or parameters[0].kind not in _POSITIONAL:
            return {"wrong": "has no parameter for self"}
        parameters = parameters[1:]
    return _parameters(parameters)


_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(parameters: List[inspect.Parameter]) -> Description:
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            return {"wrong": f"needs the keyword argument {parameter.name!r}"}
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    return {
        "parameters": [p.name for p in positional],
        "required": sum(p.default is p.empty for p in positional),
        "rest": any(p.kind is p.VAR_POSITIONAL for p in parameters),
    }
