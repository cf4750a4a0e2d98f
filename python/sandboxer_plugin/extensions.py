"""The role `extension`: what makes environments. The values, the protocol, and how they travel."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Protocol, Sequence, Union

from . import paths
from .errors import StrategyError
from .models import _Keyed
from .results import Answer, WrongResult, _fields, _listed, _readable, _wrong

Json = Dict[str, Any]


@dataclass(frozen=True)
class Mount:
    """One workspace, where it is on this machine, and where it is to appear inside; or what it borrows, only to be read."""

    workspace: str
    from_: str
    at: str
    read_only: bool = False


@dataclass(frozen=True)
class Provision(_Keyed):
    """What is to be made. Everything that is made is labelled with `sandbox_id`, so that it can be found without a handle."""

    sandbox_id: str
    name: str = ""
    profile_id: str = ""
    consumer: Mapping[str, Any] = field(default_factory=dict)
    host: str = "local"
    address: str = "local"
    isolation: str = "standard"
    network: Any = "none"
    resources: Mapping[str, Any] = field(default_factory=dict)
    reachability: Mapping[str, Any] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    options: Dict[str, Any] = field(default_factory=dict)
    labels: Dict[str, str] = field(default_factory=dict)

    _more = "options"


@dataclass(frozen=True)
class Handle(_Keyed):
    """What was made: enough to find it again in another process. `exec` is what to put before a command so that it runs inside,
    `exec_on_terminal` the same for one that has a terminal, where that makes a difference. `version` is that of `data`, your own affair; the host knows the sandbox's id."""

    data: Dict[str, Any] = field(default_factory=dict)
    version: int = 1
    exec: Sequence[str] = ()
    exec_on_terminal: Sequence[str] = ()
    sandbox_id: str = ""

    _more = "data"


@dataclass(frozen=True)
class Endpoint:
    """One way in: `Endpoint("8080/tcp", "127.0.0.1", 49153)`."""

    name: str
    host: str
    port: int


@dataclass(frozen=True)
class Ready:
    """What is known of an environment once it is ready."""

    endpoints: Sequence[Endpoint] = ()


@dataclass(frozen=True)
class Found:
    """Something of ours: whose it is by its label, what it is for a person, whether it works, when it was made (RFC 3339)."""

    sandbox_id: str
    what: str
    running: bool = True
    made_at: Optional[str] = None


@dataclass(frozen=True)
class Health:
    """Whether it can be used now: `healthy`, `limited` (it works, except for the reason), `unhealthy` or `undetected`. All but the first have a reason."""

    state: str = "healthy"
    reason: Optional[str] = None


@dataclass(frozen=True)
class Cost:
    """What an hour costs."""

    per_hour: float
    currency: Optional[str] = None


HEALTH_STATES = ("healthy", "limited", "unhealthy", "undetected")


class NotReady(StrategyError):
    """Not yet; what is missing. The host asks again while there is time: `NotReady("port 8080 does not answer")`."""

    kind = "not_ready"


class EnvironmentExtension(Protocol):
    """Makes environments, and takes them away. A class need not inherit from this: having the first four methods is enough.

    All calls may be repeated, by another process, after a crash at any instant of the first one. Wherever a model is returned, a
    dict with the same names does as well.
    """

    def provision(self, request: Provision) -> Union[Handle, Mapping[str, Any]]:
        """Makes it, or finds what an earlier call for the same sandbox made, and completes that."""
        raise NotImplementedError

    def wait_ready(self, handle: Handle, deadline_ms: int) -> Union[Ready, Mapping[str, Any], None]:
        """Waits until it can be used, for as long as that; then raises `NotReady`, and is asked again."""
        raise NotImplementedError

    def teardown(self, sandbox_id: str, handle: Optional[Handle]) -> None:
        """Removes everything that carries the sandbox's id, with or without a handle. Nothing there is fine."""
        raise NotImplementedError

    def inspect(self, sandbox_id: Optional[str]) -> Sequence[Union[Found, Mapping[str, Any]]]:
        """What there is of one sandbox, or, without an id, of all that carry our label."""
        raise NotImplementedError


class OptionalMethods(Protocol):
    """What an extension may have besides."""

    def estimate_cost(self, request: Provision) -> Union[Cost, Mapping[str, Any], None]:
        """What an hour of it costs, where its definition alone does not tell."""
        raise NotImplementedError

    def health(self) -> Union[Health, Mapping[str, Any], None]:
        """Whether it can be used now. Cheap."""
        raise NotImplementedError


# From the params of a request to what a method is called with.


def _known(value: Json, model: type) -> Json:
    """Without what a later version of the host may add."""
    return {name: part for name, part in value.items() if name in model.__dataclass_fields__}  # type: ignore[attr-defined]


def _request(params: Json, _content: bytes) -> Provision:
    fields = _known(params["request"], Provision)
    fields["mounts"] = [_mount(mount) for mount in fields.get("mounts", ())]
    return Provision(**fields)


def _mount(value: Json) -> Mount:
    places = (paths.decode(value["from"]), paths.decode(value["at"]))
    return Mount(value["workspace"], *places, read_only=value.get("read_only", False))


def _handle(params: Json, _content: bytes) -> Handle:
    return Handle(**_known(params["handle"], Handle))


def _handle_or_none(params: Json, _content: bytes) -> Optional[Handle]:
    return None if params.get("handle") is None else _handle(params, _content)


def _deadline(params: Json, _content: bytes) -> int:
    return int(params["deadline_ms"])


def _sandbox_id(params: Json, _content: bytes) -> str:
    if type(params["sandbox_id"]) is not str:
        raise ValueError("an id is text")
    return params["sandbox_id"]


def _sandbox_id_or_none(params: Json, _content: bytes) -> Optional[str]:
    return None if params.get("sandbox_id") is None else _sandbox_id(params, _content)


ARGUMENTS: Dict[str, List[Callable[[Json, bytes], Any]]] = {
    "provision": [_request],
    "wait_ready": [_handle, _deadline],
    "teardown": [_sandbox_id, _handle_or_none],
    "inspect": [_sandbox_id_or_none],
    "estimate_cost": [_request],
    "health": [],
}


# What methods return, checked and turned into JSON.


def _provisioned(value: Any) -> Answer:
    fields = _fields(value, Handle, "the result")
    prefixes = {name: _words(name, fields.get(name, ())) for name in ("exec", "exec_on_terminal")}
    if type(fields["version"]) is not int or fields["version"] < 0:
        raise _wrong("version", fields["version"], "a number")
    given = {name: part for name, part in fields.items() if part != ""}
    return Answer({**given, **prefixes})


def _words(name: str, words: Any) -> List[str]:
    if isinstance(words, (str, bytes)) or not all(isinstance(word, str) for word in words):
        raise _wrong(name, words, "a list of words")
    return list(words)


def _endpoint(value: Any, where: str) -> Json:
    fields = _fields(value, Endpoint, where)
    if type(fields["port"]) is not int or not 0 <= fields["port"] < 1 << 16:
        raise WrongResult(f"{where}.port is {fields['port']!r}, and no port")
    return fields


def _ready(value: Any) -> Answer:
    if value is None:
        return Answer(None)
    return Answer({"endpoints": _listed(_fields(value, Ready, "the result")["endpoints"], "endpoints", _endpoint)})


def _found(value: Any, where: str) -> Json:
    fields = _fields(value, Found, where)
    for name in ("sandbox_id", "what", "made_at"):
        _readable(fields, name, where)
    if type(fields["running"]) is not bool:
        raise _wrong(f"{where}.running", fields["running"], "true or false")
    return fields


def _cost(value: Any) -> Answer:
    return Answer(None if value is None else _fields(value, Cost, "the result"))


def _health(value: Any) -> Answer:
    if value is None:
        return Answer(None)
    fields = _fields(value, Health, "the result")
    _readable(fields, "reason", "the result")
    if fields["state"] not in HEALTH_STATES:
        raise WrongResult(f"the result.state is {fields['state']!r}, not one of {', '.join(HEALTH_STATES)}")
    if fields["state"] != "healthy":
        fields.setdefault("reason", "it does not say why")
    return Answer({"state": "healthy"} if fields["state"] == "healthy" else fields)


RESULTS: Dict[str, Callable[[Any], Answer]] = {
    "provision": _provisioned,
    "wait_ready": _ready,
    "teardown": lambda _value: Answer(None),
    "inspect": lambda value: Answer(_listed(value, "the result", _found)),
    "estimate_cost": _cost,
    "health": _health,
}

# With how many arguments each method is called.
CALLS = {name: (len(arguments),) for name, arguments in ARGUMENTS.items()}
OPTIONAL = frozenset({"estimate_cost", "health"})
