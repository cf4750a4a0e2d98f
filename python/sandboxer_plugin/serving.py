"""The loop: a frame in, a call, a frame out."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Optional, Tuple

from . import calls, loading, paths, results, roles, session, streams, wire
from .failures import failure, from_exception, log
from .wire import RpcError

PROTOCOL = 1

Run = Callable[[Dict[str, Any], bytes], results.Answer]


def main() -> int:
    """Serves standard input until it ends."""
    pipes = streams.take_over()
    server = Server(pipes.sink_fd)
    streams.watch_for_the_end(pipes.source_fd, lambda: server.patience_seconds)
    try:
        return server.serve(wire.Reader(pipes.source))
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130


class Server:
    """One plugin and its connection."""

    def __init__(self, sink_fd: int) -> None:
        self.patience_seconds = 60.0
        self._sink_fd = sink_fd
        self._writing = threading.Lock()
        self._calls: Dict[str, calls.Call] = {}
        self._role = roles.STRATEGY
        self._is_initialized = False
        self._pool: Optional[ThreadPoolExecutor] = None

    def serve(self, reader: wire.Reader) -> int:
        """Answers until the input ends; calls that are under way are finished first."""
        try:
            while True:
                frame = reader.next()
                if frame is None:
                    return 0
                self._receive(frame)
        except wire.FrameError as error:
            self._send_error(None, RpcError(wire.PARSE_ERROR, f"no frame: {error}"))
            return 1
        finally:
            if self._pool is not None:
                self._pool.shutdown(wait=True)

    def _receive(self, frame: wire.Frame) -> None:
        request_id = None
        try:
            request = wire.parse(frame.message)
            method, request_id = _envelope(request)
            if "id" not in request:
                return
            params = request.get("params", {})
            if type(params) is not dict:
                raise RpcError(wire.INVALID_PARAMS, "params must be an object")
            run = self._initialize if method == "initialize" else self._find(method)
        except RpcError as error:
            return self._send_error(request_id, error)
        if self._pool is None or method == "initialize":
            self._run(request_id, method, run, params, frame.attachment)
        else:
            self._pool.submit(self._run_in_pool, request_id, method, run, params, frame.attachment)

    def _find(self, method: str) -> Run:
        if method not in self._role.calls:
            raise RpcError(wire.UNKNOWN_METHOD, f"no method {paths.readable(method)!r}")
        call = self._calls.get(method)
        if call is None:
            raise RpcError(wire.INVALID_REQUEST, f"{method} before initialize has made a plugin that has it")
        return call

    def _run_in_pool(self, *call: Any) -> None:
        try:
            self._run(*call)
        except BaseException as error:
            # Nobody reads the answers any more, or none can be made: whoever waits for one is told by the end of this process.
            log(error)
            os._exit(1)

    def _run(self, request_id: Any, method: str, run: Run, params: Dict[str, Any], content: bytes) -> None:
        try:
            answer = run(params, content)
            message = _message(method, request_id, answer.result)
        except BaseException as error:
            return self._send_error(request_id, from_exception(error, method))
        self._send(message, answer.attachment)

    def _send(self, message: bytes, attachment: Optional[memoryview] = None) -> None:
        with self._writing:
            wire.send(self._sink_fd, message, attachment)

    def _send_error(self, request_id: Any, error: RpcError) -> None:
        answer = {"jsonrpc": "2.0", "id": request_id}
        try:
            message = wire.to_bytes({**answer, "error": error.to_json()})
        except (TypeError, ValueError, RecursionError, MemoryError) as broken:
            reason = failure(f"an error that cannot be sent: {broken}")
            message = wire.to_bytes({**answer, "error": reason.to_json()})
        self._send(message)

    def _initialize(self, params: Dict[str, Any], _content: bytes) -> results.Answer:
        if self._is_initialized:
            raise RpcError(wire.INVALID_REQUEST, "initialize was called before")
        self._role = _role(params)
        self.patience_seconds = _number(params, "timeout_ms", 60_000) / 1000
        session._set_state_directory(_state(params))
        options = params.get("options") or {}
        if type(options) is not dict:
            raise RpcError(wire.INVALID_PARAMS, "options must be an object")
        loading.look_in(params.get("modules"))
        loaded = loading.load(_text(params, "module"), _text(params, "class"), options, self._role)
        return results.Answer(self._adopt(loaded))

    def _adopt(self, loaded: loading.Loaded) -> Dict[str, Any]:
        at_once = loading.concurrency(loaded)
        description = {
            "protocol": PROTOCOL,
            "role": self._role.name,
            "methods": loaded.methods,
            "capabilities": None if self._role.capabilities is None else loading.capabilities(loaded),
            "summary": paths.readable(loading.summary(loaded)),
            "concurrency": at_once,
        }
        wire.to_bytes(description)
        self._calls = calls.of(loaded, self._role)
        self._is_initialized = True
        if at_once > 1:
            self._pool = ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="call")
        return description


def _envelope(request: Any) -> Tuple[str, Any]:
    """The method and the id of a request."""
    if type(request) is not dict or request.get("jsonrpc") != "2.0":
        raise RpcError(wire.INVALID_REQUEST, "the message is no JSON-RPC 2.0 request")
    method, request_id = request.get("method"), request.get("id")
    if type(method) is not str or type(request_id) not in (int, str, type(None)):
        raise RpcError(wire.INVALID_REQUEST, "a request has a method and an id")
    if type(request_id) is str and paths.readable(request_id) != request_id:
        raise RpcError(wire.INVALID_REQUEST, "the id is no text")
    return method, request_id


def _role(params: Dict[str, Any]) -> roles.Role:
    """What the plugin is to be, in a version of the protocol that is spoken here."""
    for name, known in (("protocol", [PROTOCOL]), ("role", list(roles.BY_NAME))):
        if params.get(name) not in known:
            spoken = " or ".join(repr(word) for word in known)
            raise failure(f"{name} {params.get(name)!r} is not spoken here, only {spoken}", "unsupported", what=name)
    return roles.BY_NAME[params["role"]]


def _message(method: str, request_id: Any, result: Any) -> bytes:
    try:
        return wire.to_bytes({"jsonrpc": "2.0", "id": request_id, "result": result})
    except (TypeError, ValueError, RecursionError) as error:
        log(error)
        doubt = calls.IN_DOUBT if method == "commit" else ""
        raise failure(f"{method}: the result cannot be sent: {error}{doubt}") from None


def _text(params: Dict[str, Any], name: str) -> str:
    value = params.get(name)
    if type(value) is not str or not value:
        raise RpcError(wire.INVALID_PARAMS, f"{name} must be text")
    return value


def _number(params: Dict[str, Any], name: str, default: int) -> int:
    value = params.get(name, default)
    if type(value) is not int or value < 0:
        raise RpcError(wire.INVALID_PARAMS, f"{name} must be a number")
    return value


def _state(params: Dict[str, Any]) -> str:
    try:
        return paths.decode(params.get("state", ""))
    except ValueError as error:
        raise RpcError(wire.INVALID_PARAMS, f"state: {error}") from None
