"""The process: what it prints, runs and leaves, and how it ends."""

import threading

from .client import REF, HostCase


class Output(HostCase):
    def test_what_a_strategy_prints_goes_to_standard_error(self):
        host = self.whole("""
            def read(self, ref, path):
                print("printed")
                sys.__stdout__.write("written"); sys.__stdout__.flush()
                os.write(1, b"raw")
                subprocess.run(["sh", "-c", "echo from a child; cat"], check=True)
                return sys.stdin.read().encode() + b"done"
        """, head="import os, subprocess, sys\nprint('at import')")
        self.assertEqual(host.on("read", path="a").attachment, b"done")
        for words in ("at import", "printed", "written", "raw", "from a child"):
            self.assertIn(words, host.log())

    def test_children_do_not_hold_the_pipes(self):
        host = self.whole("""
            def read(self, ref, path):
                held = {os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")}
                pipes = {place for place in held if "pipe:" in place}
                listing = "for f in /proc/$$/fd/*; do readlink $f; done"
                child = subprocess.run(["sh", "-c", listing], stdout=subprocess.PIPE, close_fds=False)
                ours = [place for place in pipes if place.rpartition("/")[2] in child.stdout.decode()]
                return f"{len(pipes) >= 2} {ours}".encode()
        """, head="import os, subprocess")
        self.assertEqual(host.on("read", path="a").attachment, b"True []")

    def test_a_fork_that_falls_back_into_the_loop_says_nothing(self):
        host = self.whole("def read(self, ref, path):\n    pid = os.fork()\n    if pid:\n        os.waitpid(pid, 0)\n"
                          "        return b'parent'\n    return b'child'", head="import os")
        self.assertEqual(host.on("read", path="a").attachment, b"parent")
        self.assertEqual(host.on("read", path="a").attachment, b"parent")


class End(HostCase):
    def test_the_end_of_input_is_the_end(self):
        self.assertEqual(self.whole().end(), 0)
        self.assertEqual(self.start().end(), 0)

    def test_the_call_under_way_is_finished_first(self):
        for concurrency in (1, 2):
            host = self.whole(f"concurrency = {concurrency}\ndef read(self, ref, path):\n"
                              "    time.sleep(0.3)\n    return b'finished'", head="import time")
            host.send("read", {"ref": REF, "path": "a"})
            host.process.stdin.close()
            self.assertEqual(host.receive().attachment, b"finished")
            self.assertEqual(host.process.wait(timeout=60), 0)

    def test_a_call_that_outlives_the_host_is_ended(self):
        for concurrency in (1, 2):
            host = self.whole(f"concurrency = {concurrency}\ndef read(self, ref, path):\n    time.sleep(1000)",
                              head="import time", timeout_ms=100)
            host.send("read", {"ref": REF, "path": "a"})
            self.assertEqual(host.end(), 1)


class Concurrency(HostCase):
    def test_calls_run_at_once_and_answer_in_any_order(self):
        host = self.whole("""
            concurrency = 3
            def __init__(self):
                self.together = threading.Barrier(3)
                self.last = threading.Event()
            def read(self, ref, path):
                self.together.wait(30)
                self.last.wait(30) if path == "first" else time.sleep(0)
                if path == "third": self.last.set()
                return path.encode() * 100_000
        """, head="import threading, time")
        sent = {host.send("read", {"ref": REF, "path": path}): path for path in ("first", "second", "third")}
        replies = [host.receive() for _ in sent]
        for reply in replies:
            self.assertEqual(reply.attachment, sent[reply.message["id"]].encode() * 100_000)
        self.assertEqual(len({reply.message["id"] for reply in replies}), 3)

    def test_a_pool_survives_every_exception(self):
        host = self.whole("concurrency = 2\ndef diff(self, ref):\n    raise SystemExit(1)")
        for _ in range(5):
            self.assertEqual(host.on("diff").error["message"], "SystemExit: 1")

    def test_one_at_a_time_is_the_main_thread(self):
        host = self.whole("def read(self, ref, path):\n    return threading.current_thread().name.encode()",
                          head="import threading")
        self.assertEqual(host.on("read", path="a").attachment, threading.main_thread().name.encode())
