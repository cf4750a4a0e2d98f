"""Frames and JSON-RPC: what is refused, and what is not."""

import json
import unittest

from sandboxer_plugin import wire

from .client import HostCase, frame


class Frames(HostCase):
    def test_headers_are_read_whatever_their_case_and_unknown_ones_ignored(self):
        host = self.whole()
        request = json.dumps({"jsonrpc": "2.0", "id": 9, "method": "read", "params": {"ref": {}, "path": "a"}}).encode()
        host.send_raw(b"X-New: 1\r\ncOnTent-lEngth:%d\r\n\r\n%s" % (len(request), request))
        reply = host.receive()
        self.assertEqual((reply.message["id"], reply.attachment), (9, b"a"))

    def test_an_oversized_header_ends_it(self):
        host = self.start()
        host.send_raw(b"X: " + b"y" * wire.HEADER_LIMIT + b"\r\n")
        self.assertEqual(host.receive().error["code"], wire.PARSE_ERROR)
        self.assertEqual(host.process.wait(timeout=60), 1)

    def test_many_small_header_lines_are_an_oversized_header_too(self):
        host = self.start()
        host.send_raw(b"X: y\r\n" * 1000)
        self.assertIn("more than 4096", host.receive().error["message"])

    def test_lengths_over_the_limit_are_refused_before_they_are_read(self):
        for header in (b"Content-Length: %d" % (wire.MESSAGE_LIMIT + 1), b"Content-Length: " + b"9" * 3000,
                       b"Content-Length: 2\r\nAttachment-Length: %d" % (wire.ATTACHMENT_LIMIT + 1)):
            host = self.start()
            # Nothing follows: an answer shows that nothing was waited for.
            host.send_raw(header + b"\r\n\r\n")
            self.assertIn("up to", host.receive().error["message"])

    def test_what_is_no_header_ends_it(self):
        for line in (b"hello\r\n\r\n", b"Content-Length: -1\r\n\r\n", b"Content-Length: 1\n\n", b"X: 1\r\n\r\n"):
            host = self.start()
            host.send_raw(line)
            self.assertEqual(host.receive().error["code"], wire.PARSE_ERROR)
            self.assertEqual(host.process.wait(timeout=60), 1)

    def test_an_input_that_ends_within_a_frame_is_an_error(self):
        host = self.start()
        host.send_raw(b"Content-Length: 10\r\n\r\nabc")
        self.assertEqual(host.end(), 1)

    def test_no_json_is_a_parse_error_and_the_next_request_is_answered(self):
        host = self.whole()
        for message in (b"{", b"\xff\xfe", b"[" * 100_000, b""):
            host.send_raw(frame(message))
            reply = host.receive()
            self.assertEqual((reply.error["code"], reply.message["id"]), (wire.PARSE_ERROR, None))
        self.assertEqual(host.on("read", path="x").attachment, b"x")

    def test_what_is_no_request_is_refused(self):
        host = self.whole()
        for request in ([], 3, {"method": "read", "id": 1}, {"jsonrpc": "2.0", "id": 1},
                        {"jsonrpc": "2.0", "id": [], "method": "read"}, {"jsonrpc": "2.0", "id": "\ud800", "method": "read"}):
            host.send_raw(frame(json.dumps(request).encode()))
            self.assertEqual(host.receive().error["code"], wire.INVALID_REQUEST)

    def test_methods_and_params_that_nobody_knows_are_refused(self):
        host = self.whole()
        self.assertEqual(host.call("reed").error["code"], wire.UNKNOWN_METHOD)
        self.assertEqual(host.call("\ud800").error["code"], wire.UNKNOWN_METHOD)
        self.assertEqual(host.call("__init__").error["code"], wire.UNKNOWN_METHOD)
        self.assertEqual(host.call("read", [1]).error["code"], wire.INVALID_PARAMS)
        self.assertEqual(host.call("read", {"path": "a"}).error["code"], wire.INVALID_PARAMS)
        self.assertEqual(host.call("read", {"ref": 3, "path": "a"}).error["code"], wire.INVALID_PARAMS)
        for path in ("../a", "/a", "", "a//b", "a\0b", 3, None, "base64:!", "base64:Li4="):
            self.assertEqual(host.on("read", path=path).error["code"], wire.INVALID_PARAMS, path)

    def test_notifications_are_not_answered(self):
        host = self.whole()
        host.send_raw(frame(b'{"jsonrpc": "2.0", "method": "read"}'))
        self.assertEqual(host.on("read", path="next").attachment, b"next")

    def test_calls_before_initialize_and_a_second_one_are_refused(self):
        self.module("class Mine: pass")
        host = self.start()
        self.assertEqual(host.on("read", path="a").error["code"], wire.INVALID_REQUEST)
        host.initialize().result
        self.assertEqual(host.on("read", path="a").error["code"], wire.INVALID_REQUEST, "it has no read")
        self.assertEqual(host.initialize().error["code"], wire.INVALID_REQUEST)


class Writing(unittest.TestCase):
    def test_what_is_left_after_a_part_was_written(self):
        parts = [b"abc", memoryview(b"defg"), b"", b"h"]
        for count in range(9):
            self.assertEqual(b"".join(wire._without(parts, count)), b"abcdefgh"[count:])
