# SPDX-License-Identifier: Apache-2.0
"""One service with every provider that this machine has, for tests that run on all of them. Two are needed: an engine
is Docker or Podman, and a runsc is that of today or that of 2022.

    first    local, runc, crun, runsc (today's), docker, vm
    second   docker (a Podman service), runsc (Debian's of 2022)

The root of virtual machines and the image of the engines are the same tree, made once per build (vmkit.py). What is not
installed is a skip with the line that installs it.
"""

import fcntl
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "e2e"), str(HERE.parent / "bench")]

import enginekit  # noqa: E402  pylint: disable=wrong-import-position
import vmkit  # noqa: E402  pylint: disable=wrong-import-position
from carrykit import RUNSC_NEW  # noqa: E402  pylint: disable=wrong-import-position
from service import Daemon  # noqa: E402  pylint: disable=wrong-import-position
from test_service_network import Loopback  # noqa: E402  pylint: disable=wrong-import-position

IMAGE = "everything"
INSTALL = "tools/setup.sh build test vm providers"
OLD_RUNSC = "/usr/bin/runsc"


def image_tar():
    """The tree of virtual machines as an archive for engines, unpacked from its image."""
    vmkit.prepared()
    place = vmkit.place()
    path = place / "image.tar"
    with open(place / ".image-lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists() or path.stat().st_mtime < (place / "root.erofs").stat().st_mtime:
            with tempfile.TemporaryDirectory(dir=place) as at:
                subprocess.run(["fsck.erofs", f"--extract={at}/tree", place / "root.erofs"], check=True,
                               capture_output=True)
                for name in ("tmp", "var/tmp", "run", "root", "proc", "sys", "dev"):
                    os.makedirs(f"{at}/tree/{name}", exist_ok=True)
                    os.chmod(f"{at}/tree/{name}", 0o1777 if "tmp" in name else 0o755)
                subprocess.run(["tar", "-C", f"{at}/tree", "--owner=0", "--group=0", "-cf", f"{at}/tar", "."],
                               check=True)
                os.rename(f"{at}/tar", path)
    return path


class Service:
    """A daemon, the engine that it has, and why a provider is missing: {provider: text}."""

    def __init__(self, top, name, net, image):
        self.dir = pathlib.Path(top, name)
        self.missing, self.engine, self.net = {}, None, net
        podman = name == "second"
        self.share = self.dir / "share"
        (self.share / "in").mkdir(parents=True)
        (self.share / "templates").mkdir()
        key = self.dir / "keys"
        key.write_text("k1:" + "42" * 32 + "\n", encoding="ascii")
        key.chmod(0o600)
        self.config = (f'[secrets]\nkey_file = "{key}"\n[store]\nsuspicious_count = 1000\n[sandbox]\n'
                       f'bind_roots = "{self.share}"\ntemplates = "{self.share}/templates"\n')
        self.config += self.runtimes(podman) + self.engine_lines(podman, image) + ("" if podman else self.machines())
        self.d = Daemon(f'[gate]\nresolvers = ["127.0.0.1:{net.dns_port}"]\n{self.config}')
        self.trusting_d = None

    @property
    def trusting(self):
        """A second daemon with the same providers, which trusts the authority of the test's own internet."""
        if not self.trusting_d:
            self.trusting_d = Daemon(self.net.config(self.config))
        return self.trusting_d

    def runtimes(self, podman):
        for name in ("runc", "crun"):
            if not shutil.which(name):
                self.missing[name] = f"{name} is not installed: {INSTALL}"
        path = OLD_RUNSC if podman else os.path.abspath(RUNSC_NEW)
        if not os.path.exists(path):
            self.missing["runsc"] = f"there is no {path}: {INSTALL if podman else 'tools/runsc.sh build'}"
            return ""
        return f'[runsc]\npath = "{path}"\n'

    def engine_lines(self, podman, image):
        try:
            self.engine = enginekit.Engine(self.dir / "engine", podman)
            self.engine.import_tar(image(), IMAGE)
        except (enginekit.Missing, unittest.SkipTest) as why:
            self.missing["docker"] = str(why)
            return ""
        return f'[docker]\nsocket = "{self.engine.socket}"\nimage = "{IMAGE}"\npull = "never"\n'

    def machines(self):
        try:
            return vmkit.prepared()
        except unittest.SkipTest as why:
            self.missing["vm"] = str(why)
            return ""

    def can(self, provider):
        listed = self.d.ask("GET", "/v1/providers").json["providers"]
        return set(next(p for p in listed if p["name"] == provider).get("can", ()))

    def close(self):
        try:
            if self.trusting_d:
                self.trusting_d.close()
            self.d.close()
        finally:
            if self.engine:
                self.engine.close()


class Fleet:
    """The services, each started when a test first asks for it."""

    def __init__(self, image=image_tar):
        self.temp = tempfile.TemporaryDirectory(prefix="brig-fleet-", dir="/var/tmp")
        os.chmod(self.temp.name, 0o755)
        self.image = image
        self.net = Loopback()
        self.services = {}

    def service(self, name):
        if name not in self.services:
            self.services[name] = Service(self.temp.name, name, self.net, self.image)
        return self.services[name]

    def close(self):
        for service in self.services.values():
            service.close()
        self.net.close()
        self.temp.cleanup()


class FleetTest:
    """Mixed into a test class with a COLUMN; tearDownModule() calls end()."""

    LIMIT_SECONDS = 300
    COLUMN = None
    FLEET = None
    IMAGE = staticmethod(image_tar)

    @classmethod
    def setUpClass(cls):
        from rows import COLUMNS  # pylint: disable=import-outside-toplevel
        if os.geteuid() != 0:
            raise unittest.SkipTest("providers beside local need root")
        if FleetTest.FLEET is None:
            FleetTest.FLEET = Fleet(cls.IMAGE)
        column = COLUMNS[cls.COLUMN]
        cls.service = cls.FLEET.service(column.service)
        cls.provider, cls.limits = column.provider, column.limits
        if cls.provider in cls.service.missing:
            raise unittest.SkipTest(cls.service.missing[cls.provider])
        cls.d, cls.net, cls.can = cls.service.d, cls.service.net, cls.service.can(cls.provider)

    @staticmethod
    def end():
        if FleetTest.FLEET is not None:
            FleetTest.FLEET.close()
            FleetTest.FLEET = None
