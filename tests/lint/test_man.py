# SPDX-License-Identifier: Apache-2.0
"""Manual pages: every verb has one, with every flag of its table; mandoc finds nothing wrong but what it cannot know
here."""

import re
import shutil
import subprocess
import unittest

from tree import ROOT

MAN = ROOT / "docs/man"
CLI = ROOT / "src/cli"
FLAG = re.compile(
    r'\{"([a-z][a-z-]*)", (?:NULL|"[^"]*"),\s+"[^"]* [^"]*"|\{\.name = "([a-z-]+)",\s*\.(?:value|help|letter|apply)')
VERB = re.compile(r'cli_verb cli_verb_\w+ =\s*\{\s*"([a-z]+)",')
# of several verbs in one file; of verbs whose flags stand in another file
SHARED = {"lifecycle": ["pause", "resume", "stop", "rm"], "run_flags": ["run"], "approve": ["approve", "deny"],
          "cli_tool_run": ["tool"], "snapshot": ["snapshot", "restore", "fork", "commit"]}
NETWORK = ["run", "create"]  # verbs with the flags of net_flags.h


def text_of(path):
    return path.read_text(encoding="utf-8")


def verbs():
    """verb -> file that has it."""
    return {verb: path for path in CLI.rglob("*.c") for verb in VERB.findall(text_of(path))}


def flags_of(path):
    return {a or b for a, b in FLAG.findall(text_of(path))}


class Man(unittest.TestCase):
    def test_every_verb_has_a_page_that_is_installed(self):
        installed = text_of(ROOT / "docs/meson.build")
        for verb in verbs():
            self.assertTrue((MAN / f"brig-{verb}.1").exists(), f"brig-{verb}.1")
            self.assertIn(f"'man/brig-{verb}.1'", installed)
            self.assertIn(f".Xr brig-{verb} 1", text_of(MAN / "brig.1"))

    def test_every_flag_is_in_its_page(self):
        of_file = {path.stem: [verb] for verb, path in verbs().items()} | SHARED
        seen = 0
        for stem, names in of_file.items():
            if stem == "bench":
                continue  # its table has flags for programs of ours only
            page = "".join(text_of(MAN / f"brig-{verb}.1") for verb in names)
            for flag in flags_of(next(CLI.rglob(f"{stem}.c"))):
                self.assertRegex(page, rf"(Fl |, )-{flag}\b", f"--{flag} of {stem}.c")
                seen += 1
        for verb in NETWORK:
            for flag in flags_of(CLI / "net_flags.h"):
                self.assertRegex(text_of(MAN / f"brig-{verb}.1"), rf"(Fl |, )-{flag}\b", f"--{flag} of {verb}")
                seen += 1
        self.assertGreater(seen, 60)

    @unittest.skipUnless(shutil.which("mandoc"), "mandoc is not installed")
    def test_mandoc_is_content(self):
        for page in sorted(MAN.glob("*.1")):
            done = subprocess.run(["mandoc", "-Tlint", "-Wwarning", str(page)], stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            said = [line for line in done.stdout.splitlines() if "mandoc.db" not in line]
            self.assertFalse(said, "\n".join(said))


if __name__ == "__main__":
    unittest.main()
