# SPDX-License-Identifier: Apache-2.0
"""Tools and snippets on a template: its interpreter, its files, packages that are built on it, and children that are
parked for it."""

import functools
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import unittest

from helpers import wait_until
from imagekit import Image, base_layer, entry, read, tar
from test_templates import TemplateTest
from wheelkit import HAS_PIP, wheel

AT = "opt/py"  # not where the host has its own: the image's PATH finds it
WHERE = "import sys\nprint(sys.prefix, open('/marker').read().strip(), __import__('os').getuid())\n"


def libraries(path):
    listed = subprocess.run(["ldd", path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False).stdout
    return {name.lstrip("/"): os.path.realpath(name) for name in re.findall(r"(/\S+)", listed.decode())}


def tree(top, to, found, leave=()):
    for path, names, files in os.walk(top):
        names[:] = [n for n in names if n not in ("__pycache__", "test", "tests", "idlelib", "tkinter", *leave)]
        for name in files:
            found[f"{to}/{os.path.relpath(os.path.join(path, name), top)}"] = os.path.join(path, name)


@functools.lru_cache
def python_layer(marker):
    """The host's own Python, with its library, pip and the few programs that an installer needs."""
    python = os.path.realpath("/usr/bin/python3")
    found = {f"{AT}/bin/python3": python, **libraries(python)}
    stdlib = f"/usr/lib/python{sys.version_info.major}.{sys.version_info.minor}"
    tree(stdlib, f"{AT}/lib/{os.path.basename(stdlib)}", found, ("dist-packages",))
    if os.path.isdir("/usr/lib/python3/dist-packages/pip"):
        tree("/usr/lib/python3/dist-packages/pip", f"{AT}/lib/python3/dist-packages/pip", found)
    for module in [p for p in found.values() if p.endswith(".so")]:
        found.update(libraries(module))
    for program in ("mkdir", "tail", "chmod", "cp", "uname", "tr"):
        found[f"bin/{program}"] = os.path.realpath(shutil.which(program))
        found.update(libraries(found[f"bin/{program}"]))
    return tar(entry("marker", marker), *(entry(name, read(path), 0o755) for name, path in sorted(found.items())))


@unittest.skipUnless(os.path.isfile("/usr/bin/python3") and sysconfig.get_platform().startswith("linux"), "no python3")
class Tools(TemplateTest):
    @classmethod
    def setUpClass(cls):
        cls.wheels = tempfile.mkdtemp(prefix="brig-wheels-")
        cls.addClassCleanup(shutil.rmtree, cls.wheels)
        os.chmod(cls.wheels, 0o755)
        wheel(cls.wheels, "one", "1.0")
        cls.CONFIG = f'[tools]\nfind_links = "{cls.wheels}"\n'
        super().setUpClass()

    def python(self, name, marker, query=""):
        image = Image(base_layer(), python_layer(marker), config={"Env": [f"PATH=/{AT}/bin:/bin"], "User": "33"},
                      compress=False)
        return self.loaded(image.oci(), f"name={name}{query}")

    def said(self, status=200, **members):
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": WHERE, **members})
        self.assertEqual(answer.status, status, answer)
        return answer.json["stdout"].split() if status == 200 else answer.json["error"]["message"]

    def test_a_snippet_and_a_tool(self):
        self.python("py", b"first\n")
        self.assertEqual(self.said(template="py"), [f"/{AT}", "first", "1000"])
        self.assertEqual(self.said(template="host", code="import sys\nprint(sys.prefix)\n"), ["/usr"])
        wait_until("one is parked for it", lambda: any(
            p["template"] == "py" and p["parked"] for p in self.d.ask("GET", "/v1/pools").json["pools"]))
        made = self.d.ask("POST", "/v1/tools/", {
            "source_code": "def where() -> str:\n    \"\"\"Says where.\"\"\"\n    import sys\n    return sys.prefix\n"})
        self.assertEqual(made.status, 200, made)
        told = self.d.ask("PATCH", f"/v1/tools/{made.json['id']}", {"metadata_": {"template": "py"}})
        self.assertEqual(told.status, 200, told)
        ran = self.d.ask("POST", "/v1/tools/where/run", {"args": {}})
        self.assertEqual((ran.status, ran.json["result"]), (200, f"/{AT}"), ran)
        # A name that moves is another pool: what was parked for the old image is not used.
        self.python("py", b"second\n", "&replace=true")
        self.assertEqual(self.said(template="py"), [f"/{AT}", "second", "1000"])

    @unittest.skipUnless(HAS_PIP, "no pip")
    def test_in_a_sandbox_of_a_template(self):
        """The run names no template; the sandbox has one, and its interpreter lies elsewhere than the host's."""
        self.python("inbox", b"inbox")
        box = self.d.create(template="inbox", user="user")["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.assertEqual(self.said(sandbox_id=box), [f"/{AT}", "inbox", "1000"])

    def test_packages_are_built_on_it(self):
        self.python("pip", b"x\n")
        code = "import one, sys\nprint(one.said, sys.prefix)\n"
        for template, prefix in (("pip", f"/{AT}"), ("host", "/usr")):
            said = self.said(template=template, code=code, pip_requirements=["one"])
            self.assertEqual(said[:2], ["one", "1.0"])
            self.assertTrue(said[2].startswith((prefix, "/opt/brig")), said)
        keys = {s["key"] for s in self.d.ask("GET", "/v1/pools").json["sets"] if s["state"] == "ready"}
        self.assertEqual(len(keys), 2)  # one for each interpreter

    def test_what_is_refused(self):
        self.loaded(Image(base_layer(), config={"Env": ["PATH=/bin"]}).oci(), "name=nopython")
        self.assertIn("template nosuch: nothing here can supply it", self.said(400, template="nosuch"))
        box = self.d.create()["id"]
        self.addCleanup(self.d.ask, "DELETE", f"/v1/sandboxes/{box}")
        self.assertIn("template: not with sandbox_id or reuse", self.said(400, template="nopython", sandbox_id=box))
        answer = self.d.ask("POST", "/v1/run", {"language": "python", "code": "1", "template": "nopython",
                                                "pip_requirements": ["one"]})
        self.assertIn("the template has neither Python nor Node", answer.body.decode())
