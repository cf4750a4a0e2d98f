"""The helpers that strategies use without a host."""

import os
import shutil
import tempfile
import unittest
from pathlib import Path

from sandboxer_plugin import (
    Capabilities, Change, DiffEntry, NotFound, Refused, Resource, SandboxRef, paths, results, text_diff, trees,
)


class Models(unittest.TestCase):
    def test_refs_and_resources_are_read_like_dicts(self):
        ref = SandboxRef("p", "r", "s", {"path": "/x", "plan_id": "hidden"})
        self.assertEqual((ref["plan_id"], ref["path"], ref.get("path"), ref.get("no", 3)), ("p", "/x", "/x", 3))
        self.assertTrue("path" in ref and "no" not in ref)
        with self.assertRaises(KeyError):
            ref["no"]
        resource = Resource("i", "t", "/l", {"scratch": "/s"})
        self.assertEqual((resource["location"], resource["scratch"], resource.scratch), ("/l", "/s", "/s"))
        self.assertEqual((ref.scope, ref.range), ([], None))
        whole = {"plan_id": "p", "resource_id": "r", "strategy_name": "s", "metadata": ref.metadata, "path": "/x"}
        self.assertEqual((dict(ref), set(ref)), (whole, set(whole)))

    def test_paths_keep_every_byte(self):
        for name in (b"plain/\xc3\xa9", b"bad\xff\xfe", b"base64:not", b"new\nline"):
            text = paths.encode(os.fsdecode(name))
            text.encode("utf-8")
            self.assertEqual(os.fsencode(paths.decode_relative(text)), name)
            self.assertEqual(text.startswith("base64:"), name in (b"bad\xff\xfe", b"base64:not"))

    def test_the_least_a_strategy_can_do(self):
        self.assertEqual(Capabilities(file_tree=True), Capabilities(isolates=True, checkpoints=True, file_tree=True))


class TextDiff(unittest.TestCase):
    def text(self, old, new, path="d/f"):
        return text_diff(path, old, new).text

    def test_patches_have_the_form_of_the_built_in_ones(self):
        self.assertEqual(self.text(None, b"hello\n"), "--- /dev/null\n+++ b/d/f\n@@ -0,0 +1 @@\n+hello\n")
        self.assertEqual(self.text(b"hello\n", None), "--- a/d/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n")
        self.assertEqual(
            self.text(b"a\nb\n", b"a\nc"),
            "--- a/d/f\n+++ b/d/f\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n",
        )
        self.assertTrue(self.text(b"", b"x\n", "a b").startswith("--- a/a b\t\n+++ b/a b\t\n"))

    def test_lines_end_at_newlines_alone(self):
        self.assertIn("\n+a\x0b\u2028b\r\n", self.text(b"", "a\x0b\u2028b\r\n".encode()))

    def test_both_sides_are_described(self):
        entry = text_diff("f", b"a", b"bc")
        self.assertEqual((entry.kind, entry.binary, entry.old.size, entry.new.size), ("modified", False, 1, 2))
        self.assertTrue(entry.new.digest.startswith("sha256:") and entry.new.digest != entry.old.digest)
        self.assertEqual((text_diff("f", None, b"").kind, text_diff("f", b"", None).kind), ("created", "deleted"))
        self.assertIsNone(text_diff("f", b"a", b"a"))
        self.assertIsNone(text_diff("f", None, None))

    def test_binary_and_very_long_contents_have_no_text(self):
        entry = text_diff("f", b"a", b"\0")
        self.assertEqual((entry.binary, entry.text), (True, None))
        self.assertIsNone(self.text(b"", b"x\n" * (1 << 20)))


class Trees(unittest.TestCase):
    def setUp(self):
        self.root = Path(tempfile.mkdtemp(prefix="sandboxer-trees-"))
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.old, self.new = self.root / "old", self.root / "new"
        self.old.mkdir()
        self.new.mkdir()

    def kinds(self):
        return {entry.path: entry.kind for entry in trees.compare(str(self.old), str(self.new))}

    def test_read_and_write_follow_no_link(self):
        outside = self.root / "secret"
        outside.write_text("secret")
        (self.new / "link").symlink_to(outside)
        (self.new / "out").symlink_to(self.root)
        root = str(self.new)
        for path in ("link", "out/secret", "../secret", "/etc/passwd", "", "a/../../secret"):
            with self.assertRaises(Refused, msg=path):
                trees.read(root, path)
            with self.assertRaises(Refused, msg=path):
                trees.write(root, path, b"x")
        self.assertEqual(outside.read_text(), "secret")

    def test_write_says_what_it_did_and_keeps_the_mode(self):
        self.assertEqual(trees.write(str(self.new), "a/b/c", b"xy"), Change("a/b/c", "created", 2))
        (self.new / "a/b/c").chmod(0o750)
        self.assertEqual(trees.write(str(self.new), "a/b/c", b"x"), Change("a/b/c", "modified", 1, 2))
        self.assertEqual(trees.read(str(self.new), "a/b/c"), b"x")
        self.assertEqual((self.new / "a/b/c").stat().st_mode & 0o777, 0o750)
        self.assertEqual(os.listdir(self.new / "a/b"), ["c"])

    def test_what_is_not_there_or_no_file(self):
        with self.assertRaises(NotFound):
            trees.read(str(self.new), "no/such")
        os.mkfifo(self.new / "pipe")
        with self.assertRaises(Refused):
            trees.read(str(self.new), "pipe")
        with self.assertRaises(Refused):
            trees.write(str(self.new), "pipe", b"")

    def test_every_kind_of_difference_is_seen_and_made_even(self):
        for name in ("same", "changed", "gone", "mode", "to_dir", "dir_gone/x", "to_link"):
            for root in (self.old, self.new):
                (root / name).parent.mkdir(exist_ok=True)
                (root / name).write_text("content")
        (self.old / "to_file").mkdir()
        (self.old / "to_file/below").write_text("x")
        (self.new / "changed").write_text("other")
        (self.new / "mode").chmod(0o700)
        shutil.rmtree(self.new / "dir_gone")
        for name in ("gone", "to_dir", "to_link"):
            (self.new / name).unlink()
        (self.new / "to_dir").mkdir()
        (self.new / "to_dir/in").write_text("x")
        (self.new / "to_link").symlink_to("/nowhere")
        (self.new / "to_file").write_text("x")
        (self.new / "empty").mkdir(mode=0o711)
        (self.new / os.fsdecode(b"odd\xff")).write_text("x")
        self.assertEqual(self.kinds(), {
            "changed": "modified", "gone": "deleted", "mode": "metadata", "to_dir": "type", "to_dir/in": "created",
            "dir_gone": "deleted", "dir_gone/x": "deleted", "to_link": "type", "to_file": "type",
            "to_file/below": "deleted", "empty": "created", os.fsdecode(b"odd\xff"): "created",
        })
        self.assertEqual(trees.mirror(str(self.new), str(self.old)), 12)
        self.assertEqual(self.kinds(), {})
        self.assertEqual((self.old / "empty").stat().st_mode & 0o777, 0o711)

    def test_pipes_are_seen_and_never_copied(self):
        os.mkfifo(self.new / "pipe")
        entry, = trees.compare(str(self.old), str(self.new))
        self.assertEqual((entry.kind, entry.new.type, entry.refused), ("created", "fifo", "a fifo is never committed"))
        trees.mirror(str(self.new), str(self.old))
        self.assertEqual(os.listdir(self.old), [])
        trees.mirror(str(self.old), str(self.new))
        self.assertEqual(os.listdir(self.new), [])

    def test_powers_are_not_copied_out_and_are_within(self):
        for name in ("new", "rewritten", "touched"):
            (self.new / name).write_text("x")
            (self.new / name).chmod(0o6755)
        (self.old / "rewritten").write_text("y")
        (self.old / "rewritten").chmod(0o4755)
        (self.old / "touched").write_text("x")
        (self.old / "touched").chmod(0o6700)
        (self.new / "shared").mkdir()
        (self.new / "shared").chmod(0o2775)
        kept = self.root / "kept"
        trees.mirror(str(self.new), str(kept))
        self.assertEqual((kept / "new").stat().st_mode & 0o7777, 0o6755)
        notices = trees.apply(trees.compare(str(self.old), str(self.new)), str(self.new), str(self.old))
        self.assertEqual(
            [(notice.path, notice.message) for notice in notices],
            [(name, f"{bit} bit removed") for name in ("new", "rewritten") for bit in ("setuid", "setgid")],
        )
        modes = {name: (self.old / name).stat().st_mode & 0o7777 for name in ("new", "rewritten", "touched", "shared")}
        self.assertEqual(modes, {"new": 0o755, "rewritten": 0o755, "touched": 0o6755, "shared": 0o2775})

    def test_targets_that_are_no_text_are_told_apart(self):
        targets = (b"\xff", b"\xfe")
        for root, target in zip((self.old, self.new), targets):
            os.symlink(target, os.fsencode(root / "link"))
        entry, = trees.compare(str(self.old), str(self.new))
        self.assertEqual(entry.kind, "modified")
        sent = results.diff([entry]).result["entries"][0]
        self.assertEqual(sent["old"]["target"], sent["new"]["target"])
        self.assertNotEqual(sent["old"]["digest"], sent["new"]["digest"])

    def test_a_link_in_the_way_is_not_followed(self):
        (self.new / "d").mkdir()
        (self.new / "d/f").write_text("x")
        entries = [entry for entry in trees.compare(str(self.old), str(self.new)) if entry.path == "d/f"]
        outside = self.root / "outside"
        outside.mkdir()
        (self.old / "d").symlink_to(outside)
        with self.assertRaises(Refused):
            trees.apply(entries, str(self.new), str(self.old))
        self.assertEqual(os.listdir(outside), [])

    def test_overlaps_are_by_path_above_and_below(self):
        def overlaps(ours, theirs):
            return trees.overlaps(*([DiffEntry(path, kind, new=new) for path, kind, new in side] for side in (ours, theirs)))
        file, other, folder = trees.Node(size=1), trees.Node(size=2), trees.Node("directory")
        self.assertEqual(overlaps([("a", "modified", file)], [("a", "modified", other)]), ["a"])
        self.assertEqual(overlaps([("a", "modified", file)], [("a", "modified", file)]), [])
        self.assertEqual(overlaps([("d", "deleted", None)], [("d/new", "created", file)]), ["d"])
        self.assertEqual(overlaps([("d/x", "created", file)], [("d", "type", other)]), ["d/x"])
        self.assertEqual(overlaps([("d/x", "created", file)], [("d", "deleted", None)]), ["d/x"])
        self.assertEqual(overlaps([("d/x", "created", file)], [("d", "metadata", folder), ("d/y", "deleted", None)]), [])
