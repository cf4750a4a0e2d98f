"""`initialize`: what is imported, found, looked at and made."""

from sandboxer_plugin import wire

from .client import WHOLE, HostCase

NINE = ["create", "read", "write", "diff", "commit", "rollback", "checkpoint", "restore_checkpoint", "cleanup"]


class Handshake(HostCase):
    def test_a_whole_strategy_is_described(self):
        host = self.start()
        self.module('class Mine:\n    """Keeps\n    things."""\n' + WHOLE)
        answer = host.initialize().result
        self.assertEqual((answer["protocol"], answer["role"], answer["concurrency"]), (1, "strategy", 1))
        self.assertEqual(list(answer["methods"]), NINE)
        self.assertEqual(
            answer["methods"]["write"], {"parameters": ["ref", "path", "content"], "required": 3, "rest": False}
        )
        declared = [name for name, value in answer["capabilities"].items() if value]
        self.assertEqual(declared, ["isolates", "checkpoints"])
        self.assertEqual(answer["summary"], "Keeps")

    def test_what_it_declares_is_told(self):
        self.module("class Mine:\n    capabilities = {'ranges': True, 'checkpoints': False, 'flies': True}\n"
                    "    concurrency = 4\n    summary = 'Mine.'\n" + WHOLE)
        answer = self.start().initialize().result
        declared = [name for name, value in answer["capabilities"].items() if value]
        self.assertEqual(sorted(declared), ["flies", "isolates", "ranges"])
        self.assertEqual((answer["concurrency"], answer["summary"]), (4, "Mine."))

    def test_capabilities_of_the_instance_count(self):
        self.module("from sandboxer_plugin import Capabilities\nclass Mine:\n    def __init__(self, tree):\n"
                    "        self.capabilities = Capabilities(file_tree=tree, resource_types=('bucket',))\n" + WHOLE)
        answer = self.start().initialize(options={"tree": True}).result
        self.assertTrue(answer["capabilities"]["file_tree"])
        self.assertEqual(answer["capabilities"]["resource_types"], ["bucket"])

    def test_wrong_declarations_are_usage_errors(self):
        for wrong in ("capabilities = 3", "concurrency = 0", "concurrency = 65", "concurrency = True"):
            self.module(f"class Mine:\n    {wrong}\n" + WHOLE)
            reply = self.start().initialize()
            self.assertEqual(reply.kind, "usage", wrong)
            self.assertIn(wrong.split()[0], reply.error["message"])

    def test_another_protocol_or_role_is_refused(self):
        self.module("class Mine:" + WHOLE)
        host = self.start()
        self.assertEqual(host.initialize(protocol=2).error["data"], {"kind": "unsupported", "what": "protocol"})
        self.assertEqual(host.initialize(role="oracle").error["data"], {"kind": "unsupported", "what": "role"})
        self.assertEqual(host.initialize(module=None).error["code"], wire.INVALID_PARAMS)
        self.assertEqual(host.initialize(state=3).error["code"], wire.INVALID_PARAMS)
        self.assertEqual(host.initialize(timeout_ms="1").error["code"], wire.INVALID_PARAMS)
        host.initialize().result

    def test_a_module_that_cannot_be_imported_is_named_in_one_line(self):
        self.module("import nothing_like_it")
        self.module("def", "broken")
        self.module("import sys; sys.exit(3)", "leaving")
        host = self.start()
        for module, cause in (("absent", "ModuleNotFoundError: No module named 'absent'"),
                              ("mine", "ModuleNotFoundError: No module named 'nothing_like_it'"),
                              ("broken", "SyntaxError: "), ("leaving", "SystemExit: 3")):
            reply = host.initialize(module=module)
            self.assertEqual(reply.kind, "failed")
            self.assertIn(f"cannot import {module}: {cause}", reply.error["message"])
            self.assertNotIn("\n", reply.error["message"])
        self.assertIn("Traceback", host.log())

    def test_a_missing_class_is_a_usage_error_with_near_names(self):
        self.module("class BucketStrategy: pass\nclass Outer:\n    class Inner: pass\nvalue = 3")
        host = self.start()
        reply = host.initialize(**{"class": "Bucketstrategie"})
        self.assertEqual(reply.kind, "usage")
        self.assertEqual(reply.error["message"], "mine has no class Bucketstrategie; it has BucketStrategy")
        self.assertIn("it has Inner", host.initialize(**{"class": "Outer.Iner"}).error["message"])
        self.assertIn("is no class but int", host.initialize(**{"class": "value"}).error["message"])

    def test_nested_classes_are_found(self):
        self.module("class Outer:\n    class Mine:" + WHOLE.replace("\n    ", "\n        "))
        self.assertEqual(list(self.start().initialize(**{"class": "Outer.Mine"}).result["methods"]), NINE)

    def test_options_are_given_to_the_constructor(self):
        host = self.whole("def __init__(self, region='x', **more):\n    self.region = region\n"
                          "def read(self, ref, path):\n    return self.region.encode()", options={"region": "eu", "a": 1})
        self.assertEqual(host.on("read", path="a").attachment, b"eu")

    def test_options_that_do_not_fit_are_usage_errors(self):
        self.module("class Mine:\n    def __init__(self, bucket):\n        pass\n" + WHOLE)
        host = self.start()
        self.assertIn("'bucket'", host.initialize().error["message"])
        reply = host.initialize(options={"bucket": 1, "regoin": 2})
        self.assertEqual(reply.kind, "usage")
        self.assertIn("mine:Mine", reply.error["message"])
        self.assertIn("'regoin'", reply.error["message"])

    def test_a_constructor_that_raises_is_named(self):
        self.module("class Mine:\n    def __init__(self):\n        raise RuntimeError('no\\nway')\n" + WHOLE)
        host = self.start()
        reply = host.initialize()
        self.assertEqual((reply.kind, reply.error["message"]), ("failed", "cannot make mine:Mine: RuntimeError: no way"))
        self.assertIn("Traceback", host.log())

    def test_the_state_directory_is_known_at_import(self):
        self.module("import sandboxer_plugin\nSTATE = sandboxer_plugin.state_directory()\nclass Mine:" + WHOLE
                    + "    def diff(self, ref):\n        raise RuntimeError(STATE)")
        host = self.start()
        host.initialize(state="/some/state").result
        self.assertIn("/some/state", host.on("diff").error["message"])

    def test_a_plugin_may_be_called_host(self):
        self.module("class Mine:" + WHOLE, "host")
        self.assertEqual(list(self.start().initialize(module="host").result["methods"]), NINE)


class Incomplete(HostCase):
    """Classes that cannot be strategies: described, never made."""

    HEAD = "    def __init__(self):\n        raise RuntimeError('it was made')\n"

    def described(self, body: str, head: str = "") -> dict:
        self.module(f"{head}\nclass Mine:\n{self.HEAD}{WHOLE}{body}")
        return self.start().initialize().result["methods"]

    def test_missing_methods_are_left_out(self):
        self.module("class Mine:\n" + self.HEAD + "    def read(self, ref, path): pass\n")
        self.assertEqual(list(self.start().initialize().result["methods"]), ["read"])

    def test_a_coroutine_says_so(self):
        methods = self.described("    async def read(self, ref, path): pass\n")
        self.assertEqual(methods["read"], {"wrong": "is a coroutine"})
        self.assertEqual(list(methods), NINE)

    def test_signatures_that_do_not_fit_are_described(self):
        methods = self.described("    def write(self, ref): pass\n")
        self.assertEqual(methods["write"], {"parameters": ["ref"], "required": 1, "rest": False})

    def test_what_is_inherited_from_the_protocol_is_missing(self):
        self.module("from sandboxer_plugin import SandboxStrategy\nclass Mine(SandboxStrategy):\n" + self.HEAD
                    + "    def read(self, ref, path): pass\n")
        self.assertEqual(list(self.start().initialize().result["methods"]), ["read"])

    def test_abstract_methods_are_missing(self):
        self.module("import abc\nclass Mine(abc.ABC):\n" + self.HEAD + WHOLE
                    + "    @abc.abstractmethod\n    def diff(self, ref): pass\n")
        self.assertEqual(list(self.start().initialize().result["methods"]), [name for name in NINE if name != "diff"])

    def test_a_whole_heir_of_the_protocol_is_made(self):
        self.module("from sandboxer_plugin import SandboxStrategy\nclass Mine(SandboxStrategy):\n" + WHOLE)
        host = self.start()
        self.assertEqual(list(host.initialize().result["methods"]), NINE)
        self.assertEqual(host.on("read", path="x").attachment, b"x")
