"""docker or podman by their command line. Knows containers and images, and nothing of sandboxes."""

from __future__ import annotations

import json
import re
import subprocess
import tarfile
from contextlib import contextmanager
from typing import Any, Dict, Iterable, Iterator, List, Optional, Set, Tuple

from sandboxer_plugin import Failed, NotFound, Unavailable

_ABSENT = re.compile(r"no such container:path|could not find the file|not a directory|no such file or directory"
                     r"|could not be found", re.IGNORECASE)
_NO_OBJECT = re.compile(r"no such (object|container|image)|no container with name", re.IGNORECASE)


class Engine:
    """One container engine, reached by its client program."""

    def __init__(self, command: str, host: Optional[str]) -> None:
        flag = "--url" if command.rsplit("/", 1)[-1].startswith("podman") else "-H"
        self._command = [command, *([flag, host] if host else [])]

    def inspect(self, name: str) -> Dict[str, Any]:
        """Everything the engine knows of one container."""
        done = self._run("container", "inspect", name, check=False)
        if done.returncode != 0:
            if _NO_OBJECT.search(_words(done)):
                raise NotFound("container", name)
            raise Unavailable(f"cannot inspect container {name}: {_words(done)}")
        return json.loads(done.stdout)[0]

    def existing(self, *containers: str) -> Set[str]:
        """Which of some containers, given by their ids, there are."""
        done = self._run("container", "inspect", "--format={{.Id}}", *containers, check=False)
        if done.returncode != 0 and not _NO_OBJECT.search(_words(done)):
            raise Unavailable(f"cannot inspect containers: {_words(done)}")
        return set(done.stdout.split())

    def snapshot(self, container: str, tag: str, labels: Dict[str, str]) -> str:
        """Makes an image of a container, which stands still meanwhile; the image's id."""
        changes = [f"--change=LABEL {json.dumps(key)}={json.dumps(value)}" for key, value in labels.items()]
        return self._text("commit", "--pause=true", *changes, container, tag)

    def size(self, image: str) -> int:
        """How many bytes an image has."""
        return int(self._text("image", "inspect", "--format={{.Size}}", image))

    def make(self, image: str, labels: Dict[str, str], *options: str) -> str:
        """Makes a container without starting it; its id."""
        flags = [f"--label={key}={value}" for key, value in labels.items()]
        return self._text("create", *flags, *options, image)

    def start(self, container: str) -> None:
        """Starts what was made."""
        self._run("start", container)

    def rename(self, container: str, name: str) -> None:
        """Gives a container another name."""
        self._run("rename", container, name)

    def remove(self, *containers: str) -> None:
        """Ends and removes containers with their anonymous volumes; one that is gone already is no error."""
        for container in containers:
            done = self._run("rm", "--force", "--volumes", container, check=False)
            if done.returncode != 0 and not _NO_OBJECT.search(_words(done)):
                raise Failed(f"cannot remove container {container}: {_words(done)}")

    def labelled(self, label: str) -> Tuple[List[str], List[str]]:
        """The ids of all containers and of all images with that label."""
        chosen = ("--quiet", "--no-trunc", f"--filter=label={label}")
        return self._text("ps", "--all", *chosen).split(), sorted(set(self._text("images", "--all", *chosen).split()))

    def remove_images(self, images: Iterable[str]) -> None:
        """Removes images, whichever of them are built on others."""
        left = list(images)
        while left:
            kept = [image for image in left if self._run("rmi", "--force", image, check=False).returncode != 0]
            kept = [image for image in kept if self._run("image", "inspect", image, check=False).returncode == 0]
            if len(kept) == len(left):
                raise Failed(f"cannot remove image {kept[0]}: {_words(self._run('rmi', kept[0], check=False))}")
            left = kept

    def changed(self, container: str) -> List[str]:
        """The paths at which a container differs from its image, without the leading slash."""
        lines = self._text("diff", container).splitlines()
        return [line[2:].lstrip("/") for line in lines if line[:2] in ("A ", "C ", "D ") and line[2:] != "/"]

    def execute(self, container: str, *command: str) -> None:
        """Runs a command as root in a running container."""
        self._run("exec", "--user=0", container, *command)

    @contextmanager
    def archive(self, container: str, path: str) -> Iterator[Optional[tarfile.TarFile]]:
        """What lies at a path, as a stream that may be left early; `None` where nothing does. The last name of the path
        is never followed, be it a link."""
        with self._streamed("cp", f"{container}:/{path}", "-") as archive:
            yield archive

    @contextmanager
    def export(self, container: str) -> Iterator[Optional[tarfile.TarFile]]:
        """All files of a container, volumes aside."""
        with self._streamed("export", container) as archive:
            yield archive

    @contextmanager
    def _streamed(self, *arguments: str) -> Iterator[Optional[tarfile.TarFile]]:
        process = self._start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            yield self._opened(process, " ".join(arguments))
        finally:
            process.kill()
            process.communicate()

    @staticmethod
    def _opened(process: "subprocess.Popen[bytes]", what: str) -> Optional[tarfile.TarFile]:
        try:
            return tarfile.open(fileobj=process.stdout, mode="r|", errorlevel=2)
        except tarfile.ReadError:
            words = process.stderr.read().decode(errors="replace").strip()
            if not _ABSENT.search(words):
                raise Failed(f"{what}: {words}") from None
            return None

    @contextmanager
    def unpack(self, container: str) -> Iterator[tarfile.TarFile]:
        """An archive to be filled; it is unpacked at the container's root, owners kept."""
        process = self._start("cp", "--archive", "-", f"{container}:/", stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            with tarfile.open(fileobj=process.stdin, mode="w|", format=tarfile.PAX_FORMAT) as archive:
                yield archive
        except BrokenPipeError:
            # Why it stopped reading is on its standard error.
            pass
        except BaseException:
            process.kill()
            raise
        finally:
            _, words = process.communicate()
        if process.returncode != 0:
            raise Failed(f"cannot write to container {container}: {words.decode(errors='replace').strip()}")

    def _text(self, *arguments: str) -> str:
        return self._run(*arguments).stdout.strip()

    def _run(self, *arguments: str, check: bool = True) -> "subprocess.CompletedProcess[str]":
        process = self._start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        stdout, stderr = (part.decode(errors="surrogateescape") for part in process.communicate())
        done = subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)
        if check and done.returncode != 0:
            raise Failed(f"{self._command[0]} {arguments[0]}: {_words(done)}")
        return done

    def _start(self, *arguments: str, **pipes: Any) -> "subprocess.Popen[bytes]":
        try:
            return subprocess.Popen([*self._command, *arguments], **{"stdin": subprocess.DEVNULL, **pipes})
        except OSError as error:
            raise Unavailable(f"cannot run {self._command[0]}: {error.strerror}") from None


def _words(done: "subprocess.CompletedProcess[str]") -> str:
    return done.stderr.strip() or f"exit status {done.returncode}"
