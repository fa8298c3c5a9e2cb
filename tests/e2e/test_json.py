# SPDX-License-Identifier: Apache-2.0
"""The JSON reader against Python's: the same documents are accepted, with the same values, and the same are refused.

Documents are generated from a seed, and mutated; where BRIG_TEST_DATA names a
directory with a checkout of the JSON Schema test suite, its files too.
Python is made as strict as we are: no doubled keys, no NaN, no number past a double, no half surrogates, no NUL in
keys, 64 levels.
"""

import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import unittest

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
DRIVER = next((p for p in (f"{PREFIX}/tests/e2e/json_host", f"{BUILD}/tests/e2e/json_host") if os.path.exists(p)),
              "json_host")
SUITE = pathlib.Path(os.environ.get("BRIG_TEST_DATA") or "/nonexistent", "json-schema-test-suite")
SEED = int(os.environ.get("BRIG_JSON_SEED", "8259"))
COUNT = int(os.environ.get("BRIG_JSON_COUNT", "4000"))
DEPTH = 64

PIECES = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"\\ud800", b"\\u0000", b"\\/", b"0", b"-", b".",
          b"e", b"E+", b"1", b"null", b"true",
          b"NaN", b"\x00", b"\x1f", b"\x7f", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b" ", b"\t",
          b"\r\n", b"\x0b", b"//", b"1e999", b'"a":1,']


class Strict(Exception):
    pass


def pairs(items):
    keys = [k for k, _ in items]
    if len(set(keys)) != len(keys) or any("\0" in k for k in keys):
        raise Strict
    return dict(items)


def constant(_):
    raise Strict


def number(text):
    value = float(text)
    if math.isinf(value):
        raise Strict
    return value


def integer(text):
    value = int(text)
    return value if -(2**63) <= value < 2**63 else number(text)


def plain(value, depth=0):
    """The driver's form of a value; Strict where ours refuses."""
    if depth > DEPTH:
        raise Strict
    if value is None:
        return "n"
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return f"i{value};"
    if isinstance(value, float):
        return "d" + struct.pack(">d", value).hex()
    if isinstance(value, str):
        return f"s{value.encode('utf-8').hex()};"  # a half surrogate raises
    if isinstance(value, list):
        deeper = depth + 1
        if deeper > DEPTH:
            raise Strict
        return "[" + "".join(plain(v, deeper) for v in value) + "]"
    if depth + 1 > DEPTH:
        raise Strict
    return "{" + "".join(plain(k) + plain(v, depth + 1) for k, v in value.items()) + "}"


def expected(document):
    """The line, or None when it is to be refused."""
    try:
        text = document.decode("utf-8")
        if text.startswith("\ufeff"):
            return None
        return plain(json.loads(text, object_pairs_hook=pairs, parse_constant=constant, parse_float=number,
                                parse_int=integer))
    except (ValueError, Strict, RecursionError):
        return None


def ours(documents):
    data = b"".join(struct.pack("<I", len(d)) + d for d in documents)
    done = subprocess.run([DRIVER], input=data, stdout=subprocess.PIPE, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(documents), (len(lines), len(documents))
    return [line[2:] if line.startswith("+ ") else None for line in lines]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def text(self):
        r = self.random
        points = [r.choice([r.randrange(0x20, 0x7F), r.randrange(0x20), r.randrange(0x80, 0x800),
                            r.randrange(0x10000, 0x110000), 0x22, 0x5C]) for _ in range(r.randrange(6))]
        return "".join(map(chr, points))

    def value(self, depth=0):
        r = self.random
        kind = r.randrange(10 if depth < 5 else 7)
        if kind == 0:
            return r.choice([None, True, False])
        if kind == 1:
            return r.choice([0, -1, 2**63 - 1, -(2**63), 2**63, r.randrange(-(10**6), 10**6), 10**r.randrange(40)])
        if kind == 2:
            return r.choice([0.5, -0.0, 1e300, 5e-324, 1.7976931348623157e308, r.uniform(-1, 1),
                             r.random() * 10 ** r.randrange(-300, 300)])
        if kind < 7:
            return self.text()
        if kind < 9:
            return {self.text() + str(i): self.value(depth + 1) for i in range(r.randrange(r.choice([3, 14])))}
        return [self.value(depth + 1) for _ in range(r.randrange(5))]

    def document(self):
        r = self.random
        return json.dumps(self.value(), ensure_ascii=r.random() < 0.5,
                          indent=r.choice([None, None, 2])).encode("utf-8", "surrogatepass")

    def mutate(self, data):
        r = self.random
        for _ in range(r.randrange(1, 4)):
            at = r.randrange(len(data) + 1)
            kind = r.randrange(4)
            if kind == 0:
                data = data[:at] + r.choice(PIECES) + data[at:]
            elif kind == 1:
                data = data[:at] + data[at + r.randrange(1, 4):]
            elif kind == 2:
                data = data[:at] + bytes([r.randrange(256)]) + data[at + 1:]
            else:
                data = data[:at]
        return data


class Json(unittest.TestCase):
    LIMIT_SECONDS = 120

    def compare(self, documents):
        accepted = 0
        for document, got in zip(documents, ours(documents)):
            want = expected(document)
            self.assertEqual(got, want, document)
            accepted += got is not None
        return accepted

    def test_generated_documents(self):
        generator = Generator(SEED)
        valid = [generator.document() for _ in range(COUNT)]
        self.assertGreater(self.compare(valid), COUNT * 9 // 10)
        mutated = [generator.mutate(d) for d in valid for _ in range(4)]
        refused = len(mutated) - self.compare(mutated)
        self.assertGreater(refused, len(mutated) // 4)

    def test_depth(self):
        self.compare([b"[" * n + b"]" * n for n in range(60, 70)]
                     + [b'{"a":' * n + b"1" + b"}" * n for n in range(60, 70)])

    @unittest.skipUnless(SUITE.is_dir(), "BRIG_TEST_DATA names no directory with json-schema-test-suite")
    def test_the_files_of_a_suite(self):
        sys.setrecursionlimit(10000)
        documents = [p.read_bytes() for p in sorted(SUITE.rglob("*.json"))]
        self.assertGreater(len(documents), 100)
        self.compare(documents)
        generator = Generator(SEED + 1)
        self.compare([generator.mutate(d) for d in documents if len(d) < 20000])


if __name__ == "__main__":
    unittest.main()
