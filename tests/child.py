# SPDX-License-Identifier: Apache-2.0
"""One unittest module in a process of its own, for tests/run.py: MODULE FD PREFIX DONE [PATTERN...]"""

import fnmatch
import json
import os
import pathlib
import sys
import time
import unittest

import lanes


class Child(unittest.TestResult):
    """In the child: one JSON line per event on a private descriptor, since tests may print what they like."""

    def __init__(self, out):
        super().__init__()
        self.out, self.began, self.bad = out, 0.0, None

    def send(self, **event):
        self.out.write(json.dumps(event) + "\n")
        self.out.flush()

    @staticmethod
    def name(test):
        parts = test.id().split(".")
        return ".".join(parts[-2:]) if hasattr(test, "_testMethodName") else test.id()

    def startTest(self, test):
        super().startTest(test)
        self.began, self.bad, self.skip = time.monotonic(), None, None
        self.send(event="start", name=self.name(test), limit=getattr(test, "LIMIT_SECONDS", None))

    def stopTest(self, test):
        status = "fail" if self.bad else "skip" if self.skip is not None else "pass"
        self.send(event="end", name=self.name(test), status=status, seconds=time.monotonic() - self.began,
                  detail=self.bad or self.skip or "")
        super().stopTest(test)

    def failure(self, test, err):
        text = self._exc_info_to_string(err, test)  # without unittest's own frames
        if hasattr(test, "_testMethodName") or hasattr(test, "test_case"):
            self.bad = (self.bad or "") + text
        else:  # setUpModule, setUpClass, a module that does not load
            self.send(event="end", name=test.id(), status="fail", seconds=0, detail=text)

    addError = failure
    addFailure = failure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.bad = (self.bad or "") + f"{subtest}\n"  # which of them it was
            self.failure(test, err)

    def addSkip(self, test, reason):
        if hasattr(test, "_testMethodName"):
            self.skip = reason
            if not self.began:
                self.send(event="end", name=self.name(test), status="skip", seconds=0, detail=reason)
        else:
            self.send(event="end", name=test.id(), status="skip", seconds=0, detail=reason)

    def addUnexpectedSuccess(self, test):
        self.bad = "it was expected to fail, and passed"


def flatten(suite):
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flatten(t)
        else:
            yield t


def matches(name, patterns):
    return not patterns or any(p in name or fnmatch.fnmatch(name, p) for p in patterns)


def main(path, fd, prefix, done, *patterns):
    """One module, minus the tests in `done`."""
    if os.environ.get("BRIG_TEST_LANE"):
        lanes.enter(os.environ["BRIG_TEST_LANE"])
    with os.fdopen(int(fd), "w") as out:
        result = Child(out)
        sys.path[:0] = [os.path.dirname(path), os.path.dirname(os.path.abspath(__file__))]
        name = pathlib.Path(path).stem
        suite = unittest.TestLoader().loadTestsFromName(name)
        wanted = [t for t in flatten(suite) if Child.name(t) not in json.loads(done)
                  and matches(f"{prefix}:{Child.name(t)}", patterns)]
        unittest.TestSuite(wanted).run(result)
        result.send(event="done")


if __name__ == "__main__":
    main(*sys.argv[1:])
