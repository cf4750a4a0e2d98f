"""The nine methods over the wire: arguments, results, failures."""

import base64

from .client import REF, HostCase

ODD = b"dir/\xff\xfe"
ODD_TEXT = "base64:" + base64.b64encode(ODD).decode()


class Arguments(HostCase):
    def test_models_arrive_as_models(self):
        host = self.whole("""
            def create(self, plan_id, resource):
                assert resource["location"] == resource.location == "/r" and resource.scratch == "/s"
                seen = [plan_id, resource.type, resource["limit"]]
                return SandboxRef(metadata={"path": resource.scratch, "seen": seen})
            def commit(self, ref, request):
                raise Usage(f"{request.paths} {request.hunks} {request.phase} {request.on_conflict} {ref.operation}")
            def rollback(self, ref):
                raise Usage(f"{ref.scope} {ref['strategy_name']} {ref['path']} {ref.get('absent')}")
            def read(self, ref, path):
                return repr(ref.range).encode()
        """, head="from sandboxer_plugin import *")
        resource = {"id": "path:/r", "type": "fs-directory", "location": "/r", "properties": {"scratch": "/s", "limit": 3}}
        created = host.call("create", {"plan_id": "pln_1", "resource": {**resource, "new_field": 1}}).result
        self.assertEqual(created, {"metadata": {"path": "/s", "seen": ["pln_1", "fs-directory", 3]}})
        hunks = [{"path": "a", "patch": "@@"}, {"path": "b", "patch": {"b64": "/w=="}}]
        asked = host.on("commit", request={"paths": [ODD_TEXT], "hunks": hunks, "phase": "prepare"}, metadata={"operation": "op_1"})
        self.assertIn(r"['dir/\udcff\udcfe'] [HunkSelection(path='a', patch=b'@@'), HunkSelection(path='b', patch=b'\xff')]",
                      asked.error["message"])
        self.assertIn("prepare fail op_1", asked.error["message"])
        told = host.on("rollback", metadata={"scope": ["a", ODD_TEXT], "path": "/p"}).error["message"]
        self.assertEqual(told, r"['a', 'dir/\udcff\udcfe'] mine /p None")
        self.assertEqual(host.on("read", path="a", metadata={"range": {"offset": 3, "length": 9}}).attachment, b"(3, 9)")
        self.assertEqual(host.on("read", path="a").attachment, b"None")

    def test_a_commit_without_a_request_gets_the_ref_alone(self):
        host = self.whole("def commit(self, ref):\n    raise RuntimeError(ref.plan_id)")
        self.assertEqual(host.on("commit", request={}).error["message"], "RuntimeError: pln_1")

    def test_content_of_any_size_arrives_whole(self):
        host = self.whole("""
            kept = b""
            def write(self, ref, path, content):
                assert type(content) is bytes
                self.kept = content
            def read(self, ref, path):
                return memoryview(self.kept)
        """)
        for content in (b"", b"\r\n\0\xff", bytes(range(256)) * (128 << 10)):
            self.assertIsNone(host.on("write", content, path="a").result)
            reply = host.on("read", path="a")
            self.assertEqual(reply.result, {})
            self.assertTrue(reply.attachment == content, len(content))

    def test_paths_keep_every_byte_both_ways(self):
        host = self.whole("""
            def write(self, ref, path, content):
                return Change(path, "created", len(content))
            def diff(self, ref):
                odd = os.fsdecode(b"dir/\\xff\\xfe")
                return [DiffEntry(odd, "renamed", from_="base64:x", old=Node(), new=Node("symlink", target=odd))]
            def commit(self, ref, request):
                raise Conflicts([Conflict(path, "why") for path in request.paths])
            def rollback(self, ref):
                raise Uncommittable([(path, "a pipe") for path in ref.scope])
            def checkpoint(self, ref, checkpoint_id):
                return os.fsdecode(b"/\\xff")
        """, head="import os\nfrom sandboxer_plugin import *")
        self.assertEqual(host.on("read", path=ODD_TEXT).attachment, ODD)
        self.assertEqual(host.on("write", b"abc", path=ODD_TEXT).result, {"path": ODD_TEXT, "kind": "created", "new_size": 3})
        entry = host.on("diff").result["entries"][0]
        self.assertEqual((entry["path"], entry["from"]), (ODD_TEXT, "base64:" + base64.b64encode(b"base64:x").decode()))
        self.assertEqual(entry["new"]["target"], "dir/\ufffd\ufffd")
        conflicts = host.on("commit", request={"paths": [ODD_TEXT]}).error["data"]["conflicts"]
        self.assertEqual(conflicts, [{"path": ODD_TEXT, "reason": "why", "hunks": []}])
        self.assertEqual(host.on("rollback", metadata={"scope": [ODD_TEXT]}).error["data"]["entries"], [{"path": ODD_TEXT, "reason": "a pipe"}])
        self.assertEqual(host.on("checkpoint", checkpoint_id="c").result, "base64:" + base64.b64encode(b"/\xff").decode())

    def test_places_in_metadata_keep_every_byte(self):
        host = self.whole("""
            def create(self, plan_id, resource):
                return {"metadata": {"path": pathlib.Path(resource.scratch) / "tree", "n": pathlib.Path("x")}}
            def read(self, ref, path):
                return os.fsencode(ref["path"]) + b" " + os.fsencode(ref.scratch)
        """, head="import os, pathlib")
        scratch = "base64:" + base64.b64encode(b"/s\xff").decode()
        resource = {"id": "r", "type": "t", "location": "/r", "properties": {"scratch": scratch}}
        metadata = host.call("create", {"plan_id": "p", "resource": resource}).result["metadata"]
        self.assertEqual(metadata, {"path": "base64:" + base64.b64encode(b"/s\xff/tree").decode(), "n": "x"})
        self.assertEqual(host.on("read", path="a", metadata={**metadata, "scratch": scratch}).attachment, b"/s\xff/tree /s\xff")


class Results(HostCase):
    def test_nothing_is_a_result_where_it_may_be(self):
        host = self.whole()
        calls = [host.on("write", path="a"), host.on("commit"), host.on("rollback"), host.on("checkpoint", checkpoint_id="c"),
                 host.on("restore_checkpoint", checkpoint_id="c"), host.on("cleanup")]
        self.assertEqual([call.result for call in calls], [None] * 6)
        self.assertEqual(host.on("diff").result, {"entries": []})

    def test_models_and_dicts_come_out_the_same(self):
        host = self.whole("""
            forms = [
                lambda: DiffView([DiffEntry("a", "created", new=Node(uid=1, gid=2), flags=("x",))]),
                lambda: [DiffEntry("a", "created", new=Node(uid=1, gid=2), flags=["x"])],
                lambda: (dict(entry) for entry in [Mine.as_dict]),
                lambda: {"digest": "mine", "entries": [Mine.as_dict]},
            ]
            as_dict = {"path": "a", "kind": "created", "new": {"uid": 1, "gid": 2}, "flags": ["x"]}
            def diff(self, ref):
                return self.forms.pop()()
            def commit(self, ref, request):
                return CommitResult([DiffEntry("a", "deleted")], [Notice("a", "gone")], [Conflict("b")])
            def rollback(self, ref):
                return {"restored_files": 3}
            def restore_checkpoint(self, ref, checkpoint_id):
                return RollbackResult(checkpoint_id=checkpoint_id)
        """, head="from sandboxer_plugin import *")
        node = {"type": "file", "mode": 0o644, "uid": 1, "gid": 2, "size": 0}
        entry = {"path": "a", "kind": "created", "new": node, "binary": False, "moved": False, "flags": ["x"]}
        for _ in range(4):
            self.assertEqual(host.on("diff").result, {"entries": [entry]})
        committed = host.on("commit").result
        self.assertEqual(committed["entries"][0]["kind"], "deleted")
        self.assertEqual((committed["notices"][0]["message"], committed["conflicts"][0]["path"]), ("gone", "b"))
        self.assertEqual(host.on("rollback").result, {"success": True, "restored_files": 3, "message": ""})
        self.assertEqual(host.on("restore_checkpoint", checkpoint_id="c").result["checkpoint_id"], "c")

    def test_what_is_said_too_much_of_a_commit_is_passed_over(self):
        host = self.whole("""
            def commit(self, ref, request):
                entry = {"path": "a", "kind": "created", "why": 3, "new": {"size": 4, "colour": "red"}, "row": {"table": "t"}}
                return {"digest": "mine", "entries": [entry], "took": 3}
        """)
        committed = host.on("commit").result
        self.assertEqual(sorted(committed), ["conflicts", "entries", "notices"])
        entry, = committed["entries"]
        self.assertEqual((entry["path"], entry["new"]["size"], entry["row"]), ("a", 4, {"table": "t"}))

    def test_why_nothing_can_be_prepared_is_told(self):
        host = self.whole("""
            forms = [lambda: DiffView([], "it is a queue"), lambda: {"entries": [], "at_decision": "it is a queue"}]
            def diff(self, ref):
                return self.forms.pop()()
        """, head="from sandboxer_plugin import *")
        for _ in range(2):
            self.assertEqual(host.on("diff").result, {"entries": [], "at_decision": "it is a queue"})

    def test_wrong_results_are_named(self):
        host = self.whole("""
            def _any(self, ref, *rest):
                return eval(ref["value"])
            create = lambda self, plan_id, resource: eval(resource["value"])
            read = write = diff = commit = rollback = checkpoint = restore_checkpoint = _any
        """, head="from sandboxer_plugin import *\nasync def later(): pass")
        for method, value, words in (
            ("create", "None", "must be SandboxRef or a dict, not NoneType"),
            ("create", "{'path': '/x'}", "unexpected keyword argument 'path'"),
            ("create", "{'metadata': 3}", "metadata must be a dict, not int"),
            ("create", "{'metadata': None}", "metadata must be a dict, not NoneType"),
            ("create", "{'metadata': {'path': 3}}", "metadata.path must be a path, not int"),
            ("create", "{'metadata': {'a': object()}}", "object has no form in JSON"),
            ("create", "{'metadata': {'a': float('nan')}}", "cannot be sent"),
            ("create", "{'metadata': {'a': '\\udcff'}}", "cannot be sent"),
            ("read", "'text'", "must be bytes, not str"),
            ("read", "None", "must be bytes, not NoneType"),
            ("read", "later()", "must be bytes, not coroutine"),
            ("read", "bytes((64 << 20) + 1)", "67108865 bytes"),
            ("write", "5", "must be Change or a dict, not int"),
            ("write", "{'path': 'a'}", "missing 2 required positional arguments"),
            ("diff", "None", "must be a DiffView or a list of entries, not NoneType"),
            ("diff", "'a'", "not str"),
            ("diff", "['a']", "entries[0] must be DiffEntry or a dict, not str"),
            ("diff", "[{'path': 'a', 'kind': 'new'}]", "entries[0].kind is 'new', not one of created"),
            ("diff", "[{'path': 3, 'kind': 'created'}]", "entries[0].path must be a path, not int"),
            ("diff", "[DiffEntry('a', 'created', new={'type': 'blob'})]", "entries[0].new.type is 'blob'"),
            ("diff", "[DiffEntry('a', None)]", "entries[0].kind is None"),
            ("diff", "[DiffEntry(None, 'created')]", "entries[0].path must be a path, not NoneType"),
            ("diff", "[DiffEntry('a', 'created', text=b'x')]", "entries[0].text must be text, not bytes"),
            ("diff", "[{'path': 'a', 'kind': 'created', 'flags': 'setuid'}]", "entries[0].flags must be a list of texts, not str"),
            ("diff", "{'entries': [], 'at_decision': 3}", "at_decision must be text, not int"),
            ("commit", "{'entries': 7}", "entries must be a list, not int; what it had changed by then is not known"),
            ("commit", "{'revision': object()}", "object has no form in JSON; what it had changed by then is not known"),
            ("commit", "True", "must be CommitResult or a dict, not bool"),
            ("commit", "CommitResult(notices=['a'])", "notices[0] must be Notice or a dict, not str"),
            ("rollback", "[]", "must be RollbackResult or a dict, not list"),
            ("checkpoint", "'\\ud800'", "must be a path or None"),
            ("diff", "[DiffEntry('\\ud800', 'created')]", "entries[0].path must be a path"),
            ("checkpoint", "3", "must be a path or None, not int"),
        ):
            value_at = {"properties": {"value": value}, "id": "r", "type": "t", "location": "/r"}
            params = {"ref": {**REF, "metadata": {"value": value}}, "plan_id": "p", "resource": value_at, "path": "a",
                      "checkpoint_id": "c"}
            reply = host.call(method, params)
            self.assertEqual(reply.kind, "failed", (method, value))
            self.assertIn(f"{method}: ", reply.error["message"])
            self.assertIn(words, reply.error["message"])


class Failures(HostCase):
    def test_exceptions_have_their_kinds(self):
        host = self.whole("def diff(self, ref):\n    raise eval(ref['value'])", head="from sandboxer_plugin import *")
        for value, message, data in (
            ("NotFound('object', 'k')", "no object 'k'", {"kind": "not_found", "what": "object", "name": "k"}),
            ("Usage('what?')", "what?", {"kind": "usage"}),
            ("AlreadyDecided('op')", "op", {"kind": "already_decided"}),
            ("Refused('no')", "no", {"kind": "refused"}),
            ("Usage('what?', hint='say more')", "what?", {"kind": "usage", "hint": "say more"}),
            ("Refused('no', hint='ask')", "no", {"kind": "refused", "hint": "ask"}),
            ("Unsupported('merge', 'why')", "cannot merge: why", {"kind": "unsupported", "what": "merge"}),
            ("Unavailable('down')", "down", {"kind": "unavailable"}),
            ("Busy('held')", "held", {"kind": "busy"}),
            ("Failed()", "Failed", {"kind": "failed"}),
            ("DigestMismatch('a', 'b')", "the difference has digest b, not a",
             {"kind": "digest_mismatch", "expected": "a", "found": "b"}),
            ("Uncommittable([('p', 'a fifo')])", "cannot be committed: p",
             {"kind": "uncommittable", "entries": [{"path": "p", "reason": "a fifo"}]}),
            ("FileNotFoundError(2, 'No such file', '/x')", "no file '/x'", {"kind": "not_found", "what": "file", "name": "/x"}),
            ("KeyError('x')", "KeyError: 'x'", {"kind": "failed"}),
            ("NotImplementedError()", "diff is not implemented", {"kind": "unsupported", "what": "diff"}),
            ("PermissionError(13, 'Denied', '/x')", "PermissionError: [Errno 13] Denied: '/x'", {"kind": "failed"}),
            ("ValueError('two\\nlines \\udcff')", "ValueError: two lines \ufffd", {"kind": "failed"}),
            ("Usage('half a pair: \\ud800')", "half a pair: ?", {"kind": "usage"}),
            ("SystemExit(3)", "SystemExit: 3", {"kind": "failed"}),
            ("KeyboardInterrupt()", "KeyboardInterrupt", {"kind": "failed"}),
        ):
            error = host.on("diff", metadata={"value": value}).error
            self.assertEqual((error["code"], error["message"], error["data"]), (-32000, message, data), value)
        many = host.on("diff", metadata={"value": "Conflicts(str(n) for n in range(9))"})
        self.assertTrue(many.error["message"].endswith(": 0, 1, 2, 3, 4 and 4 more"), many.error["message"])
        self.assertEqual(len(many.error["data"]["conflicts"]), 9)
        self.assertEqual(host.on("read", path="still").attachment, b"still")

    def test_the_traceback_of_what_was_not_meant_is_logged(self):
        host = self.whole("def diff(self, ref):\n    very_odd_name")
        self.assertIn("NameError", host.on("diff").error["message"])
        self.assertIn("Traceback", host.log())
        self.assertIn("very_odd_name", host.log())

    def test_an_exception_without_a_message_of_its_own_is_no_trap(self):
        host = self.whole("def diff(self, ref):\n    raise Odd()",
                          head="class Odd(Exception):\n    def __str__(self): raise RuntimeError()")
        self.assertEqual(host.on("diff").error["message"], "Odd: (its message cannot be read)")
