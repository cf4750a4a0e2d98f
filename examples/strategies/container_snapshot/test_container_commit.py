"""What a container's commit promises: all or nothing, and never over somebody else's change."""

import unittest
from contextlib import contextmanager
from unittest import mock

from container_case import ContainerCase
from container_engine import Engine

from sandboxer_plugin import Conflicts, Failed, NotFound, Refused, Uncommittable

CHANGES = """echo 1 > /srv/a.txt; chmod 600 /srv/blob; rm -r /srv/dir/deep; rm /srv/dir/b.txt; mkdir -p /srv/new/er
    echo n > /srv/new/er/n; ln -s ../a.txt /srv/new/link; chown 5:6 /srv/new/er/n"""


class Killed(BaseException):
    """Nothing that runs afterwards in this process may catch it."""


class Commit(ContainerCase):
    def test_the_original_becomes_like_the_sandbox_and_that_is_the_base(self):
        ref = self.create()
        self.inside(ref, CHANGES)
        expected = self.files(ref.metadata["container"])
        result = self.commit(ref)
        self.assertEqual(len(result.entries), 9)
        self.assertEqual(self.files(), expected)
        self.assertEqual(self.original("stat -c '%a %u %g' /srv/blob /srv/a.txt /srv/new/er/n").splitlines(),
                         ["600 7 0", "640 7 0", "644 5 6"])
        self.assertEqual(self.original("readlink /srv/new/link").strip(), "../a.txt")
        self.assertEqual(self.differences(ref), {})
        self.strategy.write(ref, "srv/a.txt", b"2")
        self.assertEqual(self.differences(ref), {"srv/a.txt": "modified"})
        self.strategy.rollback(ref)
        self.assertEqual(self.files(ref.metadata["container"]), expected)

    def test_the_original_goes_on_meanwhile(self):
        started = self.original("cat /proc/1/stat").split()[21]
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.commit(ref)
        self.assertEqual(self.original("cat /proc/1/stat").split()[21], started)

    def test_types_change_places(self):
        ref = self.create()
        self.inside(ref, "rm -r /srv/dir; echo f > /srv/dir; rm /srv/a.txt; mkdir /srv/a.txt; touch /srv/a.txt/f")
        expected = self.files(ref.metadata["container"])
        self.commit(ref)
        self.assertEqual(self.files(), expected)

    def test_what_others_do_elsewhere_stays(self):
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.original("echo theirs > /srv/blob; echo theirs > /srv/theirs")
        self.commit(ref)
        self.assertEqual(self.original("cat /srv/a.txt /srv/blob /srv/theirs"), "1theirs\ntheirs\n")

    def test_what_cannot_be_copied_refuses_the_whole(self):
        before = self.files()
        ref = self.create()
        self.inside(ref, "mkfifo /srv/pipe; echo 1 > /srv/a.txt")
        with self.assertRaises(Uncommittable):
            self.commit(ref)
        self.assertEqual(self.files(), before)

    def test_a_container_made_anew_is_another(self):
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.daemon.docker("rm", "--force", self.name)
        self.daemon.docker("run", "--detach", f"--name={self.name}", "--network=none", "busybox:test", "sleep", "100000")
        with self.assertRaises(NotFound):
            self.commit(ref)
        self.assertEqual(self.original("cat /srv/a.txt"), "one\ntwo\n")


class Conflicting(ContainerCase):
    def refused(self, ref, *paths):
        """Asserts that a commit is refused over exactly those paths, and changes nothing."""
        before, pending, left = self.files(), self.differences(ref), self.leftovers()
        with self.assertRaises(Conflicts) as caught:
            self.commit(ref)
        self.assertEqual([conflict.path for conflict in caught.exception.conflicts], list(paths))
        self.assertEqual(self.files(), before)
        self.assertEqual(self.differences(ref), pending)
        self.assertEqual(self.leftovers(), left)

    def test_the_first_committer_wins(self):
        first, second = self.create("pln_1"), self.create("pln_2")
        for ref, content in ((first, b"first"), (second, b"second")):
            self.strategy.write(ref, "srv/a.txt", content)
            self.strategy.write(ref, "srv/" + content.decode(), content)
        self.commit(first)
        self.refused(second, "srv/a.txt")
        self.assertTrue(self.strategy.diff(second).entries[0].moved)

    def test_creation_deletion_and_modes_by_others_are_conflicts(self):
        ref = self.create()
        self.inside(ref, "echo 1 > /srv/a.txt; echo 1 > /srv/new; echo 1 > /srv/blob; echo 1 > /srv/fine")
        self.original("rm /srv/a.txt; echo 2 > /srv/new; chmod 600 /srv/blob")
        self.refused(ref, "srv/a.txt", "srv/blob", "srv/new")

    def test_a_directory_is_not_removed_over_what_others_put_into_it(self):
        ref = self.create()
        self.inside(ref, "rm -r /srv/dir")
        self.original("echo precious > /srv/dir/deep/new")
        self.refused(ref, "srv/dir", "srv/dir/deep")

    def test_a_link_does_not_lead_the_copy_elsewhere(self):
        ref = self.create()
        self.inside(ref, "echo 1 > /srv/dir/new")
        self.original("mv /srv/dir /tmp/elsewhere; ln -s /tmp/elsewhere /srv/dir")
        self.refused(ref, "srv/dir/new")
        self.assertEqual(self.original("ls /tmp/elsewhere").split(), ["b.txt", "deep"])


class Failing(ContainerCase):
    def half_done(self, error):
        """Does the removals and one half of the copies, and then fails."""
        whole = Engine.unpack
        done = []

        @contextmanager
        def unpack(engine, container):
            if done:
                with whole(engine, container) as archive:
                    yield archive
                return
            done.append(1)
            with whole(engine, container) as archive:
                add, calls = archive.addfile, []

                def some(*arguments):
                    calls.append(1)
                    if len(calls) <= 3:
                        add(*arguments)
                archive.addfile = some
                yield archive
            raise error
        return mock.patch.object(Engine, "unpack", unpack)

    def test_a_copy_that_fails_in_the_middle_leaves_the_old_content(self):
        before, owners = self.files(), self.original("cd /srv; find . -exec stat -c '%n %a %u %g' {} +")
        ref = self.create()
        self.inside(ref, CHANGES)
        pending = self.differences(ref)
        with self.half_done(Failed("no space left")), self.assertRaisesRegex(Failed, "no space left"):
            self.commit(ref)
        self.assertEqual(self.files(), before)
        self.assertEqual(self.original("cd /srv; find . -exec stat -c '%n %a %u %g' {} +"), owners)
        self.assertEqual(self.differences(ref), pending)
        self.commit(ref)
        self.assertEqual(self.differences(ref), {})

    def test_a_process_killed_in_a_commit_is_taken_back_by_the_next(self):
        before = self.files()
        ref = self.create()
        self.inside(ref, CHANGES)
        with self.half_done(Killed()), self.assertRaises(Killed):
            self.commit(ref)
        self.assertNotEqual(self.files(), before)
        self.original("echo edited > /srv/theirs")
        self.assertEqual(len(self.differences(ref)), 9)
        self.original("rm /srv/theirs")
        self.assertEqual(self.files(), before)

    def test_a_cleanup_after_a_killed_commit_takes_it_back_too(self):
        before = self.files()
        ref = self.create()
        self.inside(ref, CHANGES)
        with self.half_done(Killed()), self.assertRaises(Killed):
            self.commit(ref)
        self.strategy.cleanup(ref)
        self.assertEqual(self.files(), before)
        self.assertEqual(self.leftovers(), [])

    def test_a_killed_commit_is_taken_back_though_everything_stopped_was_pruned(self):
        before = self.files()
        ref = self.create()
        self.inside(ref, CHANGES)
        with self.half_done(Killed()), self.assertRaises(Killed):
            self.commit(ref)
        self.daemon.docker("container", "prune", "--force")
        self.assertEqual(len(self.differences(ref)), 9)
        self.assertEqual(self.files(), before)

    def test_deletions_need_a_running_original_and_are_refused_before_anything_is_done(self):
        ref = self.create()
        self.inside(ref, "rm /srv/a.txt; echo 1 > /srv/blob; echo 1 > /srv/created")
        self.daemon.docker("stop", "--time=0", self.name)
        with self.assertRaises(Refused) as refused:
            self.commit(ref)
        self.assertIn("is stopped", str(refused.exception))
        self.daemon.docker("start", self.name)
        self.assertNotIn("./created", self.files())
        self.assertEqual(self.original("cat /srv/a.txt"), "one\ntwo\n")

    def test_a_stopped_original_takes_other_changes(self):
        self.daemon.docker("stop", "--time=0", self.name)
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.commit(ref)
        self.daemon.docker("start", self.name)
        self.assertEqual(self.original("cat /srv/a.txt"), "1")


if __name__ == "__main__":
    unittest.main()
