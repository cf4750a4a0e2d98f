"""The life of a container's sandbox: isolation, differences, checkpoints, rollback, cleanup."""

import os
import unittest
from unittest import mock

from container_case import ContainerCase

from sandboxer_plugin import CommitRequest, Failed, NotFound, Refused, Resource, SandboxRef, Unsupported, Usage
from sandboxer_plugin.testing import Sandbox


class Isolation(ContainerCase):
    def test_writes_are_seen_in_the_sandbox_and_nowhere_else(self):
        before = self.files()
        ref = self.create()
        change = self.strategy.write(ref, "srv/a.txt", b"changed\n")
        self.assertEqual((change.kind, change.old_size, change.new_size), ("modified", 8, 8))
        self.assertEqual(self.strategy.write(ref, "srv/new/er/d.txt", b"d").kind, "created")
        self.assertEqual(self.strategy.read(ref, "srv/a.txt"), b"changed\n")
        self.assertEqual(self.inside(ref, "cat /srv/a.txt /srv/new/er/d.txt"), "changed\nd")
        self.assertEqual(self.strategy.read(ref, "srv/dir/b.txt"), b"b\n")
        self.assertEqual(self.files(), before)

    def test_a_file_keeps_its_owner_and_mode(self):
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"x")
        self.assertEqual(self.inside(ref, "stat -c '%a %u %g' /srv/a.txt").split(), ["640", "7", "0"])

    def test_commands_in_the_sandbox_change_the_sandbox_alone(self):
        before = self.files()
        ref = self.create()
        self.inside(ref, "rm -r /srv/dir; echo 1 > /srv/a.txt; ln -s a.txt /srv/link")
        self.assertEqual(self.files(), before)
        self.assertEqual(self.inside(ref, "ls /srv").split(), ["a.txt", "blob", "link"])

    def test_the_base_is_what_the_original_was(self):
        self.original("echo mine > /srv/own.txt")
        ref = self.create()
        self.original("echo later > /srv/a.txt; echo later > /srv/later.txt; rm /srv/own.txt")
        self.assertEqual(self.strategy.read(ref, "srv/a.txt"), b"one\ntwo\n")
        self.assertEqual(self.strategy.read(ref, "srv/own.txt"), b"mine\n")
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "srv/later.txt")
        self.assertEqual(self.differences(ref), {})

    def test_a_second_sandbox_has_a_base_of_its_own(self):
        first = self.create("pln_1")
        self.strategy.write(first, "srv/a.txt", b"first")
        self.commit(first)
        second = self.create("pln_2")
        self.strategy.write(first, "srv/a.txt", b"first again")
        self.assertEqual(self.strategy.read(second, "srv/a.txt"), b"first")
        self.assertEqual(self.differences(second), {})

    def test_links_are_not_followed(self):
        ref = self.create()
        self.inside(ref, "ln -s a.txt /srv/link; ln -s dir /srv/way")
        for path in ("srv/link", "srv/dir"):
            with self.assertRaises(Refused):
                self.strategy.read(ref, path)
            with self.assertRaises(Refused):
                self.strategy.write(ref, path, b"x")
        with self.assertRaises(NotFound):
            self.strategy.read(ref, "srv/way/b.txt")
        for path in ("srv/way/b.txt", "srv/a.txt/below"):
            with self.assertRaises(Refused):
                self.strategy.write(ref, path, b"x")
        self.assertEqual(self.inside(ref, "cat /srv/a.txt /srv/dir/b.txt"), "one\ntwo\nb\n")

    def test_the_same_command_runs_without_network_and_foreign_labels(self):
        self.daemon.docker("rm", "--force", self.name)
        self.name = self.run_original("--label=com.docker.compose.project=shop", "--env=COLOUR=red")
        ref = self.create()
        self.assertIn("sleep 100000", self.inside(ref, "tr '\\0' ' ' < /proc/1/cmdline"))
        self.assertEqual(self.inside(ref, "echo $COLOUR").strip(), "red")
        self.assertEqual(self.inside(ref, "ls /sys/class/net").split(), ["lo"])
        found = self.daemon.docker("ps", "--quiet", "--filter=label=com.docker.compose.project=shop").stdout.split()
        self.assertEqual(len(found), 1)

    def test_mounts_are_neither_seen_nor_written(self):
        self.daemon.docker("rm", "--force", self.name)
        self.name = self.run_original("--volume=/data", "--tmpfs=/fast")
        self.original("echo precious > /data/file")
        ref = self.create()
        self.assertEqual(self.inside(ref, "ls -A /data; echo x > /data/x; echo x > /fast/x"), "")
        for path in ("data/file", "fast/x", "proc/1/status", "etc/hosts"):
            with self.assertRaises(Refused):
                self.strategy.write(ref, path, b"x")
            with self.assertRaises(Refused):
                self.strategy.read(ref, path)
        self.assertEqual(self.differences(ref), {})
        self.assertEqual(self.original("cat /data/*"), "precious\n")

    def test_a_container_that_is_gone_or_misnamed_is_said(self):
        with self.assertRaises(NotFound):
            self.strategy.create("pln_1", Resource("i", "container", "docker://nobody", {"scratch": self.scratch}))
        for location in ("docker://", "docker://--all", "docker://a/b", "http://a"):
            with self.assertRaises(Usage):
                self.strategy.create("pln_1", Resource("i", "container", location, {"scratch": self.scratch}))
        self.assertEqual(self.leftovers(), [])


class Names(ContainerCase):
    def test_a_directory_of_any_name_makes_a_valid_image_name(self):
        scratch = os.path.join(self.scratch, "WS-_odd___name_")
        os.mkdir(scratch)
        location = f"docker://{self.name}"
        resource = Resource("url:" + location, "container", location, {"scratch": scratch})
        made = self.strategy.create("pln_1", resource)
        self.refs.append(SandboxRef("pln_1", resource.id, metadata={**made.metadata, "scratch": scratch}))


class OverJson(ContainerCase):
    def test_a_life_as_the_host_leads_it(self):
        with Sandbox(self.strategy, f"docker://{self.name}") as sandbox:
            self.assertEqual(sandbox.write("srv/a.txt", b"1")["kind"], "modified")
            sandbox.checkpoint("cp")
            sandbox.rollback()
            self.assertEqual(sandbox.diff(), [])
            self.assertTrue(sandbox.restore_checkpoint("cp")["success"])
            self.assertEqual(sandbox.read("srv/a.txt"), b"1")
            self.assertEqual(sandbox.commit()["entries"][0]["new"]["size"], 1)
        self.assertEqual(self.original("cat /srv/a.txt"), "1")
        self.assertEqual(self.leftovers(), [])


class Differences(ContainerCase):
    def test_each_kind_is_told_and_mere_directories_are_not(self):
        ref = self.create()
        self.inside(ref, """echo one > /srv/a.txt; printf '\\0x' > /srv/blob; chmod 600 /srv/dir/b.txt
            rm -r /srv/dir/deep; mkdir /srv/new; echo n > /srv/new/n; ln -s a /srv/new/l; touch /srv/dir""")
        self.assertEqual(self.differences(ref), {
            "srv/a.txt": "modified", "srv/blob": "modified", "srv/dir/b.txt": "metadata", "srv/dir/deep": "deleted",
            "srv/dir/deep/c.txt": "deleted", "srv/new": "created", "srv/new/n": "created", "srv/new/l": "created",
        })
        entries = {entry.path: entry for entry in self.strategy.diff(ref).entries}
        self.assertEqual(entries["srv/a.txt"].text, "--- a/srv/a.txt\n+++ b/srv/a.txt\n@@ -1,2 +1 @@\n one\n-two\n")
        self.assertTrue(entries["srv/blob"].binary)
        self.assertEqual((entries["srv/new/l"].new.type, entries["srv/new/l"].new.target), ("symlink", "a"))

    def test_a_directory_made_anew_and_a_changed_type_are_told(self):
        ref = self.create()
        self.inside(ref, "rm -r /srv/dir; mkdir /srv/dir; echo x > /srv/dir/x; rm /srv/a.txt; mkdir /srv/a.txt; touch /srv/a.txt/f")
        self.assertEqual(self.differences(ref), {
            "srv/dir/b.txt": "deleted", "srv/dir/deep": "deleted", "srv/dir/deep/c.txt": "deleted", "srv/dir/x": "created",
            "srv/a.txt": "type", "srv/a.txt/f": "created",
        })

    def test_the_digest_follows_the_content_and_nothing_else(self):
        ref = self.create()
        views = []
        for content in (b"\0one", b"\0two", b"\0one"):
            self.strategy.write(ref, "srv/blob", content)
            views.append(self.strategy.diff(ref).entries)
        self.assertNotEqual(views[0], views[1])
        self.assertEqual(views[0], views[2])
        self.strategy.write(ref, "srv/blob", b"\0\1")
        self.assertEqual(self.differences(ref), {})

    def test_what_cannot_be_copied_is_marked(self):
        ref = self.create()
        self.inside(ref, "mkfifo /srv/pipe; echo x > /srv/s; chmod 4755 /srv/s")
        entries = {entry.path: entry for entry in self.strategy.diff(ref).entries}
        self.assertIn("fifo", entries["srv/pipe"].refused)
        self.assertEqual((entries["srv/s"].refused, list(entries["srv/s"].flags)), (None, ["setuid"]))


class OneByOne(ContainerCase):
    """In a container so large that each path is looked at by itself, where others are streamed as a whole."""

    def setUp(self):
        super().setUp()
        patch = mock.patch("container_tree.LOOK", 0)
        patch.start()
        self.addCleanup(patch.stop)

    def test_differences_and_commits_are_the_same(self):
        ref = self.create()
        self.inside(ref, "echo 1 > /srv/a.txt; rm -r /srv/dir; mkdir /srv/new; ln /srv/a.txt /srv/new/second")
        self.assertEqual(self.differences(ref), {
            "srv/a.txt": "modified", "srv/dir": "deleted", "srv/dir/b.txt": "deleted", "srv/dir/deep": "deleted",
            "srv/dir/deep/c.txt": "deleted", "srv/new": "created", "srv/new/second": "created",
        })
        expected = self.files(ref.metadata["container"])
        self.commit(ref)
        self.assertEqual(self.files(), expected)
        self.assertEqual(self.differences(ref), {})


class SecondNames(ContainerCase):
    def test_a_file_with_two_names_is_committed_under_both(self):
        ref = self.create()
        self.inside(ref, "echo 1 > /srv/first; mkdir /srv/new; ln /srv/first /srv/new/second; ln /srv/first /srv/dir/third")
        expected = self.files(ref.metadata["container"])
        self.commit(ref)
        self.assertEqual(self.files(), expected)
        self.assertEqual(self.differences(ref), {})
        self.inside(ref, "rm -r /srv/new /srv/dir")
        self.commit(ref)
        self.assertEqual(sorted(self.files()), [".", "./a.txt", "./blob", "./first"])


class Checkpoints(ContainerCase):
    def test_states_come_back_in_any_order(self):
        ref = self.create()
        self.strategy.checkpoint(ref, "empty")
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.strategy.checkpoint(ref, "one")
        self.inside(ref, "echo 2 > /srv/a.txt; rm -r /srv/dir; echo 2 > /srv/new")
        self.strategy.checkpoint(ref, "two")
        two = {"srv/a.txt": "modified", "srv/dir": "deleted", "srv/dir/b.txt": "deleted", "srv/dir/deep": "deleted",
               "srv/dir/deep/c.txt": "deleted", "srv/new": "created"}
        for name, expected in [("one", {"srv/a.txt": "modified"}), ("two", two), ("empty", {}), ("two", two)]:
            result = self.strategy.restore_checkpoint(ref, name)
            self.assertEqual((result.success, result.checkpoint_id), (True, name))
            self.assertEqual(self.differences(ref), expected)
        self.assertEqual(self.inside(ref, "cat /srv/a.txt"), "2\n")
        with self.assertRaises(NotFound):
            self.strategy.restore_checkpoint(ref, "three")

    def test_a_name_that_exists_is_replaced(self):
        ref = self.create()
        for content in (b"1", b"2"):
            self.strategy.write(ref, "srv/a.txt", content)
            self.strategy.checkpoint(ref, "cp/odd name")
        self.strategy.rollback(ref)
        self.strategy.restore_checkpoint(ref, "cp/odd name")
        self.assertEqual(self.strategy.read(ref, "srv/a.txt"), b"2")

    def test_a_state_from_before_a_commit_comes_back_as_differences_from_it(self):
        before = self.files()
        ref = self.create()
        self.strategy.checkpoint(ref, "before")
        self.inside(ref, "echo 1 > /srv/a.txt; rm -r /srv/dir/deep; echo 1 > /srv/new")
        self.commit(ref)
        self.strategy.restore_checkpoint(ref, "before")
        self.assertEqual(self.differences(ref), {"srv/a.txt": "modified", "srv/dir/deep": "created",
                                                 "srv/dir/deep/c.txt": "created", "srv/new": "deleted"})
        self.commit(ref)
        self.assertEqual(self.files(), before)

    def test_a_rollback_is_a_new_container_from_the_base(self):
        ref = self.create()
        self.inside(ref, "echo 1 > /srv/a.txt; rm -r /srv/dir")
        self.assertEqual(self.strategy.rollback(ref).restored_files, 2)
        self.assertEqual(self.differences(ref), {})
        self.assertEqual(self.files(ref.metadata["container"]), self.files())


class Removed(ContainerCase):
    def test_a_sandbox_whose_container_was_removed_is_made_again_from_an_image(self):
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.strategy.checkpoint(ref, "cp")
        self.daemon.docker("rm", "--force", ref.metadata["container"])
        for attempt in (lambda: self.strategy.read(ref, "srv/a.txt"), lambda: self.strategy.diff(ref), lambda: self.commit(ref)):
            with self.assertRaisesRegex(Failed, "has been removed"):
                attempt()
        self.strategy.restore_checkpoint(ref, "cp")
        self.assertEqual(self.differences(ref), {"srv/a.txt": "modified"})

    def test_a_pruned_base_is_made_again(self):
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.daemon.docker("container", "prune", "--force")
        self.assertEqual(self.differences(ref), {"srv/a.txt": "modified"})
        self.commit(ref)
        self.assertEqual(self.original("cat /srv/a.txt"), "1")

    def test_a_sandbox_whose_original_is_gone_can_be_cleaned_up(self):
        ref = self.create()
        self.daemon.docker("rm", "--force", self.name)
        with self.assertRaises(NotFound):
            self.strategy.diff(ref)
        self.strategy.cleanup(ref)
        self.assertEqual(self.leftovers(), [])


class Cleanup(ContainerCase):
    def test_no_container_image_or_volume_is_left(self):
        self.assertEqual(self.leftovers(), [])
        ref = self.create()
        self.strategy.write(ref, "srv/a.txt", b"1")
        self.strategy.checkpoint(ref, "one")
        self.strategy.write(ref, "srv/a.txt", b"2")
        self.strategy.commit(ref, CommitRequest())
        self.strategy.restore_checkpoint(ref, "one")
        self.strategy.checkpoint(ref, "two")
        self.assertNotEqual(self.leftovers(), [])
        for _ in range(2):
            self.strategy.cleanup(ref)
            self.assertEqual(self.leftovers(), [])
        self.assertEqual(self.original("cat /srv/a.txt"), "2")

    def test_only_one_sandbox_is_removed(self):
        first, second = self.create(), self.create()
        self.strategy.cleanup(first)
        self.assertEqual(self.strategy.read(second, "srv/a.txt"), b"one\ntwo\n")

    def test_a_create_that_was_cut_short_leaves_nothing(self):
        ref = self.create()
        self.strategy.cleanup(SandboxRef(ref.plan_id, ref.resource_id, metadata={"scratch": ref.metadata["scratch"]}))
        self.assertEqual(self.leftovers(), [])

    def test_what_is_not_implemented_is_said(self):
        ref = self.create()
        for request in (CommitRequest(paths=["srv"]), CommitRequest(on_conflict="theirs"), CommitRequest(phase="prepare")):
            with self.assertRaises(Unsupported):
                self.strategy.commit(ref, request)


if __name__ == "__main__":
    unittest.main()
