"""The API against its own description: requests that it allows and requests that it forbids, made up by schemathesis."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

try:
    import schemathesis  # noqa: F401
except ImportError as missing:
    raise unittest.SkipTest(f"{missing.name} is missing (tests/api/requirements.txt)") from None

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("SANDBOXER_BINARY") or ROOT / "target" / "debug" / "sandbox")
PATIENCE = 300
CONSUMER = {"actor_type": "agt", "project": "web"}

if not BINARY.exists():
    raise unittest.SkipTest(f"{BINARY} is not built (cargo build)")

# Every request is about a sandbox that is there; what ends one has its own.
CONFIGURATION = """
[parameters]
"path.id" = "try"
"path.name" = "kept"

[[operations]]
include-operation-id = "destroy_sandbox"
parameters = { "path.id" = "doomed" }
"""

# What is left out, and why.
EXCLUDED = [
    # What the schema allows need not exist: a profile, a checkpoint, a place that the token is for.
    "--exclude-checks=positive_data_acceptance",
    # Asked for as a stream they never end; as pages they are tested by tests/it/serve/api.rs.
    "--exclude-operation-id=events",
    "--exclude-operation-id=sandbox_events",
]


class Description(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        (self.root / "project").mkdir()
        (self.root / "project" / "file.txt").write_text("hello\n")
        (self.root / "user").mkdir()
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": str(self.root / "user"), "SANDBOXER_HOME": str(self.root / "home"),
        }
        made = self.sandbox("token", "create", "--principal", "tester", "--project", "web", "--scope", "commit",
                            "--scope", "admin", "--resource", str(self.root / "project"), "--json")
        self.token = json.loads(made)["text"]

    def sandbox(self, *arguments):
        ran = subprocess.run([BINARY, *arguments], env=self.environment, cwd=self.root, capture_output=True,
                             text=True, timeout=PATIENCE, check=False)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    @contextlib.contextmanager
    def served(self):
        log = self.root / "log"
        with log.open("w") as errors:
            server = subprocess.Popen([BINARY, "serve", "--listen", "tcp:127.0.0.1:0"], env=self.environment,
                                      cwd=self.root, stderr=errors)
        try:
            deadline = time.monotonic() + PATIENCE
            while not (found := re.search(r"listening on tcp:([0-9.:]+)", log.read_text())):
                self.assertIsNone(server.poll(), log.read_text())
                self.assertLess(time.monotonic(), deadline, "the server does not listen")
                time.sleep(0.01)
            yield f"http://{found[1]}", log
        finally:
            server.terminate()
            server.wait(PATIENCE)
            self.clear()

    def clear(self):
        listed = json.loads(self.sandbox("list", "--json"))
        for one in listed["sandboxes"]:
            self.sandbox("destroy", one["sandbox_id"], "--discard")

    def post(self, address, document):
        request = urllib.request.Request(address, json.dumps(document).encode(), {
            "Authorization": f"Bearer {self.token}", "Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)

    def test_every_answer_is_one_that_is_described(self):
        with self.served() as (address, log):
            for name in ["try", "doomed"]:
                self.post(f"{address}/v1/sandboxes", {
                    "profile": "profile.local", "name": name, "consumer": CONSUMER,
                    "inputs": {"repo": str(self.root / "project")}})
            self.post(f"{address}/v1/sandboxes/try/checkpoints", {"name": "kept"})
            (self.root / "schemathesis.toml").write_text(CONFIGURATION)
            ran = subprocess.run(
                [Path(sys.executable).parent / "schemathesis", "--config-file=schemathesis.toml", "--no-color", "run",
                 f"{address}/openapi.json", f"--header=Authorization: Bearer {self.token}", "--checks=all",
                 "--phases=examples,coverage,fuzzing", "--max-examples=15", "--seed=1", "--workers=1",
                 "--continue-on-failure", "--request-timeout=60", *EXCLUDED],
                cwd=self.root, env={**self.environment, "HYPOTHESIS_STORAGE_DIRECTORY": str(self.root / "hypothesis")},
                capture_output=True, text=True, timeout=PATIENCE, check=False)
            said = ran.stdout + ran.stderr
            self.assertEqual(ran.returncode, 0, said)
            # Not one of nothing: every operation but those that are left out was asked.
            tested = re.search(r"Tested: (\d+)", said)
            self.assertIsNotNone(tested, said)
            self.assertGreaterEqual(int(tested[1]), 24, said)
            self.assertGreaterEqual(int(re.search(r"(\d+) generated", said)[1]), 300, said)
            self.assertNotIn(self.token, log.read_text())


if __name__ == "__main__":
    unittest.main()
