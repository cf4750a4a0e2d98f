"""Extensions that make directories in the place of machines: an honest one, and some that do wrong. Each call is noted."""

import os
import shutil
import time

from sandboxer_plugin import Cost, Endpoint, Found, Handle, Health, NotReady, Ready, Refused, state_directory


def note(what):
    with open(os.path.join(state_directory(), "notes"), "a") as notes:
        notes.write(what + "\n")


class Directories:
    """A directory for each environment."""

    def __init__(self, ready_after_ms=0):
        self.ready_after_ms = ready_after_ms
        note("start")

    def provision(self, request):
        note("provision")
        os.makedirs(self.place(request.sandbox_id), exist_ok=True)
        return Handle({"place": self.place(request.sandbox_id)}, exec=["env"])

    def wait_ready(self, handle, deadline_ms):
        note("wait_ready")
        made = os.stat(handle["place"]).st_mtime
        until = time.monotonic() + deadline_ms / 1000
        while time.time() < made + self.ready_after_ms / 1000:
            if time.monotonic() > until:
                raise NotReady("the paint is still wet")
            time.sleep(0.01)
        return Ready([Endpoint("22/tcp", "127.0.0.1", 2222)])

    def teardown(self, sandbox_id, handle):
        note("teardown")
        shutil.rmtree(self.place(sandbox_id), ignore_errors=True)

    def inspect(self, sandbox_id):
        note("inspect")
        top = os.path.join(state_directory(), "made")
        names = sorted(os.listdir(top)) if os.path.isdir(top) else []
        return [Found(name, f"directory {name}") for name in names if sandbox_id in (None, name)]

    def place(self, sandbox_id):
        return os.path.join(state_directory(), "made", sandbox_id)


class Priced(Directories):
    def estimate_cost(self, request):
        return Cost(0.25, "EUR")

    def health(self):
        return Health("unhealthy", "the disk is\nfull")


class Broken:
    def provision(self): ...
    async def inspect(self, sandbox_id): ...
    def health(self, of): ...


class DiesHalfWay(Directories):
    def provision(self, request):
        super().provision(request)
        os._exit(7)


class Hangs(Directories):
    def wait_ready(self, handle, deadline_ms):
        time.sleep(3600)


class HangsInHealth(Directories):
    def health(self):
        time.sleep(3600)


class KeepsAll(Directories):
    """Says that it tore down."""

    def teardown(self, sandbox_id, handle):
        note("teardown")


class Remembers(Directories):
    """Knows what it made for as long as it lives."""

    made = {}

    def provision(self, request):
        self.made[request.sandbox_id] = True
        return super().provision(request)

    def inspect(self, sandbox_id):
        return [found for found in super().inspect(sandbox_id) if found.sandbox_id in self.made]


class MakesTwice(Directories):
    def provision(self, request):
        if os.path.isdir(self.place(request.sandbox_id)):
            os.makedirs(self.place(request.sandbox_id) + "-again", exist_ok=True)
        return super().provision(request)

    def teardown(self, sandbox_id, handle):
        super().teardown(sandbox_id + "-again", handle)
        super().teardown(sandbox_id, handle)

    def inspect(self, sandbox_id):
        found = super().inspect(None)
        names = [(entry.sandbox_id.partition("-again")[0], entry.what) for entry in found]
        return [Found(name, what) for name, what in names if sandbox_id in (None, name)]


class FindsOthers(Directories):
    def inspect(self, sandbox_id):
        return [Found("sbx_somebody_elses", "directory of somebody else's")]


class Refuses(Directories):
    def provision(self, request):
        raise Refused("no room", hint="drain something")
