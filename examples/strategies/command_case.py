"""For the tests of every example: the command `sandbox`, with a state directory and a configuration of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("SANDBOXER_BINARY") or ROOT / "target" / "debug" / "sandbox")
PATIENCE = 300


class Command:
    """Runs `sandbox` with one strategy of one example registered, by this Python."""

    def __init__(self, test: unittest.TestCase, example: Path, name: str, entry: Dict[str, Any]) -> None:
        if not BINARY.exists():
            raise unittest.SkipTest(f"{BINARY} is not built (cargo build)")
        directory = tempfile.mkdtemp(prefix="sandboxer-example-")
        test.addCleanup(shutil.rmtree, directory)
        self.home = Path(directory, "home")
        self.config = Path(directory, "config.yaml")
        types = Path(directory, "resource-types")
        types.mkdir()
        for file in example.glob("*.yaml"):
            shutil.copy(file, types)
        env = {"PYTHONPATH": str(example), **entry.pop("env", {})}
        custom = {name: {"python": sys.executable, "env": env, "timeout": "4m", **entry}}
        # JSON is YAML.
        self.config.write_text(json.dumps({"sandbox": {"custom_strategies": custom}}))

    def run(self, *words: str, content: bytes = b"", code: int = 0) -> bytes:
        """What it prints; an exit code other than `code` is a failure."""
        command = [str(BINARY), "--home", str(self.home), "--config", str(self.config), *words]
        done = subprocess.run(command, input=content, capture_output=True, timeout=PATIENCE)
        if done.returncode != code:
            raise AssertionError(f"sandbox {' '.join(words)}: exit {done.returncode}\n{done.stdout!r}\n{done.stderr.decode(errors='replace')}")
        return done.stdout if code == 0 else done.stderr

    def json(self, *words: str) -> Any:
        """The document that it prints."""
        return json.loads(self.run("--json", *words))

    def is_clean(self) -> bool:
        """Whether nothing of a sandbox is left in the state directory."""
        return not list(self.home.glob("scratch/ws_*")) and not list(self.home.glob("sandboxes/*"))
