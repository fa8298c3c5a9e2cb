# SPDX-License-Identifier: Apache-2.0
"""1,000 random programs whose end is known: tests/e2e/test_truth.py, ten times over."""

import os
import pathlib
import sys

os.environ["BRIG_TEST_TIMES"] = "10"
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))
from test_truth import (AsATool, AsAToolRootless, InASandbox, InASandboxRootless,  # noqa: E402, F401
                        InASandboxUndelegated, Local, LocalRootless)
