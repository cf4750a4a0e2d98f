"""What is said of every form that a method can have."""

import functools
import unittest
import warnings
from typing import Protocol

from sandboxer_plugin import shape


class Callable:
    def __call__(self, ref, path):
        pass


class AsyncCallable:
    async def __call__(self, ref, path):
        pass


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper


def read_of(value):
    return shape.describe(type("Mine", (), {"read": value}))["read"]


def plain(names, required, rest=False):
    return {"parameters": names, "required": required, "rest": rest}


class Shape(unittest.TestCase):
    def test_methods_of_every_kind_have_parameters(self):
        two = plain(["ref", "path"], 2)
        self.assertEqual(read_of(lambda self, ref, path: 0), two)
        self.assertEqual(read_of(staticmethod(lambda ref, path: 0)), two)
        self.assertEqual(read_of(classmethod(lambda cls, ref, path: 0)), two)
        self.assertEqual(read_of(decorated(lambda self, ref, path: 0)), two)
        self.assertEqual(read_of(Callable()), two)
        self.assertEqual(read_of(functools.partialmethod(lambda self, a, ref, path: 0, 1)), two)

    def test_a_partial_is_described_as_it_is_called(self):
        Mine = type("Mine", (), {"read": functools.partial(lambda *given: given, 1)})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            names = ["self", "ref", "path"] if len(Mine().read(2, 3)) == 4 else ["ref", "path"]
        described = read_of(functools.partial(eval(f"lambda a, {', '.join(names)}: 0"), 1))
        self.assertEqual(described, plain(["ref", "path"], 2))

    def test_defaults_and_rest_are_told(self):
        self.assertEqual(read_of(lambda self, ref, path="": 0), plain(["ref", "path"], 1))
        self.assertEqual(read_of(lambda self, *rest: 0), plain([], 0, True))
        self.assertEqual(read_of(lambda *rest: 0), plain([], 0, True))
        self.assertEqual(read_of(lambda self, ref, path, *, fast=False, **more: 0), plain(["ref", "path"], 2))

    def test_what_is_wrong_says_so(self):
        async def coroutine(self, ref, path): pass
        async def stream(self, ref, path): yield
        def generator(self, ref, path): yield
        for value, word in (
            (coroutine, "is a coroutine"), (staticmethod(coroutine), "is a coroutine"),
            (AsyncCallable(), "is a coroutine"), (stream, "is an asynchronous generator"),
            (generator, "is a generator"), (property(lambda self: 0), "is a property"), (3, "is not a method"),
            (None, "is not a method"), (int, "is not a method"), (lambda: 0, "has no parameter for self"),
            (lambda self, ref, path, *, key: 0, "needs the keyword argument 'key'"),
        ):
            self.assertEqual(read_of(value), {"wrong": word})

    def test_protocols_of_other_people_are_promises_too(self):
        class Theirs(Protocol):
            def read(self, ref, path): ...
        class Mine(Theirs):
            def diff(self, ref): ...
        self.assertEqual(list(shape.describe(Mine)), ["diff"])

    def test_methods_are_inherited(self):
        class Base:
            def read(self, ref, path): ...
        self.assertEqual(list(shape.describe(type("Mine", (Base,), {}))), ["read"])

    def test_a_commit_may_leave_the_request_out(self):
        counts = [shape.accepted(described, "commit") for described in (
            plain(["ref"], 1), plain(["ref", "request"], 2), plain(["ref", "request"], 1), plain([], 0, True),
            plain([], 0), plain(["a", "b", "c"], 3), {"wrong": "is a coroutine"}, None)]
        self.assertEqual(counts, [1, 2, 2, 2, None, None, None, None])
