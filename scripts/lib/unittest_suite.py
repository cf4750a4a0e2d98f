"""Runs the unittest files of a directory: `unittest_suite.py DIRECTORY [TOP]`.

Skipped tests are listed in the file that SANDBOXER_SKIP_LOG names, as those in Rust are, and the closing line has the
form of cargo's, so that ./test adds them up in the same way.
"""

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
        line = f"skipped: {_name(test)}: {reason}"
        print(line, file=sys.stderr)
        if os.environ.get("SANDBOXER_SKIP_LOG"):
            with open(os.environ["SANDBOXER_SKIP_LOG"], "a", encoding="utf-8") as log:
                log.write(line + "\n")


def _name(test):
    """`module.Class.test`; of a class or a module that is skipped as a whole, its own."""
    name = test.id()
    return name[name.index("(") + 1:-1] if name.endswith(")") else name.replace("unittest.loader.ModuleSkipped.", "")


def main(directory, top=None):
    suite = unittest.defaultTestLoader.discover(directory, top_level_dir=top)
    if suite.countTestCases() == 0:
        sys.exit(f"no tests in {directory}")
    result = unittest.TextTestRunner(resultclass=Result, stream=sys.stderr).run(suite)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    word = "FAILED" if failed else "ok"
    print(f"test result: {word}. {result.passed} passed; {failed} failed; {len(result.skipped)} ignored")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
