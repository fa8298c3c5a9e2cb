# SPDX-License-Identifier: Apache-2.0
"""tests/e2e/test_jail_inject.py with every call and every shape, instead of a sample."""

import os
import pathlib
import sys
import unittest

os.environ.setdefault("BRIG_TEST_REPEAT", "1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from test_jail_inject import Allocations, Delegated, Root, Rootless  # noqa: E402,F401  (these are the tests)

if __name__ == "__main__":
    unittest.main()
