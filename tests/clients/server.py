"""A PostgreSQL server of the tests' own: private directory, private port, gone when Python ends."""

from __future__ import annotations

import atexit
import fcntl
import functools
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import unittest
from pathlib import Path

PATIENCE = 120
PASSWORD = "only-for-tests"
# The ports that `sandboxer_testkit::reserve_port` hands out, and its lock files.
PORTS = range(20_000, 30_000)
PORT_LOCKS = Path("/tmp/sandboxer-test-ports")
# What the server would ask for elsewhere, and what makes it quick where nothing has to last.
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "max_prepared_transactions": "10",
    "fsync": "off",
    "timezone": "UTC",
}


@functools.lru_cache(maxsize=None)
def programs() -> Path:
    """The directory with initdb, psql and the like, of the newest version there is."""
    found = [path.parent for path in Path("/usr/lib/postgresql").glob("*/bin/initdb")]
    if not found and shutil.which("initdb"):
        found = [Path(str(shutil.which("initdb"))).parent]
    if not found:
        raise unittest.SkipTest("PostgreSQL is missing (Debian package postgresql)")
    return max(found, key=lambda path: [int(part) for part in path.parent.name.split(".") if part.isdigit()])


class Server:
    """One that runs. Of root's it is another user's, because PostgreSQL refuses root."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="sandboxer-clients-"))
        atexit.register(self.stop)
        self.process: subprocess.Popen[bytes] | None = None
        self.user = unprivileged()
        if self.user:
            shutil.chown(self.directory, self.user)
        self._make()
        self._start()

    def url(self, database: str) -> str:
        return f"postgres://postgres:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _make(self) -> None:
        password = self.directory / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        words = ["-D", str(self.directory / "data"), "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"]
        words += ["--auth=scram-sha-256", f"--pwfile={password}"]
        self._run("initdb", *words)

    def _start(self) -> None:
        for _ in range(5):
            self.port = reserve_port()
            settings = {**SETTINGS, "port": str(self.port), "unix_socket_directories": str(self.directory)}
            words = [f"--{name}={value}" for name, value in settings.items()]
            command = [str(programs() / "postgres"), "-D", str(self.directory / "data"), *words]
            log = open(self.directory / "log", "ab")
            with log:
                self.process = subprocess.Popen(command, stdout=log, stderr=log, **self._as_user())
            if self._is_ready():
                return
        raise RuntimeError(f"postgres does not start:\n{(self.directory / 'log').read_text()}")

    def _is_ready(self) -> bool:
        """Whether it came up; another program may have taken the port meanwhile."""
        while self.process and self.process.poll() is None:
            ready = [str(programs() / "pg_isready"), "-q", "-h", str(self.directory), "-p", str(self.port), "-t", "5"]
            if subprocess.run(ready, timeout=PATIENCE).returncode == 0:
                return True
        return False

    def _run(self, program: str, *words: str) -> None:
        command = [str(programs() / program), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, **self._as_user())
        if done.returncode != 0:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")

    def _as_user(self) -> dict:
        user = {"user": self.user, "group": pwd.getpwnam(self.user).pw_gid, "extra_groups": []} if self.user else {}
        return {"cwd": self.directory, **user}

    def stop(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(PATIENCE)
        shutil.rmtree(self.directory, ignore_errors=True)


@functools.lru_cache(maxsize=None)
def server() -> Server:
    """The one that all tests of this process share; each test has a database of its own in it."""
    programs()
    # Told to end, Python ends in order, and what it started is cleaned up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    return Server()


def unprivileged() -> str | None:
    """Whom root runs a server as."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_name
        except KeyError:
            continue
    raise unittest.SkipTest("PostgreSQL does not run as root, and there is no user postgres or nobody")


def reserve_port() -> int:
    """Reserves a free port of 127.0.0.1 until Python ends, as `sandboxer_testkit::reserve_port` does for the tests in Rust."""
    try:
        PORT_LOCKS.mkdir()
        PORT_LOCKS.chmod(0o1777)
    except FileExistsError:
        pass
    start = os.getpid() % len(PORTS)
    for port in [*PORTS[start:], *PORTS[:start]]:
        if try_reserve(port):
            return port
    raise RuntimeError("no port on loopback is free")


def try_reserve(port: int) -> bool:
    try:
        lock = os.open(PORT_LOCKS / str(port), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    except OSError:
        # Another user's lock file cannot be opened: that port is taken.
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        os.close(lock)
        return False
    # The lock is held until Python ends: the descriptor stays open, and the server does not inherit it.
    return True
