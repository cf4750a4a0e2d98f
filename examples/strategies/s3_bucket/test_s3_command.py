"""The strategy as users meet it: the command `sandbox`, a resource type, and buckets by their URLs."""

import sys

from bucket_case import ENVIRONMENT, HERE, REGION, BucketCase

sys.path.insert(0, str(HERE.parent))

from command_case import Command  # noqa: E402


class ByCommand(BucketCase):
    def setUp(self):
        super().setUp()
        options = {"endpoint": self.endpoint, "region": REGION}
        entry = {"module": "s3_bucket", "class": "BucketStrategy", "env": dict(ENVIRONMENT), "options": options}
        self.sandbox = Command(self, HERE, "bucket", entry)

    def current(self, key):
        return self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read()

    def test_a_life(self):
        run, url = self.sandbox.run, f"s3://{self.bucket}"
        run("create", url, "--name", "try")
        run("write", "try", "a.txt", content=b"one\n2\n")
        self.assertEqual(run("read", "try", "a.txt"), b"one\n2\n")
        self.assertEqual(self.current("a.txt"), b"one\ntwo\n")
        self.assertIn(b"-two\n+2\n", run("diff", "try", "--patch"))
        run("checkpoint", "try", "two")
        run("write", "try", "new/file", content=b"x")
        run("restore", "try", "two")
        self.assertEqual(run("diff", "try"), b"M a.txt\n")
        run("commit", "try")
        self.assertEqual(self.current("a.txt"), b"one\n2\n")
        run("undo", "try")
        self.assertEqual(self.current("a.txt"), b"one\ntwo\n")
        run("destroy", "try", "--discard")
        self.assertTrue(self.sandbox.is_clean())

    def test_the_first_committer_wins(self):
        run, url = self.sandbox.run, f"s3://{self.bucket}/dir"
        for name in ("one", "two"):
            run("create", url, "--plan", name, "--name", name)
            run("write", name, "b.txt", content=name.encode())
        run("commit", "one")
        self.assertIn(b"b.txt", run("commit", "two", code=3))
        self.assertEqual(self.current("dir/b.txt"), b"one")

    def test_it_does_what_it_says_and_tells_no_secret(self):
        report = self.sandbox.json("strategies", "check", "bucket", "--on", f"s3://{self.bucket}", "--yes")
        self.assertEqual((report["failed"], report["declared_untried"]), (0, []), report)
        secret = ENVIRONMENT["AWS_SECRET_ACCESS_KEY"].encode()
        for file in filter(lambda path: path.is_file(), self.sandbox.home.rglob("*")):
            self.assertNotIn(secret, file.read_bytes(), file)
