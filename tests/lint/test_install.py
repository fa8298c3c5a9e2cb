# SPDX-License-Identifier: Apache-2.0
"""Where `make install` puts the library, and what the README makes in the directory it is followed in."""

import fnmatch
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

from tree import ROOT, files, name

SBIN = {**os.environ, "PATH": os.environ["PATH"] + ":/usr/sbin:/sbin"}


def searched():
    """The directories that the dynamic linker knows."""
    said = subprocess.run(["ldconfig", "-v", "-N"], env=SBIN, capture_output=True, text=True, check=False).stdout
    return {os.path.realpath(d) for d in re.findall(r"^(/[^:]*):", said, re.M)}


class Install(unittest.TestCase):
    def setUp(self):
        """tools/build.sh with a meson and a ninja that only say how they were called, and no dpkg-architecture."""
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="install-"))
        self.addCleanup(shutil.rmtree, self.dir)
        os.makedirs(self.dir / "bin")
        for name in ("bash", "dirname", "gcc", "grep", "ldconfig", "realpath", "sed", "xargs"):
            os.symlink(shutil.which(name, path=SBIN["PATH"]), self.dir / "bin" / name)
        for name in ("meson", "ninja"):
            path = self.dir / "bin" / name
            path.write_text(f"#!/bin/bash\necho {name} \"$@\"\n", encoding="ascii")
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def configured(self, *options):
        said = subprocess.run([str(ROOT / "tools/build.sh"), str(self.dir / "build"), *options], text=True, check=True,
                              env={"PATH": str(self.dir / "bin")}, stdout=subprocess.PIPE).stdout
        return re.findall(r"-Dlibdir=(\S+)", said)

    def test_the_linker_finds_the_library(self):
        for prefix in ("/usr/local", "/usr"):
            with self.subTest(prefix):
                (libdir,) = self.configured(f"-Dprefix={prefix}")
                self.assertIn(os.path.realpath(f"{prefix}/{libdir}"), searched())

    def test_the_default_prefix(self):
        (libdir,) = self.configured()
        self.assertIn(os.path.realpath(f"/usr/local/{libdir}"), searched())

    def test_a_prefix_of_ones_own(self):
        self.assertEqual(self.configured("-Dprefix=/opt/brig"), ["lib"])
        self.assertEqual(self.configured("-Dprefix=/opt/brig", "-Dlibdir=here"), ["here"])


class Packages(unittest.TestCase):
    """No test is skipped for want of a package: what a test looks for is in a set that its driver installs."""

    OF = {"busybox": "busybox-static", "botocore": "python3-botocore", "requests": "python3-requests", "cc": "gcc",
          "dns2tcpc": "dns2tcp", "dnsmasq": "dnsmasq-base", "go": "golang-go", "initdb": "postgresql",
          "java": "default-jdk-headless", "keytool": "default-jdk-headless", "mkfs.ext4": "e2fsprogs",
          "nft": "nftables", "nginx": "nginx-light", "node": "nodejs",
          "pip3": "python3-pip"}  # where the package is not called like the program

    def packages(self, *sets):
        """What tools/setup.sh would install on a machine that has nothing: it says so where it may not."""
        (self.dir / "dpkg-query").write_text("#!/bin/bash\necho absent\n", encoding="ascii")
        (self.dir / "id").write_text("#!/bin/bash\necho 1000\n", encoding="ascii")
        for name in ("dpkg-query", "id"):
            (self.dir / name).chmod(0o755)
        for name in ("bash", "head"):
            if not (self.dir / name).exists():
                os.symlink(shutil.which(name), self.dir / name)
        said = subprocess.run(["/bin/bash", str(ROOT / "tools/setup.sh"), *sets], env={"PATH": str(self.dir)},
                              capture_output=True, text=True).stderr
        return set(re.search(r" install (.*)$", said, re.M)[1].split())

    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="packages-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def test_what_tests_look_for_is_installed(self):
        call = re.compile(r"\b(?:which|needs|has_module)\(((?:\"[\w.+-]+\"(?:, )?)+)")
        for kinds, sets in ((("e2e", "lint", "hostile", "compat", "vm"), ("build", "test")),
                            (("providers",), ("build", "test", "vm", "providers"))):
            wanted = {}
            for kind in kinds:
                for path in files(ROOT / "tests" / kind, {".py"}):
                    for hit in call.finditer(path.read_text(encoding="utf-8")):
                        wanted.update({word: name(path) for word in re.findall(r"[\w.+-]+", hit[1])})
            self.assertGreater(len(wanted), 15 if "e2e" in kinds else 0)
            have = self.packages(*sets) | {"npm", "cargo"}  # they may come with node and with rustup, not as packages
            missing = {word: where for word, where in wanted.items() if self.OF.get(word, word) not in have}
            self.assertEqual(missing, {}, sets)


class Readme(unittest.TestCase):
    TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
    IGNORED = (ROOT / ".gitignore").read_text(encoding="utf-8").split()

    def made(self):
        """The files that its commands write where they are typed."""
        commands = re.findall(r"^    \$ (.*)", self.TEXT, re.M)
        return {name for line in commands for name in re.findall(r"> ?([\w.]+)", re.sub(r"'[^']*'", "", line))}

    def test_git_ignores_keys(self):
        self.assertIn("secrets.keys", self.made())
        for name in self.made():
            if name.endswith((".keys", ".log")):
                self.assertTrue(any(fnmatch.fnmatch("/" + name, p) for p in self.IGNORED), name)

    def test_no_file_hides_a_module_of_python(self):
        scripts = {pathlib.Path(name).stem for name in self.made() if name.endswith(".py")}
        self.assertTrue(scripts)
        self.assertEqual(scripts & set(sys.stdlib_module_names), set())

    def test_nothing_that_tests_leave_is_in_the_tree(self):
        self.assertIn("/.schemathesis/", self.IGNORED)
