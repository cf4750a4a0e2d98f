"""The driver for tests of strategies."""

import os
import sys
import tempfile
import unittest
from pathlib import Path

from sandboxer_plugin import Conflicts, testing

from .client import EXAMPLES


class Driver(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(EXAMPLES / "minimal"))
        self.addCleanup(sys.path.remove, str(EXAMPLES / "minimal"))
        from minimal import MinimalStrategy
        self.strategy = MinimalStrategy()
        place = tempfile.TemporaryDirectory(prefix="sandboxer-driver-")
        self.addCleanup(place.cleanup)
        self.original = Path(place.name)
        (self.original / "a").write_text("old")

    def test_a_whole_life_without_a_host(self):
        with testing.Sandbox(self.strategy, str(self.original)) as sandbox:
            sandbox.write("a", b"new")
            sandbox.checkpoint("one")
            sandbox.rollback()
            self.assertEqual((sandbox.read("a"), sandbox.diff()), (b"old", []))
            sandbox.restore_checkpoint("one")
            self.assertEqual([entry["kind"] for entry in sandbox.diff()], ["modified"])
            sandbox.commit()
            self.assertEqual((self.original / "a").read_text(), "new")
            sandbox.write("a", b"newer")
            (self.original / "a").write_text("theirs")
            with self.assertRaises(Conflicts):
                sandbox.commit()
        self.assertFalse(os.path.exists(sandbox.scratch))

    def test_what_cannot_be_a_strategy_is_named(self):
        with self.assertRaisesRegex(TypeError, "object cannot be called: create, read"):
            testing.Sandbox(object(), "/")
