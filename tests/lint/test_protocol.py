# SPDX-License-Identifier: Apache-2.0
"""docs/PROTOCOL.md shows the very bytes that the unit tests compare with."""

import re
import unittest

from tree import ROOT

TESTS = ("tests/unit/test_frame.c", "tests/unit/test_guest_carry.c", "tests/unit/test_guest_msg.c",
         "tests/unit/test_guest_svc.c")


def documented():
    text = (ROOT / "docs/PROTOCOL.md").read_text(encoding="utf-8")
    return {name: "".join(body.split()) for name, body in re.findall(r"^```golden (\w+)\n(.*?)^```", text, re.M | re.S)}


def tested():
    found = {}
    for path in TESTS:
        # Comments between the pieces hold quotes of their own; bare_c() would blank the pieces as well.
        text = re.sub(r"/\*.*?\*/", "", (ROOT / path).read_text(encoding="utf-8"), flags=re.S)
        for name, body in re.findall(r"\bgolden_(\w+)\[\]\s*=([^;]*);", text):
            found[name] = "".join("".join(re.findall(r'"([^"]*)"', body)).split())
    return found


class Protocol(unittest.TestCase):
    def test_golden_bytes_agree(self):
        self.assertTrue(tested())
        self.assertEqual(documented(), tested())


if __name__ == "__main__":
    unittest.main()
