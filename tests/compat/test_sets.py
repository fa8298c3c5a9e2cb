# SPDX-License-Identifier: Apache-2.0
"""Dependency sets from the index and the registry that this machine is configured for, through the gate: the tests of
Letta's suite that want a network (A9, A11, A12, T12).  What comes without a network is in tests/e2e."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from lettakit import COWSAY, LettaTest  # noqa: E402  pylint: disable=wrong-import-position

PYTHON = "/usr/bin/python3"
SYSTEM_PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
INDEX = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST", "npm_config_registry", "NPM_CONFIG_REGISTRY")
BOTH = '''
def both() -> str:
    """Uses what the configuration has and what the tool has."""
    import cowsay
    import idna
    return idna.encode("b\\u00fccher.example").decode() + " " + cowsay.get_output_string("cow", "moo")[-4:].strip()
'''
MATRIX = '''
def matrix(n: int) -> dict:
    """
    Multiplies.

    Args:
        n (int): How large.
    """
    import numpy as np
    product = np.ones((n, n)) @ np.eye(n)
    return {"sum": product.sum(), "row": product[0], "shape": product.shape, "largest": np.int64(2) ** 40}
'''
GREETING = '''
function greeting(who) {
    const _ = require("lodash");
    return _.capitalize(_.join(["hello", who], " "));
}
'''
AS_MODULE = '''
import _ from "lodash";
export function greeting(who) {
    return _.capitalize(_.join(["hello", who], " "));
}
'''


def answers(*command):
    """Whether the host's own client gets something there, in a directory that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="brig-compat-") as where:
        try:
            return subprocess.run([*command], cwd=where, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                                  check=False,
                                  env={**os.environ, "PATH": SYSTEM_PATH, "npm_config_cache": where}).returncode == 0
        except (OSError, subprocess.TimeoutExpired):
            return False


class Configured(LettaTest):
    """One daemon, whose host is configured as this machine is."""

    ENV = {n: os.environ[n] for n in INDEX if n in os.environ}

    def sets(self):
        """The sets there are, by inode and time: one that was built again is another."""
        with os.scandir(os.path.join(self.d.dir, "cache", "sets")) as entries:
            return sorted((e.name, e.inode(), e.stat(follow_symlinks=False).st_mtime_ns)
                          for e in entries if e.is_dir(follow_symlinks=False))


class Pip(Configured):
    @classmethod
    def setUpClass(cls):
        if not answers("env", "-u", "PIP_FIND_LINKS", "-u", "PIP_NO_INDEX", PYTHON, "-m", "pip", "download", "-q",
                       "--no-deps", "--no-cache-dir", "--retries", "0", "--timeout", "10", "idna"):
            raise unittest.SkipTest("the configured Python index does not answer")
        super().setUpClass()

    def test_A9_local_sandbox_with_venv_pip_installs_basic(self):
        self.local(use_venv=True, pip_requirements=[{"name": "cowsay"}])
        ran = self.source(COWSAY, env_vars={"secret_word": "abc"})
        self.assertEqual(ran["status"], "success", ran)
        self.assertIn("| abc |", ran["stdout"][0])
        built = self.sets()
        self.assertIn("| def |", self.source(COWSAY, env_vars={"secret_word": "def"})["stdout"][0])
        self.assertEqual(self.sets(), built)  # the second run uses the built one

    def test_A11_local_sandbox_with_mixed_pip_requirements(self):
        self.local(use_venv=True, pip_requirements=[{"name": "cowsay"}])
        tool = self.tool(BOTH, pip_requirements=[{"name": "idna", "version": "3.7"}])
        self.assertEqual(self.run_tool(tool)["result"], "xn--bcher-kva.example ||")

    def test_A12_local_sandbox_with_venv_pip_installs_with_update(self):
        config = self.local(use_venv=True, pip_requirements=[])
        ran = self.source(COWSAY)
        self.assertEqual((ran["status"], ran["stdout"]), ("error", []))
        self.assertIn("No module named 'cowsay'", ran["stderr"][0])
        self.ask("PATCH", f"/sandbox-config/{config['id']}",
                 {"config": {"pip_requirements": [{"name": "cowsay", "version": "6.1"}]}})
        ran = self.source(COWSAY, env_vars={"secret_word": "abc"})
        self.assertEqual(ran["status"], "success", ran)
        self.assertIn("| abc |", ran["stdout"][0])

    def test_a_package_with_machine_code(self):
        self.local(use_venv=True, pip_requirements=[])
        tool = self.tool(MATRIX, pip_requirements=[{"name": "numpy"}])
        ran = self.run_tool(tool, {"n": 3})
        self.assertEqual(ran["result"], {"sum": 9.0, "row": [1.0, 1.0, 1.0], "shape": [3, 3], "largest": 1 << 40}, ran)
        built = self.sets()
        self.assertEqual(self.run_tool(tool, {"n": 4})["result"]["sum"], 16.0)
        self.assertEqual(self.sets(), built)


class Npm(Configured):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("npm", path=SYSTEM_PATH):
            raise unittest.SkipTest("no npm")
        if not answers("npm", "pack", "--silent", "--fetch-retries=0", "lodash@4.17.21"):
            raise unittest.SkipTest("the configured npm registry does not answer")
        super().setUpClass()

    def greeting(self, source):
        return self.tool(
            source, source_type="javascript", npm_requirements=[{"name": "lodash", "version": "4.17.21"}], json_schema={
                "name": "greeting", "description": "Greets.",
                "parameters": {"type": "object", "properties": {"who": {"type": "string"}}, "required": ["who"]}})

    def test_T12_npm_requirement(self):
        tool = self.greeting(GREETING)
        ran = self.run_tool(tool, {"who": "world"})
        self.assertEqual((ran["status"], ran["result"]), ("success", "Hello world"), ran)
        built = self.sets()
        self.assertEqual(self.run_tool(tool, {"who": "you"})["result"], "Hello you")
        self.assertEqual(self.sets(), built)

    def test_T12_npm_requirement_imported(self):
        ran = self.run_tool(self.greeting(AS_MODULE), {"who": "world"})
        self.assertEqual((ran["status"], ran["result"]), ("success", "Hello world"), ran)
