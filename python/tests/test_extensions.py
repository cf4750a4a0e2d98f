"""The role `extension` over the wire."""

from .client import HostCase

WHOLE = '''
    made = {}
    def provision(self, request):
        assert request["image"] == "debian" and request.mounts[0].from_ == "/w" and request.options == {"image": "debian"}
        self.made[request.sandbox_id] = "process 7"
        return Handle({"pid": 7}, exec=["nsenter"])
    def wait_ready(self, handle, deadline_ms):
        if deadline_ms < 10:
            raise NotReady(f"pid {handle['pid']} does not answer")
        return {"endpoints": [Endpoint("80/tcp", "127.0.0.1", 4000)]}
    def teardown(self, sandbox_id, handle):
        assert handle is None or handle.data == {"pid": 7}
        self.made.pop(sandbox_id, None)
    def inspect(self, sandbox_id):
        return [Found(id, what) for id, what in self.made.items() if sandbox_id in (None, id)]
'''
REQUEST = {"sandbox_id": "sbx_1", "name": "try", "options": {"image": "debian"}, "later": 1,
           "mounts": [{"workspace": "a", "from": "/w", "at": "/srv"}]}
HANDLE = {"version": 1, "sandbox_id": "sbx_1", "data": {"pid": 7}, "exec": ["nsenter"]}


class Extensions(HostCase):
    def extension(self, methods=WHOLE):
        self.module("from sandboxer_plugin import *\n\nclass Mine:" + methods)
        host = self.start()
        self.welcome = host.initialize(role="extension").result
        return host

    def test_a_life(self):
        host = self.extension()
        made = host.call("provision", {"request": REQUEST}).result
        self.assertEqual(made, {"data": {"pid": 7}, "version": 1, "exec": ["nsenter"], "exec_on_terminal": []})
        told = host.call("wait_ready", {"handle": HANDLE, "deadline_ms": 1}).error
        self.assertEqual((told["message"], told["data"]), ("pid 7 does not answer", {"kind": "not_ready"}))
        ready = host.call("wait_ready", {"handle": HANDLE, "deadline_ms": 1000}).result
        self.assertEqual(ready, {"endpoints": [{"name": "80/tcp", "host": "127.0.0.1", "port": 4000}]})
        for sandbox_id, count in (("sbx_1", 1), (None, 1), ("sbx_2", 0)):
            self.assertEqual(len(host.call("inspect", {"sandbox_id": sandbox_id}).result), count)
        for handle in (HANDLE, None):
            self.assertIsNone(host.call("teardown", {"sandbox_id": "sbx_1", "handle": handle}).result)
        self.assertEqual(host.call("inspect", {"sandbox_id": None}).result, [])

    def test_what_it_has_is_told_and_no_strategy_is_asked_for(self):
        host = self.extension()
        self.assertEqual(self.welcome["role"], "extension")
        self.assertEqual(sorted(self.welcome["methods"]), ["inspect", "provision", "teardown", "wait_ready"])
        self.assertIsNone(self.welcome["capabilities"])
        self.assertIn("no method 'create'", host.call("create", {}).error["message"])
        self.assertIn("a plugin that has it", host.call("health", {}).error["message"])

    def test_what_is_missing_or_odd_is_described_and_nothing_is_made(self):
        host = self.extension("""
    def __init__(self):
        raise RuntimeError("it was made")
    async def provision(self, request): pass
    def health(self, of): pass
""")
        self.assertEqual(self.welcome["methods"]["provision"], {"wrong": "is a coroutine"})
        self.assertEqual(self.welcome["methods"]["health"], {"parameters": ["of"], "required": 1, "rest": False})
        self.assertNotIn("inspect", self.welcome["methods"])
        self.assertEqual(host.call("provision", {"request": REQUEST}).error["code"], -32600)

    def test_optional_methods_are_called_where_they_are(self):
        host = self.extension(WHOLE + '''
    def health(self):
        return Health("unhealthy", "no disk")
    def estimate_cost(self, request):
        return {"per_hour": 2}
''')
        self.assertEqual(host.call("health", {}).result, {"state": "unhealthy", "reason": "no disk"})
        self.assertEqual(host.call("estimate_cost", {"request": REQUEST}).result, {"per_hour": 2})

    def test_wrong_results_are_named(self):
        for method, value, words in (
            ("provision", "None", "must be Handle or a dict"),
            ("provision", "Handle(exec='sh')", "exec must be a list of words"),
            ("wait_ready", "Ready([{'name': 'x', 'host': 'h', 'port': 70000}])", "endpoints[0].port is 70000"),
            ("inspect", "None", "must be a list"),
            ("inspect", "[Found('sbx_1', 3)]", "what must be text"),
        ):
            parameters = {"provision": "self, request", "wait_ready": "self, handle, deadline_ms", "inspect": "self, sandbox_id"}
            host = self.extension(WHOLE + f"    def {method}({parameters[method]}):\n        return {value}\n")
            params = {"request": REQUEST, "handle": HANDLE, "deadline_ms": 1, "sandbox_id": None}
            self.assertIn(words, host.call(method, params).error["message"], (method, value))
