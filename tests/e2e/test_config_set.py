# SPDX-License-Identifier: Apache-2.0
"""The dependency set of a configuration: built again by recreate-venv and at the start, with the directory's
requirements.txt, and held by the pool while it has children with it."""

import os
import shutil
import tempfile

from helpers import wait_until
from lettakit import LettaTest, wheel

USE = ('def use() -> str:\n    """Uses."""\n    import os, one, two\n'
       '    return f"{one.version} {two.version} {os.environ[\'VIRTUAL_ENV\']}"\n')


class ConfigSet(LettaTest):
    @classmethod
    def setUpClass(cls):
        for name in ("wheels", "dir"):
            setattr(cls, name, tempfile.mkdtemp(prefix=f"brig-{name}-"))
            cls.addClassCleanup(shutil.rmtree, getattr(cls, name))
            os.chmod(getattr(cls, name), 0o755)
        cls.release("one", "1.0")
        cls.release("two", "1.0")
        cls.requires("two")
        cls.CONFIG = f'[sandbox]\nallowed_dirs = "{cls.dir}"\n[tools]\nfind_links = "{cls.wheels}"\n'
        cls.ENV = {"TOOL_EXEC_VENV_NAME": "mine", "TOOL_EXEC_AUTORELOAD_VENV": "true"}
        super().setUpClass()

    @classmethod
    def release(cls, name, version):
        wheel(cls.wheels, name, version, {f"{name}.py": f"version = '{version}'\n"})

    @classmethod
    def requires(cls, text):
        with open(f"{cls.dir}/requirements.txt", "w", encoding="utf-8") as f:
            f.write(f"{text}\n")

    def sets(self):
        return {s["key"]: s for s in self.ask("GET", "/pools")["sets"] if s["state"] == "ready"}

    def recreate(self, status=200):
        return self.ask("POST", "/sandbox-config/local/recreate-venv", status=status)

    def test_built_again(self):
        config = self.local(sandbox_dir=self.dir, use_venv=True, pip_requirements=[{"name": "one"}])
        tool = self.tool(USE)
        self.assertEqual(self.recreate()["id"], config["id"])
        made = self.sets()
        self.assertEqual(len(made), 1)
        # It is the run's: nothing else is built.
        self.assertEqual(self.run_tool(tool)["result"], "1.0 1.0 /opt/brig/mine")
        self.assertEqual(set(self.sets()), set(made))
        # The pool holds it for the children that lie there.
        key = next(iter(made))
        wait_until("one is parked",
                   lambda: any(p["requirements"] == key and p["parked"] for p in self.ask("GET", "/pools")["pools"]))
        wait_until("the run has given it back", lambda: self.sets()[key]["users"] == 1)
        # A newer one does not matter until somebody asks, and then at once: not what is parked.
        self.release("one", "2.0")
        self.release("two", "2.0")
        self.assertEqual(self.run_tool(tool)["result"], "1.0 1.0 /opt/brig/mine")
        self.recreate()
        self.assertEqual(self.run_tool(tool)["result"], "2.0 2.0 /opt/brig/mine")
        # At the start.
        self.release("two", "3.0")
        self.d.stop()
        self.d.start()
        wait_until("it is built again", lambda: self.run_tool(tool)["result"] == "2.0 3.0 /opt/brig/mine")
        self.assertNotIn("autoreload_venv", self.d.all_text())
        # What cannot be installed: the installer's words for who asks, one line at the start.
        self.requires("nosuchpackage")
        self.assertIn("nosuchpackage", self.recreate(status=400)["detail"])
        self.d.stop()
        self.d.start()
        wait_until("it is said", lambda: "autoreload_venv" in self.d.all_text())
        self.assertEqual(self.d.all_text().count("autoreload_venv"), 1)
        self.requires("two")
        self.assertEqual(self.run_tool(tool)["result"], "2.0 3.0 /opt/brig/mine")

    def test_needs_credentials_without_a_webhook(self):
        tool = self.tool('def needy():\n    """N."""\n    return 1\n', brig={"needs_credentials": True})
        answer = self.ask("POST", f"/tools/{tool['name']}/run", {}, status=503)
        self.assertEqual(answer["error"]["message"], "credentials: the tool needs them, and no webhook is configured")
