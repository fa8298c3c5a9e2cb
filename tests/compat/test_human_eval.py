# SPDX-License-Identifier: Apache-2.0
"""HumanEval's 164 canonical solutions with their tests, each a run of its own in a fresh sandbox, through the tool API
of one daemon. The data is not ours and not in the repository: it is looked for in BRIG_TEST_DATA, and beside the
clone."""

import concurrent.futures
import gzip
import json
import os
import pathlib
import sys
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(1, str(ROOT / "tests" / "e2e"))

from lettakit import LettaTest  # noqa: E402  pylint: disable=wrong-import-position

NAME = "HumanEval.jsonl.gz"
DATA = pathlib.Path(os.environ.get("BRIG_TEST_DATA") or "/nonexistent", NAME)
SCHEMA = {"name": "run_tests", "description": "Runs the tests of one task.",
          "parameters": {"type": "object", "properties": {"task": {"type": "string"}}, "required": ["task"]}}


def source(task):
    """One tool: the solution as it was published, its tests, and a function that says that they were all run."""
    return (f"{task['prompt']}{task['canonical_solution']}\n{task['test']}\n\n"
            f"def run_tests(task: str) -> str:\n    check({task['entry_point']})\n    return 'passed ' + task\n")


class HumanEval(LettaTest):
    @classmethod
    def setUpClass(cls):
        if not DATA.exists():
            raise unittest.SkipTest(f"BRIG_TEST_DATA names no directory with {NAME}")
        with gzip.open(DATA, "rt", encoding="utf-8") as f:
            cls.tasks = [json.loads(line) for line in f]
        super().setUpClass()

    def one(self, task):
        ran = self.source(source(task), {"task": task["task_id"]}, name="run_tests", json_schema=SCHEMA)
        return None if (ran["status"], ran["tool_return"]) == (
            "success", f"passed {task['task_id']}") else f"{task['task_id']}: {ran['tool_return'][:300]}"

    def test_canonical_solutions(self):
        self.assertEqual(len(self.tasks), 164)
        self.one(self.tasks[0])  # an interpreter is up
        start = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            bad = [b for b in pool.map(self.one, self.tasks) if b]
        took = time.monotonic() - start
        line = (f"HumanEval: {len(self.tasks) - len(bad)} of {len(self.tasks)} passed, {len(self.tasks) / took:.1f} "
                "tasks per second\n")
        pathlib.Path(os.environ["BRIG_BUILD_DIR"], "human_eval.txt").write_text(line, encoding="utf-8")
        print(line, end="")
        self.assertEqual(bad, [])

    def test_a_wrong_solution_fails(self):
        task = dict(self.tasks[0], canonical_solution="    return True\n")
        self.assertIn("AssertionError", self.one(task))
