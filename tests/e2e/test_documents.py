# SPDX-License-Identifier: Apache-2.0
"""What README.md and docs/RECEIPT.md show is what happens."""

import json
import os
import pathlib
import re
import subprocess
import unittest

from helpers import BRIG, PATIENCE, BrigTest, brig, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = os.environ.get("BRIG_BUILD_DIR", str(ROOT / "build"))


def text_of(name):
    return (ROOT / name).read_text(encoding="utf-8")


def examples(part=""):
    """(command, lines shown) of every `$ ` line in the indented blocks of README.md; those of the parts "service",
    "network" and "tools" are test_service_tour.py's, test_gate_tour.py's and test_tools_tour.py's."""
    found = []
    before, rest = text_of("README.md").split("### The service\n", 1)
    service, rest = rest.split("### The network\n", 1)
    network, rest = rest.split("### Tools\n", 1)
    tools, after = rest.split("\nFrom C, ", 1)
    for line in {"service": service, "network": network, "tools": tools, "": before + after}[part].splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif line.startswith("    ") and found and found[-1][1] is not None:
            found[-1][1].append(line[4:])
        elif found:
            found.append((None, None))
    return [(command, lines) for command, lines in found if command]


def shell(command, **kw):
    env = environment(PATH=os.path.dirname(os.path.abspath(BRIG)) + ":/usr/sbin:/usr/bin:/sbin:/bin")
    return subprocess.run(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          env=env, cwd=ROOT, timeout=PATIENCE, text=True, check=False, **kw)


def pattern(lines):
    """Lines as a regular expression in which … is anything; sorted, since stdout and stderr are two pipes."""
    return "\n".join(".*".join(re.escape(part) for part in line.split("…")) for line in sorted(lines))


def shape(value):
    """A JSON value without its values."""
    if isinstance(value, dict):
        return {k: shape(v) for k, v in value.items()}
    return [] if isinstance(value, list) else type(value).__name__


@unittest.skipUnless(os.geteuid() == 0, "root: the documents show what root gets")
class Documents(BrigTest):
    def test_readme_examples(self):
        shown = examples()
        self.assertGreaterEqual(len(shown), 3)
        for command, lines in shown:
            with self.subTest(command):
                said = "\n".join(sorted(shell(command).stdout.splitlines()))
                self.assertTrue(re.fullmatch(pattern(lines), said),
                                f"\n{command}\nshown:\n{pattern(lines)}\nseen:\n{said}")

    def test_receipt_example(self):
        text = text_of("docs/RECEIPT.md")
        command = re.search(r"^    (brig run .*)$", text, re.M).group(1)
        shown = json.loads(re.search(r"^```json\n(.*?)^```", text, re.M | re.S).group(1))
        seen = json.loads(shell(command).stdout)
        self.assertEqual(list(seen), list(shown))
        for both in (seen, shown):  # what the kernel counts differs from kernel to kernel
            both["usage"] = {k: v for k, v in both["usage"].items() if k in ("wall_ms", "cpu_ms", "disk_bytes")}
        self.assertEqual(shape(seen), shape(shown))
        for same in ("kind", "via", "name", "provider", "providers_tried", "command", "outcome", "stdout", "stderr",
                     "truncated",
                     "limits", "network", "environment"):
            self.assertEqual(seen[same], shown[same], same)
        self.assertEqual({k: v["on"] for k, v in seen["protection"]["layers"].items()},
                         {k: v["on"] for k, v in shown["protection"]["layers"].items()})

    def test_demo_of_make_run(self):
        env = {k: v for k, v in environment().items() if k != "BRIG_LIBEXEC_DIR"}
        done = subprocess.run([str(ROOT / "tools/demo.sh"), BUILD], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, env=env, timeout=PATIENCE, text=True, check=False)
        self.assertEqual(done.returncode, 0, done)
        result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith('{"result"')))
        self.assertEqual(result["result"]["sum"], 31)
        self.assertEqual(result["seen_from_inside"]["network"], "Network is unreachable")
        receipt = json.loads(done.stdout[done.stdout.index("its receipt:") + len("its receipt:") :])
        self.assertEqual(receipt["outcome"]["cause"], "exited")
        self.assertTrue(receipt["protection"]["complete"])

    def test_base_environment(self):
        """docs/RECEIPT.md: six variables of our own."""
        done = brig("run", "--", "env")
        self.assertEqual(sorted(line.split(b"=")[0] for line in done.stdout.splitlines()),
                         [b"HOME", b"LANG", b"LOGNAME", b"PATH", b"TMPDIR", b"USER"])


if __name__ == "__main__":
    unittest.main()
