# SPDX-License-Identifier: Apache-2.0
"""Letta's matrix and HumanEval with gVisor between the tools and the host: the tests of `local`, with another
provider."""

import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "compat")]

import test_human_eval  # noqa: E402  pylint: disable=wrong-import-position
import test_letta_api  # noqa: E402  pylint: disable=wrong-import-position
from carrykit import RUNSC_NEW  # noqa: E402  pylint: disable=wrong-import-position
from jailkit import needs_root  # noqa: E402  pylint: disable=wrong-import-position
from lettakit import ADD  # noqa: E402  pylint: disable=wrong-import-position

THERE = unittest.skipUnless(os.path.exists(RUNSC_NEW), f"there is no {RUNSC_NEW}: tools/runsc.sh build")
ENV = {"BRIG_MANAGER_PROVIDER": "runsc", "BRIG_RUNSC_PATH": RUNSC_NEW}


@needs_root
@THERE
class Letta(test_letta_api.Local):
    LIMIT_SECONDS = 300
    ENV = ENV

    def test_it_was_gvisor(self):
        receipt = self.run_tool(self.tool(ADD), {"x": 1, "y": 2})["receipt"]
        self.assertEqual((receipt["provider"], receipt["protection"]["layers"]["own_kernel"]["by"]),
                         ("runsc", "gvisor systrap"))


@needs_root
@THERE
class Eval(test_human_eval.HumanEval):
    LIMIT_SECONDS = 600
    ENV = ENV


if __name__ == "__main__":
    unittest.main()
