"""The life of a bucket's sandbox: isolation, differences, checkpoints, rollback, commit, cleanup."""

import unittest

from bucket_case import BucketCase

from sandboxer_plugin import NotFound, Refused, SandboxRef, Unavailable, Usage
from sandboxer_plugin.testing import Sandbox

BASE = {"a.txt": b"one\ntwo\n", "dir/b.txt": b"b\n", "blob.bin": b"\0\1\2"}


class Isolation(BucketCase):
    def test_writes_are_seen_in_the_sandbox_and_nowhere_else(self):
        ref = self.create()
        change = self.strategy.write(ref, "a.txt", b"changed\n")
        self.assertEqual((change.kind, change.old_size, change.new_size), ("modified", 8, 8))
        self.assertEqual(self.strategy.write(ref, "new/c.txt", b"c").kind, "created")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"changed\n")
        self.assertEqual(self.strategy.read(ref, "new/c.txt"), b"c")
        self.assertEqual(self.strategy.read(ref, "dir/b.txt"), b"b\n")
        self.assertEqual(self.content(), BASE)

    def test_reads_are_of_the_base_however_the_bucket_moves(self):
        ref = self.create()
        self.put("a.txt", b"later")
        self.put("later.txt", b"later")
        self.s3.delete_object(Bucket=self.bucket, Key="dir/b.txt")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"one\ntwo\n")
        self.assertEqual(self.strategy.read(ref, "dir/b.txt"), b"b\n")
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "later.txt")
        self.assertEqual(self.differences(ref), {})

    def test_sandboxes_do_not_see_one_another(self):
        first, second = self.create(plan="pln_1"), self.create(plan="pln_2")
        self.strategy.write(first, "a.txt", b"first")
        self.commit(first)
        third = self.create(plan="pln_3")
        self.assertEqual(self.strategy.read(second, "a.txt"), b"one\ntwo\n")
        self.assertEqual(self.strategy.read(third, "a.txt"), b"first")

    def test_a_prefix_is_a_resource_of_its_own(self):
        ref = self.create("dir")
        self.assertEqual(self.strategy.read(ref, "b.txt"), b"b\n")
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "a.txt")
        self.strategy.write(ref, "a.txt", b"below")
        self.commit(ref)
        self.assertEqual(self.content(), {**BASE, "dir/a.txt": b"below"})

    def test_the_staging_area_is_no_content(self):
        other = self.create(plan="pln_other")
        self.strategy.write(other, "a.txt", b"staged")
        staged = [key for key, _ in self.versions() if key.startswith(".sandboxer/")]
        ref = self.create()
        for attempt in (lambda: self.strategy.read(ref, staged[0]), lambda: self.strategy.write(ref, staged[0], b"x"),
                        lambda: self.create(".sandboxer/pln_other")):
            with self.assertRaises(Refused):
                attempt()

    def test_ranges_end_with_the_content(self):
        ref = self.create()
        self.strategy.write(ref, "new.txt", b"0123456789")
        for path, offset, length, expected in [("new.txt", 0, 4, b"0123"), ("new.txt", 8, 4, b"89"), ("new.txt", 10, 4, b""),
                                               ("new.txt", 3, 0, b""), ("a.txt", 4, 100, b"two\n")]:
            part = self.with_metadata(ref, range={"offset": offset, "length": length})
            self.assertEqual(self.strategy.read(part, path), expected)

    def test_another_process_goes_on_with_the_same_ref(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"kept")
        self.strategy.checkpoint(ref, "cp_1")
        self.strategy = self.new_strategy()
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"kept")
        self.strategy.restore_checkpoint(ref, "cp_1")
        self.commit(ref)
        self.assertEqual(self.content()["a.txt"], b"kept")

    def test_a_key_may_be_longer_than_its_staging_could_be(self):
        ref = self.create()
        longest = "k" * 1024
        self.strategy.write(ref, longest, b"x")
        self.commit(ref)
        self.assertEqual(self.content()[longest], b"x")
        with self.assertRaises(Refused):
            self.strategy.write(ref, longest + "k", b"x")
        with self.assertRaises(Refused):
            self.strategy.write(ref, "\udcff", b"x")


class OverJson(BucketCase):
    def test_a_life_as_the_host_leads_it(self):
        before = self.versions()
        with Sandbox(self.strategy, f"s3://{self.bucket}") as sandbox:
            self.assertEqual(sandbox.write("a.txt", b"1")["kind"], "modified")
            sandbox.checkpoint("cp")
            sandbox.write("dir/new.txt", b"2")
            self.assertEqual([entry["path"] for entry in sandbox.diff()], ["a.txt", "dir/new.txt"])
            self.assertEqual(sandbox.rollback(["dir"])["restored_files"], 1)
            self.assertTrue(sandbox.restore_checkpoint("cp")["success"])
            self.assertEqual(sandbox.read("dir/b.txt", 0, 1), b"b")
            self.assertEqual(sandbox.commit(paths=["a.txt"])["entries"][0]["new"]["size"], 1)
        self.assertEqual(self.content(), {**BASE, "a.txt": b"1"})
        self.assertEqual(len(self.versions()), len(before) + 1)


class Refusals(BucketCase):
    versioned = False

    def test_a_bucket_without_versions_is_refused_and_left_alone(self):
        before = self.versions()
        with self.assertRaisesRegex(Unavailable, "versioning is not enabled"):
            self.create()
        self.assertEqual(self.versions(), before)

    def test_suspended_versioning_is_refused_too(self):
        for status in ("Enabled", "Suspended"):
            self.s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": status})
        with self.assertRaises(Unavailable):
            self.create()

    def test_objects_from_before_versioning_are_isolated_as_well(self):
        self.s3.put_bucket_versioning(Bucket=self.bucket, VersioningConfiguration={"Status": "Enabled"})
        ref = self.create()
        self.put("a.txt", b"later")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"one\ntwo\n")

    def test_other_locations_are_refused(self):
        for location in ("s3://", "http://bucket", "s3://user:secret@bucket", "s3://bucket?x=1"):
            with self.assertRaises(Usage) as caught:
                self.strategy.create("pln_1", type("R", (), {"location": location, "id": "", "properties": {}}))
            self.assertNotIn("secret", str(caught.exception))

    def test_a_bucket_that_does_not_exist_is_not_found(self):
        self.bucket = "nowhere-to-be-found"
        with self.assertRaises(NotFound):
            self.create()


class Differences(BucketCase):
    def test_text_is_a_patch_and_binary_is_size_and_digest(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"one\nthree\n")
        self.strategy.write(ref, "blob.bin", b"\0\1\2\3")
        self.strategy.write(ref, "new.txt", b"no newline")
        text, binary, new = self.strategy.diff(ref).entries
        self.assertEqual(text.text, "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n")
        self.assertEqual((binary.kind, binary.binary, binary.text), ("modified", True, None))
        self.assertEqual((binary.old.size, binary.new.size), (3, 4))
        self.assertTrue(binary.new.digest.startswith("sha256:"))
        self.assertEqual((new.kind, new.old), ("created", None))

    def test_the_digest_follows_the_content_and_nothing_else(self):
        ref = self.create()
        self.strategy.write(ref, "blob.bin", b"\0one")
        first = self.strategy.diff(ref).entries
        self.strategy.write(ref, "blob.bin", b"\0two")
        second = self.strategy.diff(ref).entries
        self.strategy.write(ref, "blob.bin", b"\0one")
        self.assertNotEqual(first[0].new, second[0].new)
        self.assertEqual(self.strategy.diff(ref).entries, first)

    def test_what_is_written_as_it_was_is_no_difference(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"other")
        self.strategy.write(ref, "a.txt", b"one\ntwo\n")
        self.assertEqual(self.differences(ref), {})

    def test_an_entry_says_that_the_original_has_moved(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"mine")
        self.strategy.write(ref, "blob.bin", b"mine")
        self.put("a.txt", b"theirs")
        self.assertEqual([entry.moved for entry in self.strategy.diff(ref).entries], [True, False])


class Checkpoints(BucketCase):
    def test_states_come_back_in_any_order(self):
        ref = self.create()
        self.strategy.checkpoint(ref, "empty")
        self.strategy.write(ref, "a.txt", b"1")
        self.strategy.checkpoint(ref, "one")
        self.strategy.write(ref, "a.txt", b"2")
        self.strategy.write(ref, "new.txt", b"2")
        self.strategy.checkpoint(ref, "two")
        for name, expected in [("one", {"a.txt": "modified"}), ("two", {"a.txt": "modified", "new.txt": "created"}),
                               ("empty", {}), ("two", {"a.txt": "modified", "new.txt": "created"})]:
            result = self.strategy.restore_checkpoint(ref, name)
            self.assertEqual((result.success, result.checkpoint_id), (True, name))
            self.assertEqual(self.differences(ref), expected)
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"2")
        self.strategy.restore_checkpoint(ref, "one")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"1")
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "new.txt")

    def test_a_name_that_exists_is_replaced_and_one_that_does_not_is_an_error(self):
        ref = self.create()
        for content in (b"1", b"2"):
            self.strategy.write(ref, "a.txt", content)
            self.strategy.checkpoint(ref, "cp")
        self.strategy.rollback(ref)
        self.strategy.restore_checkpoint(ref, "cp")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"2")
        with self.assertRaises(NotFound):
            self.strategy.restore_checkpoint(ref, "other")

    def test_a_state_from_before_a_commit_comes_back_as_differences_from_it(self):
        ref = self.create()
        self.strategy.checkpoint(ref, "before")
        self.strategy.write(ref, "a.txt", b"committed")
        self.strategy.write(ref, "new.txt", b"committed")
        self.commit(ref)
        self.strategy.restore_checkpoint(ref, "before")
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"one\ntwo\n")
        self.assertEqual(self.differences(ref), {"a.txt": "modified", "new.txt": "deleted"})
        self.assertEqual(self.content()["a.txt"], b"committed")
        self.commit(ref)
        self.assertEqual(self.content(), BASE)
        self.assertEqual(self.differences(ref), {})

    def test_what_nothing_refers_to_is_not_kept(self):
        ref = self.create()
        for number in range(5):
            self.strategy.write(ref, "a.txt", str(number).encode())
        self.strategy.checkpoint(ref, "cp")
        self.strategy.write(ref, "a.txt", b"last")
        blobs = [key for key, _ in self.versions() if "/blob/" in key]
        self.assertEqual(len(blobs), 2)
        documents = [key for key, _ in self.versions() if key.endswith(("/state", "/base"))]
        self.assertEqual(len(documents), 2)


class Rollback(BucketCase):
    def test_everything_is_thrown_away(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"1")
        self.strategy.write(ref, "new.txt", b"1")
        self.assertEqual(self.strategy.rollback(ref).restored_files, 2)
        self.assertEqual(self.differences(ref), {})
        self.assertEqual(self.strategy.read(ref, "a.txt"), b"one\ntwo\n")
        self.assertEqual(self.strategy.rollback(ref).restored_files, 0)

    def test_a_scope_limits_it(self):
        ref = self.create()
        for path in ("dir/b.txt", "dir2", "a.txt"):
            self.strategy.write(ref, path, b"1")
        self.strategy.rollback(self.with_metadata(ref, scope=["dir"]))
        self.assertEqual(self.differences(ref), {"dir2": "created", "a.txt": "modified"})


class Cleanup(BucketCase):
    def test_nothing_is_left_in_any_version(self):
        before = self.versions()
        ref = self.create()
        for content in (b"1", b"2"):
            self.strategy.write(ref, "a.txt", content)
            self.strategy.checkpoint(ref, "cp")
        self.strategy.cleanup(ref)
        self.assertEqual(self.versions(), before)
        self.strategy.cleanup(ref)
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "a.txt")

    def test_only_one_sandbox_is_removed(self):
        first, second = self.create(), self.create()
        self.strategy.write(second, "a.txt", b"kept")
        self.strategy.cleanup(first)
        self.assertEqual(self.strategy.read(second, "a.txt"), b"kept")

    def test_a_create_that_was_cut_short_leaves_nothing(self):
        before = self.versions()
        scratch = "/scratch/ws_1"
        resource = type("R", (), {"location": f"s3://{self.bucket}", "id": f"url:s3://{self.bucket}",
                                  "properties": {"scratch": scratch}})
        self.strategy.create("pln_1", resource)
        self.assertNotEqual(self.versions(), before)
        self.strategy.cleanup(SandboxRef("pln_1", resource.id, metadata={"scratch": scratch}))
        self.assertEqual(self.versions(), before)

    def test_a_bucket_that_is_gone_is_no_error(self):
        self.bucket, kept = self.new_bucket(), self.bucket
        ref = self.create()
        self.strategy.cleanup(ref)
        self.s3.delete_bucket(Bucket=self.bucket)
        self.bucket = kept
        self.strategy.cleanup(ref)

    def test_a_staging_bucket_need_not_have_versions(self):
        staging = self.new_bucket(versioned=False)
        self.strategy = self.new_strategy(staging=f"s3://{staging}")
        before = self.versions()
        ref = self.create()
        for content in (b"1", b"2"):
            self.strategy.write(ref, "a.txt", content)
        self.assertEqual(self.versions(), before)
        self.strategy.checkpoint(ref, "cp")
        self.strategy.rollback(ref)
        self.strategy.restore_checkpoint(ref, "cp")
        self.commit(ref)
        self.assertEqual(self.content(), {**BASE, "a.txt": b"2"})
        self.strategy.cleanup(ref)
        self.assertEqual(self.versions(staging), [])

    def test_a_staging_area_in_the_bucket_needs_a_prefix(self):
        with self.assertRaises(Usage):
            self.create(strategy=self.new_strategy(staging=f"s3://{self.bucket}"))


if __name__ == "__main__":
    unittest.main()
