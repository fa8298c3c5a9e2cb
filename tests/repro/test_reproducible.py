# SPDX-License-Identifier: Apache-2.0
"""The same source gives the same bytes, wherever it lies.

Two copies of the tree, at absolute paths of different lengths and with differently named build directories, are built;
what a user installs must be equal byte for byte, and must not contain the path it was built at.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lint"))

from tree import ROOT, files  # noqa: E402

WANTED = ("brig", "libbrig.so", "brig-spawner", "brig-init", "brig-layer")


def run(cmd, top):
    env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": str(top)}
    done = subprocess.run(cmd, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(cmd)}: status {done.returncode}\n{done.stdout[-3000:]}")
    return done.stdout


def copy_tree(top):
    for path in files():
        target = top / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
        os.chmod(target, 0o755 if os.access(path, os.X_OK) else 0o644)


def build(top, build_name):
    """Builds only the WANTED outputs of a copy at `top`; returns {name: bytes}."""
    out = top / build_name
    copy_tree(top)
    run(["meson", "setup", str(out), str(top), "-Dtests=false"], top)
    outputs = {}
    for target in json.loads(run(["meson", "introspect", str(out), "--targets"], top)):
        path = pathlib.Path(target["filename"][0])
        plain = "libbrig.so" if path.name.startswith("libbrig.so") else path.name
        if plain in WANTED and path.parent.name == "src":
            outputs[plain] = path
    run(["ninja", "-C", str(out), *(os.path.relpath(p, out) for p in outputs.values())], top)
    return {name: path.read_bytes() for name, path in outputs.items()}


class Reproducible(unittest.TestCase):
    LIMIT_SECONDS = 300

    def test_two_builds_are_equal(self):
        with tempfile.TemporaryDirectory(prefix="brig-repro-") as tmp:
            first = pathlib.Path(tmp) / "a"
            second = pathlib.Path(tmp) / "a-much-longer/path to nowhere".replace(" ", "-")
            one, two = build(first, "b"), build(second, "build-other")
        self.assertEqual(sorted(one), sorted(WANTED))
        self.assertEqual(sorted(two), sorted(WANTED))
        for name in WANTED:
            self.assertNotIn(tmp.encode(), one[name], f"{name} contains the path it was built at")
            self.assertEqual(len(one[name]), len(two[name]), f"{name} differs in size")
            at = next((i for i, (a, b) in enumerate(zip(one[name], two[name])) if a != b), None)
            self.assertIsNone(at, f"{name} differs first at byte {at}")


if __name__ == "__main__":
    unittest.main()
