# SPDX-License-Identifier: Apache-2.0
"""The installed programs are what the compiler and the linker were asked for: fortified, with guarded stacks, at
random addresses, with read-only relocations and no executable stack."""

import json
import os
import re
import subprocess
import unittest

from jailkit import BUILD, PATH, PREFIX

# No libc in them, hence nothing of libc's that could check; static, at a fixed address, and they relocate nothing.
FREESTANDING = ("brig-init", "brig-boot")
# Its libc is in it: what the dynamic linker would look for is among its own symbols.
STATIC = "brig-layer"


def tool(*argv):
    return subprocess.run(argv, text=True, capture_output=True, check=True, env={"PATH": PATH}).stdout


def is_elf(path):
    with open(path, "rb") as f:
        return f.read(4) == b"\x7fELF"


def programs():
    """The programs and libraries that users get: not the tests that lie below the same prefix."""
    paths = [os.path.join(where, name) for top in ("bin", "lib", "libexec") if os.path.isdir(f"{PREFIX}/{top}")
             for where, _, names in os.walk(f"{PREFIX}/{top}") for name in names]
    return sorted(p for p in paths if os.path.isfile(p) and not os.path.islink(p) and is_elf(p))


def symbols(path):
    return tool("nm", *([] if os.path.basename(path) == STATIC else ["-D"]), path)


def checked(path):
    """The functions of libc that were replaced by ones which know the size of what they write to."""
    return set(re.findall(r" [UTW] __(\w+)_chk(?:@|$)", symbols(path), re.M)) - {"stack"}


@unittest.skipUnless(PREFIX, "no installed copy")
class Programs(unittest.TestCase):
    def test_they_are_fortified(self):
        names = {os.path.basename(p) for p in programs()}
        self.assertLessEqual({"brig", "brigd", "brig-egress", "brig-spawner", "brig-zygote.so", *FREESTANDING, STATIC},
                             names)
        for path in programs():
            if os.path.basename(path) not in FREESTANDING:
                self.assertTrue({"snprintf", "vsnprintf"} & checked(path), path)
                self.assertIn("__stack_chk_fail", symbols(path), path)

    def test_they_are_mapped_as_they_should_be(self):
        for path in programs():
            head, parts, dynamic = (tool("readelf", flag, path) for flag in ("-hW", "-lW", "-dW"))
            self.assertRegex(parts, r"GNU_STACK .* RW +0x", path)
            self.assertNotRegex(parts, r"LOAD .* RWE ", path)
            if os.path.basename(path) not in FREESTANDING:
                self.assertRegex(head, r"Type: +DYN", path)
                self.assertIn("GNU_RELRO", parts, path)
                self.assertRegex(dynamic, r"FLAGS.*NOW", path)

    def test_every_file_is_compiled_so(self):
        """The last word of a command line wins. gen_seccomp is for the build alone; brig-init and brig-boot have no
        library that could check."""
        with open(f"{BUILD}/compile_commands.json", encoding="utf-8") as f:
            commands = [c for c in json.load(f) if re.match(r"src/(?!brig-init\.p/|brig-boot\.p/|gen_)", c["output"])]
        self.assertGreater(len(commands), 300)
        wanted = "3" if has_level_3() else "2"
        for c in commands:
            self.assertEqual(re.findall(r"-[DU]_FORTIFY_SOURCE(?:=(\d))?", c["command"])[-1], wanted, c["file"])


def has_level_3():
    """What meson.build asks the compiler, asked again."""
    with open(f"{BUILD}/meson-logs/meson-log.txt", encoding="utf-8", errors="replace") as log:
        return 'Checking if "FORTIFY 3" compiles: YES' in log.read()


if __name__ == "__main__":
    unittest.main()
