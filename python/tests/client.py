"""The host's side, for tests: starts `host.py` as the real host does and speaks to it over pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

HERE = Path(__file__).resolve().parent
SHIM = HERE.parent / "host.py"
EXAMPLES = HERE.parent.parent / "examples" / "strategies"

# All nine methods, each doing next to nothing.
WHOLE = """
    def create(self, plan_id, resource):
        return {"metadata": {"path": resource.get("scratch")}}
    def read(self, ref, path):
        return path.encode("utf-8", "surrogateescape")
    def write(self, ref, path, content):
        return None
    def diff(self, ref):
        return []
    def commit(self, ref, request):
        return None
    def rollback(self, ref):
        return None
    def checkpoint(self, ref, checkpoint_id):
        return None
    def restore_checkpoint(self, ref, checkpoint_id):
        return None
    def cleanup(self, ref):
        return None
"""

REF = {"plan_id": "pln_1", "resource_id": "path:/r", "strategy_name": "mine", "metadata": {}}


class Reply(NamedTuple):
    """An answer and its attachment."""

    message: Dict[str, Any]
    attachment: bytes

    @property
    def result(self) -> Any:
        assert "error" not in self.message, self.message
        return self.message["result"]

    @property
    def error(self) -> Dict[str, Any]:
        assert "error" in self.message, self.message
        return self.message["error"]

    @property
    def kind(self) -> str:
        return self.error["data"]["kind"]


class Host:
    """A process of the shim."""

    def __init__(self, directory: str, **environment: str) -> None:
        self.log_path = os.path.join(directory, "log")
        self._log = open(self.log_path, "wb")
        self.process = subprocess.Popen(
            [sys.executable, str(SHIM)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log,
            env={**os.environ, "PYTHONPATH": directory, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        )
        self._id = 0
        # A shim that hangs fails its test; it does not hold it up.
        self._guard = threading.Timer(120, self.process.kill)
        self._guard.start()

    def close(self) -> None:
        self._guard.cancel()
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._log):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def send_raw(self, data: bytes) -> None:
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, params: Any = None, content: Optional[bytes] = None) -> int:
        self._id += 1
        request = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}}
        self.send_raw(frame(json.dumps(request).encode(), content))
        return self._id

    def receive(self) -> Reply:
        lengths = {}
        for line in iter(self.process.stdout.readline, b"\r\n"):
            assert line, "the shim closed its output:\n" + self.log()
            name, _, value = line.partition(b":")
            lengths[name.lower()] = int(value)
        message = json.loads(self.process.stdout.read(lengths[b"content-length"]))
        return Reply(message, self.process.stdout.read(lengths.get(b"attachment-length", 0)))

    def call(self, method: str, params: Any = None, content: Optional[bytes] = None) -> Reply:
        sent = self.send(method, params, content)
        reply = self.receive()
        assert reply.message["id"] == sent, reply.message
        return reply

    def on(self, method: str, content: Optional[bytes] = None, metadata: Any = None, **params: Any) -> Reply:
        """A call with a ref."""
        return self.call(method, {"ref": {**REF, "metadata": metadata or {}}, **params}, content)

    def initialize(self, **params: Any) -> Reply:
        usual = {"protocol": 1, "role": "strategy", "name": "mine", "module": "mine", "class": "Mine", "options": {}}
        return self.call("initialize", {**usual, "state": "/state", "timeout_ms": 60_000, **params})

    def end(self) -> int:
        """Closes the input and waits for the exit status."""
        self.process.stdin.close()
        return self.process.wait(timeout=60)

    def log(self) -> str:
        return Path(self.log_path).read_text(errors="replace")


def frame(message: bytes, content: Optional[bytes] = None) -> bytes:
    attached = b"" if content is None else b"Attachment-Length: %d\r\n" % len(content)
    return b"Content-Length: %d\r\n%s\r\n%s%s" % (len(message), attached, message, content or b"")


class HostCase(unittest.TestCase):
    """A test with a directory of its own for plugins and for a process of the shim."""

    def setUp(self) -> None:
        self.directory = tempfile.mkdtemp(prefix="sandboxer-python-")
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)

    def module(self, source: str, name: str = "mine") -> None:
        Path(self.directory, name + ".py").write_text(textwrap.dedent(source), encoding="utf-8")

    def start(self, **environment: str) -> Host:
        host = Host(self.directory, **environment)
        self.addCleanup(host.close)
        return host

    def whole(self, more: str = "", head: str = "", **params: Any) -> Host:
        """A host whose strategy has all nine methods, some of them replaced by `more`."""
        body = WHOLE + textwrap.indent(textwrap.dedent(more), "    ")
        self.module(textwrap.dedent(head) + "\nclass Mine:\n" + body)
        host = self.start()
        host.initialize(**params).result
        return host
