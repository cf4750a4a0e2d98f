"""What the tests of the container strategy share: a docker daemon of their own, with an image of busybox and nothing else."""

from __future__ import annotations

import atexit
import ctypes
import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
import uuid
from pathlib import Path
from typing import Any, Dict, List, Optional

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "python")]

from container_snapshot import ContainerStrategy  # noqa: E402
from sandboxer_plugin import CommitRequest, Resource, SandboxRef  # noqa: E402

PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"
# Debian's own client comes first: what stands before it on the PATH may belong to another daemon.
DOCKER = shutil.which("docker", path="/usr/bin:" + PATH)
DOCKERD, BUSYBOX = shutil.which("dockerd", path=PATH), shutil.which("busybox", path="/bin:" + PATH)
IMAGE = "busybox:test"
PATIENCE = 60
TERMINATE_WITH_PARENT = 1


class Daemon:
    """dockerd with everything it keeps in one directory, without network, ended with this process."""

    _only: Optional["Daemon"] = None

    @classmethod
    def get(cls) -> "Daemon":
        """The one daemon of this process; the reason why there is none skips the test."""
        if os.geteuid() != 0:
            raise unittest.SkipTest("dockerd needs root")
        for program, package, found in (("docker", "docker.io", DOCKER), ("dockerd", "docker.io", DOCKERD),
                                        ("busybox", "busybox-static", BUSYBOX)):
            if found is None:
                raise unittest.SkipTest(f"{program} is not installed (Debian package {package})")
        if cls._only is None:
            cls._only = cls()
        return cls._only

    def __init__(self) -> None:
        # A socket's path has to be short.
        self.home = Path(tempfile.mkdtemp(prefix="sbx-docker-", dir="/tmp"))
        self.host = f"unix://{self.home}/sock"
        self.cgroup = f"sandboxer-test-{os.getpid()}"
        self.process: Optional["subprocess.Popen[bytes]"] = None
        atexit.register(self.stop)
        for driver in ("overlay2", "vfs"):
            if self._start(driver):
                break
        else:
            raise unittest.SkipTest(f"dockerd does not start here: {self._last_words()}")
        self.docker("import", "-", IMAGE, input=_root_of_busybox())

    def _start(self, driver: str) -> bool:
        config = self.home / "daemon.json"
        config.write_text("{}")
        own = [f"--config-file={config}", f"--host={self.host}", f"--data-root={self.home}/data",
               f"--exec-root={self.home}/exec", f"--pidfile={self.home}/pid", f"--cgroup-parent=/{self.cgroup}"]
        network = ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false"]
        with open(self.home / "log", "wb") as log:
            self.process = subprocess.Popen([DOCKERD, *own, *network, f"--storage-driver={driver}"], stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, env={**os.environ, "PATH": PATH}, preexec_fn=_end_with_parent)
        deadline = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < deadline:
            if self.docker("version", check=False).returncode == 0:
                return True
            time.sleep(0.1)
        self._end()
        return False

    def docker(self, *arguments: str, check: bool = True, input: Optional[bytes] = None) -> "subprocess.CompletedProcess[bytes]":
        """Runs the client against this daemon and no other."""
        done = subprocess.run([DOCKER, "-H", self.host, *arguments], input=input or b"", capture_output=True, timeout=PATIENCE)
        if check and done.returncode != 0:
            raise AssertionError(f"docker {' '.join(arguments)}: {done.stderr.decode(errors='replace')}")
        return done

    def stop(self) -> None:
        """Ends the daemon, its containers with it, and removes its directory."""
        self._end()
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in sorted((m for m in mounts if m.startswith(f"{self.home}/")), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=False)
        shutil.rmtree(self.home, ignore_errors=True)
        for group in Path("/sys/fs/cgroup").glob(f"**/{self.cgroup}"):
            group.rmdir()

    def _end(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def _last_words(self) -> str:
        lines = (self.home / "log").read_text(errors="replace").splitlines()
        return next((line for line in reversed(lines) if line.strip()), "it said nothing")


class ContainerCase(unittest.TestCase):
    """A running container with a few files, and a strategy for the daemon that has it."""

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = Daemon.get()

    def setUp(self) -> None:
        self.strategy = ContainerStrategy(command=DOCKER, host=self.daemon.host)
        self.scratch = tempfile.mkdtemp(prefix="sbx-scratch-")
        self.addCleanup(shutil.rmtree, self.scratch)
        self.refs: List[SandboxRef] = []
        self.name = self.run_original()
        self.addCleanup(self.remove_all)

    def run_original(self, *options: str) -> str:
        name = "original-" + uuid.uuid4().hex[:12]
        self.daemon.docker("run", "--detach", "--init=false", f"--name={name}", "--network=none", *options, IMAGE, "sleep", "100000")
        return name

    def remove_all(self) -> None:
        for ref in self.refs:
            self.strategy.cleanup(ref)
        self.daemon.docker("rm", "--force", "--volumes", self.name, check=False)

    def create(self, plan: str = "pln_1") -> SandboxRef:
        scratch = os.path.join(self.scratch, "ws_" + uuid.uuid4().hex)
        os.mkdir(scratch)
        location = f"docker://{self.name}"
        resource = Resource("url:" + location, "container", location, {"scratch": scratch})
        made = self.strategy.create(plan, resource)
        # The host adds the directory that it gave.
        ref = SandboxRef(plan, resource.id, metadata={**made.metadata, "scratch": scratch})
        self.refs.append(ref)
        return ref

    def commit(self, ref: SandboxRef) -> Any:
        return self.strategy.commit(ref, CommitRequest())

    def sh(self, container: str, script: str, check: bool = True) -> str:
        return self.daemon.docker("exec", container, "sh", "-c", script, check=check).stdout.decode()

    def original(self, script: str) -> str:
        return self.sh(self.name, script)

    def inside(self, ref: SandboxRef, script: str) -> str:
        return self.sh(ref.metadata["container"], script)

    def files(self, container: Optional[str] = None) -> Dict[str, str]:
        """What is below /srv in a container, as its own processes see it."""
        listing = self.sh(container or self.name, "cd /srv && find . -type f -exec sha256sum {} + ; find . -type l -o -type d")
        return {line.split()[-1]: line.split()[0] for line in listing.splitlines()}

    def differences(self, ref: SandboxRef) -> Dict[str, str]:
        return {entry.path: entry.kind for entry in self.strategy.diff(ref).entries}

    def leftovers(self) -> List[str]:
        """Every container but the original, and every image but the one all began with, by name: docker lists by time."""
        containers = self.daemon.docker("ps", "--all", "--format={{.Names}}").stdout.decode().split()
        images = self.daemon.docker("images", "--all", "--format={{.Repository}}:{{.Tag}}").stdout.decode().split()
        volumes = self.daemon.docker("volume", "ls", "--quiet").stdout.decode().split()
        return sorted(name for name in containers + images + volumes if name not in (self.name, IMAGE))


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(TERMINATE_WITH_PARENT, signal.SIGTERM)


def _root_of_busybox() -> bytes:
    """A root directory with one static program under many names, and a few files below /srv."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for directory in ("bin", "tmp", "srv", "srv/dir", "srv/dir/deep", "etc"):
            member = tarfile.TarInfo(directory)
            member.type, member.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(member)
        program = archive.gettarinfo(BUSYBOX, "bin/busybox")
        with open(BUSYBOX, "rb") as file:
            archive.addfile(program, file)
        for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, check=True).stdout.decode().split():
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            if name != "busybox":
                archive.addfile(link)
        for path, content in (("a.txt", b"one\ntwo\n"), ("dir/b.txt", b"b\n"), ("dir/deep/c.txt", b"c\n"), ("blob", b"\0\1")):
            member = tarfile.TarInfo(f"srv/{path}")
            member.size, member.mode, member.uid = len(content), 0o640, 7
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()
