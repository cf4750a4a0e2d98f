"""The example of one page, through its whole life."""

import os
import shutil
from pathlib import Path

from .client import EXAMPLES, HostCase


class Minimal(HostCase):
    def setUp(self):
        super().setUp()
        self.original, self.scratch = Path(self.directory, "original"), Path(self.directory, "scratch")
        (self.original / "sub").mkdir(parents=True)
        self.scratch.mkdir()
        for name in ("a", "b", "sub/c"):
            (self.original / name).write_text(name)
        self.host = self.start(PYTHONPATH=str(EXAMPLES / "minimal"))
        answer = self.host.initialize(module="minimal", **{"class": "MinimalStrategy"}).result
        self.assertTrue(answer["capabilities"]["file_tree"])
        resource = {"id": "r", "type": "fs-directory", "location": str(self.original),
                    "properties": {"scratch": str(self.scratch)}}
        created = self.host.call("create", {"plan_id": "p", "resource": resource}).result
        self.metadata = {**created["metadata"], "scratch": str(self.scratch)}
        self.tree = Path(self.metadata["path"])

    def on(self, method, content=None, **params):
        return self.host.on(method, content, self.metadata, **params)

    def kinds(self):
        return {entry["path"]: entry["kind"] for entry in self.on("diff").result["entries"]}

    def snapshot(self):
        return {str(path.relative_to(self.original)): path.read_text() for path in self.original.rglob("*") if path.is_file()}

    def test_it_fits_on_one_page(self):
        self.assertLess(len((EXAMPLES / "minimal" / "minimal.py").read_text().splitlines()), 60)

    def test_a_whole_life(self):
        self.assertEqual(self.metadata["path"], str(self.scratch / "tree"))
        self.assertEqual(self.metadata["base"], str(self.original))
        before = self.snapshot()
        self.assertEqual(self.on("read", path="sub/c").attachment, b"sub/c")
        self.assertEqual(self.on("write", b"new", path="x/y").result["kind"], "created")
        self.on("write", b"other", path="a").result
        shutil.rmtree(self.tree / "sub")
        self.assertEqual(self.kinds(), {"a": "modified", "sub": "deleted", "sub/c": "deleted", "x": "created", "x/y": "created"})
        self.assertEqual(self.snapshot(), before)
        committed = self.on("commit", request={}).result
        self.assertEqual(len(committed["entries"]), 5)
        self.assertEqual(self.snapshot(), {"a": "other", "b": "b", "x/y": "new"})
        self.assertFalse((self.original / "sub").exists())
        self.assertEqual(self.kinds(), {})
        self.assertIsNone(self.on("cleanup").result)
        self.assertIsNone(self.on("cleanup").result)

    def test_checkpoints_and_rollback(self):
        self.on("write", b"1", path="a").result
        for name in ("one", "../one"):
            self.assertIsNone(self.on("checkpoint", checkpoint_id=name).result)
        self.on("write", b"2", path="a").result
        (self.tree / "b").unlink()
        restored = self.on("restore_checkpoint", checkpoint_id="one").result
        self.assertEqual((restored["restored_files"], restored["checkpoint_id"]), (2, "one"))
        self.assertEqual(self.kinds(), {"a": "modified"})
        self.assertEqual(self.on("restore_checkpoint", checkpoint_id="two").error["data"]["what"], "checkpoint")
        self.assertEqual(self.on("rollback").result["restored_files"], 1)
        self.assertEqual(self.kinds(), {})
        self.assertEqual(sorted(os.listdir(self.directory)), ["log", "original", "scratch"])

    def test_it_refuses_to_commit_over_what_changed_meanwhile(self):
        self.on("write", b"ours", path="a").result
        self.on("write", b"ours", path="b").result
        (self.original / "a").write_text("theirs")
        (self.original / "sub/c").write_text("theirs")
        reply = self.on("commit", request={})
        self.assertEqual(reply.kind, "conflict")
        self.assertEqual([conflict["path"] for conflict in reply.error["data"]["conflicts"]], ["a"])
        self.assertEqual(self.snapshot(), {"a": "theirs", "b": "b", "sub/c": "theirs"})
        (self.original / "a").write_text("a")
        self.on("commit", request={}).result
        self.assertEqual(self.snapshot(), {"a": "ours", "b": "ours", "sub/c": "theirs"})

    def test_a_commit_that_was_interrupted_is_finished_by_another(self):
        self.on("write", b"ours", path="a").result
        self.on("write", b"ours", path="b").result
        (self.original / "a").write_text("ours")
        self.on("commit", request={}).result
        self.assertEqual((self.snapshot()["a"], self.snapshot()["b"]), ("ours", "ours"))
        self.assertEqual(self.kinds(), {})

    def test_links_lead_nowhere_and_are_committed_as_links(self):
        secret = Path(self.directory, "secret")
        secret.write_text("secret")
        (self.tree / "link").symlink_to(secret)
        (self.tree / "up").symlink_to("..")
        for path in ("link", "up/base/a"):
            self.assertEqual(self.on("read", path=path).kind, "refused")
            self.assertEqual(self.on("write", b"x", path=path).kind, "refused")
        self.on("commit", request={}).result
        self.assertEqual(os.readlink(self.original / "link"), str(secret))
        self.assertEqual(secret.read_text(), "secret")

    def test_a_pipe_is_never_committed(self):
        os.mkfifo(self.tree / "pipe")
        self.on("write", b"ours", path="a").result
        reply = self.on("commit", request={})
        self.assertEqual((reply.kind, reply.error["data"]["entries"][0]["path"]), ("uncommittable", "pipe"))
        self.assertEqual(self.snapshot()["a"], "a")
