"""The strategy as users meet it: the command `sandbox`, a resource type, and containers by their names."""

import sys

from container_case import DOCKER, HERE, ContainerCase

sys.path.insert(0, str(HERE.parent))

from command_case import Command  # noqa: E402


class ByCommand(ContainerCase):
    def test_a_life(self):
        entry = {
            "module": "container_snapshot",
            "class": "ContainerStrategy",
            "options": {"command": DOCKER, "host": self.daemon.host},
        }
        sandbox = Command(self, HERE, "container", entry)
        run, before = sandbox.run, self.daemon.docker("ps", "--all", "--quiet").stdout
        self.original("mkdir -p /srv && echo one > /srv/price")
        run("create", f"docker://{self.name}", "--name", "try")
        run("write", "try", "srv/price", content=b"two\n")
        run("checkpoint", "try", "cheap")
        run("write", "try", "srv/price", content=b"three\n")
        run("restore", "try", "cheap")
        self.assertEqual(run("read", "try", "srv/price"), b"two\n")
        self.assertEqual(self.original("cat /srv/price"), "one\n")
        run("commit", "try")
        self.assertEqual(self.original("cat /srv/price"), "two\n")
        run("write", "try", "srv/price", content=b"four\n")
        self.original("echo mine > /srv/price")
        self.assertIn(b"srv/price", run("commit", "try", code=3))
        self.assertEqual(self.original("cat /srv/price"), "mine\n")
        run("destroy", "try", "--discard")
        self.assertTrue(sandbox.is_clean())
        self.assertEqual(self.daemon.docker("ps", "--all", "--quiet").stdout, before)
