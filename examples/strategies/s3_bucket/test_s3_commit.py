"""What a bucket's commit promises: all or nothing, never over somebody else's change, and back again."""

import unittest

from bucket_case import BucketCase

from sandboxer_plugin import CommitRequest, Conflicts, Failed, NotFound, Unavailable, Unsupported

BASE = {"a.txt": b"one\ntwo\n", "dir/b.txt": b"b\n", "blob.bin": b"\0\1\2"}


class Killed(BaseException):
    """Nothing that runs afterwards in this process may catch it."""


class Commit(BucketCase):
    def test_the_committed_state_is_the_base(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"1")
        self.strategy.write(ref, "new.txt", b"1")
        result = self.commit(ref)
        self.assertEqual([entry.path for entry in result.entries], ["a.txt", "new.txt"])
        self.assertEqual(self.content(), {**BASE, "a.txt": b"1", "new.txt": b"1"})
        self.assertEqual(self.differences(ref), {})
        self.strategy.write(ref, "a.txt", b"2")
        self.commit(ref)
        self.assertEqual(self.content()["a.txt"], b"2")

    def test_paths_are_selected(self):
        ref = self.create()
        for path in ("dir/b.txt", "dir/c.txt", "dirt"):
            self.strategy.write(ref, path, b"1")
        self.commit(ref, "dir")
        self.assertEqual(self.content(), {**BASE, "dir/b.txt": b"1", "dir/c.txt": b"1"})
        self.assertEqual(self.differences(ref), {"dirt": "created"})

    def test_what_belongs_to_an_object_stays_with_it(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"1")
        self.commit(ref)
        head = self.s3.head_object(Bucket=self.bucket, Key="a.txt")
        self.assertEqual((head["ContentType"], head["Metadata"]), ("text/plain", {"owner": "ops"}))
        tags = self.s3.get_object_tagging(Bucket=self.bucket, Key="a.txt")["TagSet"]
        self.assertEqual(tags, [{"Key": "keep", "Value": "yes"}])

    def test_what_is_not_implemented_is_said(self):
        ref = self.create()
        for request in (CommitRequest(on_conflict="theirs"), CommitRequest(phase="prepare")):
            with self.assertRaises(Unsupported):
                self.strategy.commit(ref, request)


class Conflicting(BucketCase):
    def refused(self, ref, *paths):
        """Asserts that a commit is refused over exactly those paths, and changes nothing."""
        content, versions = self.content(), [v for v in self.versions() if not v[0].startswith(".sandboxer/")]
        with self.assertRaises(Conflicts) as caught:
            self.commit(ref)
        self.assertEqual([conflict.path for conflict in caught.exception.conflicts], list(paths))
        self.assertEqual(self.content(), content)
        self.assertEqual([v for v in self.versions() if not v[0].startswith(".sandboxer/")], versions)

    def test_the_first_committer_wins(self):
        first, second = self.create(plan="pln_1"), self.create(plan="pln_2")
        for ref, content in ((first, b"first"), (second, b"second")):
            self.strategy.write(ref, "a.txt", content)
            self.strategy.write(ref, content.decode(), content)
        self.commit(first)
        self.refused(second, "a.txt")
        self.assertEqual(self.strategy.read(second, "a.txt"), b"second")
        self.commit(second, "second")
        self.assertEqual(self.content(), {**BASE, "a.txt": b"first", "first": b"first", "second": b"second"})

    def test_creation_and_deletion_by_others_are_conflicts(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"mine")
        self.strategy.write(ref, "new.txt", b"mine")
        self.s3.delete_object(Bucket=self.bucket, Key="a.txt")
        self.put("new.txt", b"theirs")
        self.refused(ref, "a.txt", "new.txt")

    def test_what_others_do_elsewhere_is_no_conflict(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"mine")
        self.put("blob.bin", b"theirs")
        self.put("a.txt.bak", b"theirs")
        self.commit(ref)
        self.assertEqual(self.content(), {**BASE, "a.txt": b"mine", "blob.bin": b"theirs", "a.txt.bak": b"theirs"})

    def test_a_change_between_the_look_and_the_copy_is_not_hidden(self):
        ref = self.create()
        for path in ("a.txt", "blob.bin"):
            self.strategy.write(ref, path, b"mine")
        theirs = []
        self.on("CopyObject", lambda: theirs or theirs.append(self.put("blob.bin", b"theirs")))
        with self.assertRaises(Conflicts) as caught:
            self.commit(ref)
        self.assertEqual([conflict.path for conflict in caught.exception.conflicts], ["blob.bin"])
        self.assertEqual(self.content(), {**BASE, "blob.bin": b"theirs"})
        self.assertEqual(self.differences(ref), {"a.txt": "modified", "blob.bin": "modified"})


class Failing(BucketCase):
    def fail_on(self, number, error):
        """Lets the copies before that one through, and fails it and those after it, until told otherwise."""
        calls = []

        def act():
            calls.append(1)
            if self.failing and len(calls) >= number:
                raise error
        self.failing = True
        self.on("CopyObject", act)

    def staged(self):
        ref = self.create()
        for path in ("a.txt", "blob.bin", "dir/b.txt", "new.txt"):
            self.strategy.write(ref, path, b"mine")
        return ref

    def test_a_promotion_that_fails_in_the_middle_leaves_the_old_versions(self):
        ref = self.staged()
        before = [v for v in self.versions() if not v[0].startswith(".sandboxer/")]
        self.fail_on(3, Failed("the network is gone"))
        with self.assertRaises(Failed):
            self.commit(ref)
        self.assertEqual(self.content(), BASE)
        self.assertEqual([v for v in self.versions() if not v[0].startswith(".sandboxer/")], before)
        self.assertEqual(len(self.differences(ref)), 4)
        self.failing = False
        self.commit(ref)
        self.assertEqual(self.content(), {path: b"mine" for path in (*BASE, "new.txt")})

    def test_a_process_killed_in_a_commit_is_taken_back_by_the_next(self):
        for number in (1, 2, 4):
            with self.subTest(number):
                self.setUp()
                ref = self.staged()
                before = [v for v in self.versions() if not v[0].startswith(".sandboxer/")]
                self.fail_on(number, Killed())
                with self.assertRaises(Killed):
                    self.commit(ref)
                self.strategy = self.new_strategy()
                self.assertEqual(len(self.differences(ref)), 4)
                self.assertEqual([v for v in self.versions() if not v[0].startswith(".sandboxer/")], before)
                self.commit(ref)
                self.assertEqual(self.content()["new.txt"], b"mine")

    def test_a_cleanup_after_a_killed_commit_takes_it_back_too(self):
        before = self.versions()
        ref = self.staged()
        self.fail_on(3, Killed())
        with self.assertRaises(Killed):
            self.commit(ref)
        self.assertNotEqual(self.content(), BASE)
        self.new_strategy().cleanup(ref)
        self.assertEqual(self.versions(), before)

    def test_an_answer_that_never_came_is_taken_back_as_well(self):
        ref = self.staged()
        events, calls = self.strategy._client.meta.events, []

        def lose(**_):
            calls.append(1)
            if len(calls) == 2:
                raise Failed("the answer is lost")
        events.register("after-call.s3.CopyObject", lose)
        with self.assertRaises(Failed):
            self.commit(ref)
        self.assertEqual(self.content(), BASE)

    def test_no_error_tells_a_credential(self):
        ref = self.create()
        unreachable = self.new_strategy(endpoint="http://127.0.0.1:1")
        with self.assertRaises(Unavailable) as caught:
            unreachable.read(ref, "a.txt")
        self.assertNotIn("a-secret-nobody-may-see", str(caught.exception))
        self.assertNotIn("AKIAEXAMPLE", str(caught.exception))


class Undo(BucketCase):
    def committed(self):
        ref = self.create()
        self.strategy.write(ref, "a.txt", b"mine")
        self.strategy.write(ref, "new.txt", b"mine")
        self.before = [v for v in self.versions() if not v[0].startswith(".sandboxer/")]
        self.commit(ref, operation="op_1")
        return ref

    def test_the_versions_from_before_are_the_newest_again(self):
        ref = self.committed()
        result = self.commit(ref, operation="op_2", undo="op_1")
        self.assertEqual({entry.path: entry.kind for entry in result.entries}, {"a.txt": "modified", "new.txt": "deleted"})
        self.assertEqual(self.content(), BASE)
        self.assertEqual([v for v in self.versions() if not v[0].startswith(".sandboxer/")], self.before)
        self.assertEqual(self.differences(ref), {"a.txt": "modified", "new.txt": "created"})

    def test_an_undo_can_be_taken_back_and_so_on(self):
        ref = self.committed()
        after = self.content()
        for number in range(2, 6):
            self.commit(ref, operation=f"op_{number}", undo=f"op_{number - 1}")
            self.assertEqual(self.content(), BASE if number % 2 == 0 else after)
            self.assertEqual(len(self.differences(ref)), 2 if number % 2 == 0 else 0)

    def test_what_was_changed_on_top_is_a_conflict(self):
        ref = self.committed()
        self.put("new.txt", b"theirs")
        with self.assertRaises(Conflicts):
            self.commit(ref, operation="op_2", undo="op_1")
        self.assertEqual(self.content(), {**BASE, "a.txt": b"mine", "new.txt": b"theirs"})

    def test_an_undo_that_failed_in_the_middle_is_repeated(self):
        ref = self.committed()
        calls = []

        def act():
            calls.append(1)
            if len(calls) == 2:
                raise Failed("the network is gone")
        self.on("DeleteObject", act)
        with self.assertRaises(Failed):
            self.commit(ref, operation="op_2", undo="op_1")
        self.commit(ref, operation="op_3", undo="op_1")
        self.assertEqual(self.content(), BASE)

    def test_an_unknown_operation_is_not_found(self):
        with self.assertRaises(NotFound):
            self.commit(self.create(), undo="op_9")


if __name__ == "__main__":
    unittest.main()
