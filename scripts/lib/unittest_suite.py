"""Runs the unittest files of a directory: `unittest_suite.py ONE_IN DIRECTORY [TOP]`.

SANDBOXER_TEST_SEED chooses one test in ONE_IN; SANDBOXER_TEST_FULL=1 runs all.

Skipped tests are listed in the file that SANDBOXER_SKIP_LOG names, as those in Rust are, and the closing line has the
form of cargo's, so that ./test adds them up in the same way.
"""

import hashlib
import os
import sys
import unittest


class Result(unittest.TextTestResult):
    """Counts what passed, and says what was skipped and why."""

    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self.passed += 1

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        report_skip(_name(test), reason)


def report_skip(name, reason):
    line = f"skipped: {name}: {reason}"
    print(line, file=sys.stderr)
    if os.environ.get("SANDBOXER_SKIP_LOG"):
        with open(os.environ["SANDBOXER_SKIP_LOG"], "a", encoding="utf-8") as log:
            log.write(line + "\n")


def _name(test):
    """`module.Class.test`; of a class or a module that is skipped as a whole, its own."""
    name = test.id()
    return name[name.index("(") + 1:-1] if name.endswith(")") else name.replace("unittest.loader.ModuleSkipped.", "")


def tests_of(suite):
    """Every test of a suite of suites, in order."""
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from tests_of(item)
        else:
            yield item


def is_sampled(test, one_in):
    digest = hashlib.sha256(f"{os.environ.get('SANDBOXER_TEST_SEED', '')} {test.id()}".encode()).digest()
    return os.environ.get("SANDBOXER_TEST_FULL") == "1" or int.from_bytes(digest[:8], "big") % one_in == 0


def main(one_in, directory, top=None):
    tests = list(tests_of(unittest.defaultTestLoader.discover(directory, top_level_dir=top)))
    suite = unittest.TestSuite(test for test in tests if is_sampled(test, int(one_in)))
    if suite.countTestCases() == 0:
        sys.exit(f"no tests in {directory}")
    left_out = len(tests) - suite.countTestCases()
    if left_out:
        report_skip(directory, f"{left_out} of {len(tests)} tests are not in this run's sample; ./test --full runs them")
    result = unittest.TextTestRunner(resultclass=Result, stream=sys.stderr).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {result.passed} passed; {failed} failed; {len(result.skipped) + left_out} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
