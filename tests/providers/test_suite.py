# SPDX-License-Identifier: Apache-2.0
"""The same checks on every provider. What each must see is in suite_programs.py and suite_life.py, beside the check
(rows.py); docs/PROVIDERS-TABLE.md shows all of it."""

import os
import pathlib
import shutil
import unittest

from fleet import FleetTest
from rows import Refused, documented
from suite_life import Life, Limits, Network, Roots, Statement
from suite_programs import Files, Ports, Programs, Tools


def tearDownModule():
    FleetTest.end()


class Suite(Programs, Files, Ports, Tools, Limits, Life, Network, Roots, Statement, FleetTest):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        small = cls.service.share / "templates/small/bin"
        if not small.exists():
            small.mkdir(parents=True)
            shutil.copy(shutil.which("busybox"), small / "sh")
        cls.box = cls.d.create(provider=cls.provider, limits=cls.limits)["id"]
        cls.addClassCleanup(cls.d.ask, "DELETE", f"/v1/sandboxes/{cls.box}")

    def asked(self, method, path, body=None, daemon=None):
        """The document of an answer. Refused, if it is a refusal."""
        answer = (daemon or self.d).ask(method, path, body)
        if answer.status >= 400:
            raise Refused(answer)
        return answer.json if answer.body else None

    def make(self, daemon=None, **members):
        asked = {"provider": self.provider, **members, "limits": {**self.limits, **members.get("limits", {})}}
        box = self.asked("POST", "/v1/sandboxes", asked, daemon)["id"]
        self.addCleanup((daemon or self.d).ask, "DELETE", f"/v1/sandboxes/{box}")
        return box

    def run_once(self, **members):
        """A tool run on this provider and no other."""
        return self.asked("POST", "/v1/run", {"provider": self.provider, "fallback": "none", **members,
                                              "limits": {**self.limits, **members.get("limits", {})}})

    @staticmethod
    def members(box):
        """The host's processes in its cgroups."""
        found = set()
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and box in (entry / "cgroup").read_text(encoding="utf-8"):
                    found.add(int(entry.name))
            except (FileNotFoundError, ProcessLookupError):
                pass  # it has ended meanwhile
        return found

    def test_capabilities_are_those_of_the_document(self):
        self.assertEqual(self.can, documented()[self.provider])


class InLocal(Suite, unittest.TestCase):
    COLUMN = "local"


class InRunc(Suite, unittest.TestCase):
    COLUMN = "runc"


class InCrun(Suite, unittest.TestCase):
    COLUMN = "crun"


class InRunsc(Suite, unittest.TestCase):
    COLUMN = "runsc"


class InDocker(Suite, unittest.TestCase):
    COLUMN = "docker"


class InVm(Suite, unittest.TestCase):
    COLUMN = "vm"


class InOldRunsc(Suite, unittest.TestCase):
    COLUMN = "runsc-2022"


class InPodman(Suite, unittest.TestCase):
    COLUMN = "podman"


if __name__ == "__main__":
    os.environ.setdefault("BRIG_TEST_PROVIDERS", "1")
    unittest.main()
