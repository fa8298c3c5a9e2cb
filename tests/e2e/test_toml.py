# SPDX-License-Identifier: Apache-2.0
"""The TOML reader against Python's: the same documents are accepted, with the same values, and the same are refused.

Documents are generated from a seed: valid ones from a grammar, and mutations of those.  Where the two differ on purpose
is in KNOWN: integers past 64 bits (Python has no such limit), the year 0000 (RFC 3339 has one, datetime does not), and
depth.
"""

import datetime
import json
import math
import os
import random
import re
import subprocess
import sys
import unittest

try:
    import tomllib
except ImportError:  # before Python 3.11
    tomllib = None

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
DRIVER = next((p for p in (f"{PREFIX}/tests/e2e/toml_json", f"{BUILD}/tests/e2e/toml_json") if os.path.exists(p)),
              "toml_json")
SEED = int(os.environ.get("BRIG_TOML_SEED", "20240229"))
COUNT = int(os.environ.get("BRIG_TOML_COUNT", "6000"))  # valid ones; each is also mutated four times

TRICKY = [
    b"", b"\n", b"#", b"# \t x", b"a=1", b"a = 1 # c", b"a\n", b"a=", b"=1", b"a 1", b"a=1 b=2", b"a=1,",
    b"\xef\xbb\xbfa=1",
    # newlines
    b"a=1\r\n", b"a=1\rb=2", b"a=1\r", b"a='''x\r\ny'''", b"a='x\r\n'", b"# a\r\n", b"# a\rb", b"a='''\r\r\n'''",
    b"a=[\r\n1\r\n]",
    # keys
    b"a.b.c=1", b"a . b = 1", b"a. b=1\na.c=2", b"\"\"=1", b"''=1", b"\"a b\".c=1", b"'a.b'=1", b"1.2=3", b"-=1",
    b"a..b=1", b".a=1", b"a.=1",
    b"\"\"\"a\"\"\"=1", b"'''a'''=1", b"a=1\na=2", b"a.b=1\na=2", b"a=1\na.b=2", b"\"a\"=1\na=2", b"\xc3\xa9=1",
    b"\"\\u00e9\"=1\n'\xc3\xa9'=2",
    b"a\n.b=1", b"\"a\nb\"=1", b"a\tb=1", b"a\t=\t1\t", b"a=1\n\tb=2",
    # tables
    b"[a]\n[a]", b"[a]\n[a.b]\n[a]", b"[a.b]\n[a]", b"[a.b]\n[a]\n[a]", b"[a]\nb=1\n[a.b]", b"a.b=1\n[a]",
    b"a.b=1\n[a.c]", b"a.b.c=1\n[a.b]", b"a.b.c=1\n[a.b.d]",
    b"[a]\nb.c=1\n[a.b]", b"[a]\nb.c=1\n[a.b.d]", b"[a.b]\nx=1\n[a]\nb.c=2", b"[a.b.c]\nz=1\n[a]\nb.d=2",
    b"[a.b.c]\nz=1\n[a]\nb.c.t=2", b"[a.b.c.d]\nz=9\n[a]\nb.c.d.k.t=1",
    b"[a.b.c]\n[a]\nb.d=1\n[a.b]", b"[a.b.c]\n[a]\nb.d=1\n[a.b.e]", b"[[a]]\n[a]", b"[a]\n[[a]]", b"a=[]\n[[a]]",
    b"a=[{}]\n[a.b]", b"a=[{}]\n[[a.b]]", b"a={}\n[a.b]",
    b"a={b=1}\na.c=2", b"a={b={}}\na.b.c=2", b"[[a]]\n[[a]]\n[a.b]\n[[a]]\n[a.b]", b"[[a]]\n[a.b]\n[a.b]",
    b"[[a.b]]\n[a]\nb.y=2", b"[[a.b]]\n[[a.b.c]]\n[a.b.c.d]\n[[a.b]]",
    b"[a.b]\n[[a]]", b"[[a.b]]\n[a.b]", b"[a]\nb.c=1\nb.d=2", b"[a]\nb.c=1\n[x]\n[a.b.q]\n[[a.b.r]]",
    b"[a]\nb=1\nb.c=2", b"[a]\nb={}\nb.c=2", b"[]", b"[a", b"[[a]", b"[[a] ]",
    b"[ a ]", b"[[ a . b ]]", b"[a]]", b"[a]b=1", b"[a] # c", b"[a]\n=1", b"[a.]", b"[.a]", b"[\"a\nb\"]",
    b"[a]\n\n[ a.b ]", b"x={a.b=1,a.c=2}", b"x={a.b=1,a=2}", b"x={a={},a.b=1}",
    b"x={a={b=1},a.b=1}", b"x={a.b={c=1},a.b.d=2}", b"x={a=1,a=2}", b"x={a=1,}", b"x={,}", b"x={}", b"x={ }",
    b"x={a=1\n}", b"x={a=[\n1\n]}", b"x={a=1 b=2}", b"x={a=1", b"x={a='''\n'''}",
    b"x=[{a.b=1},{a.b=2}]", b"a=[{b=1},{b=2}]\na.b=1", b"[a]\nb=[{}]\n[[a.b]]", b"[x.a]\n[x]\na.b=1",
    b"a.b=[]\na.b.c=1", b"[[x]]\na.b=1\n[[x]]\na.b=2\n[x.a]", b"[[x]]\na.b=1\n[[x]]\n[x.a]",
    b"[a]\n[b]\n[a.c]\n[b.c]\n[a.d]", b"a.b.c=1\na.b.d=2\n[a.x]\n[y]\n[a.z]", b"b.c=1\n[b.d]\n[x]\n[b.d]",
    # arrays
    b"a=[]", b"a=[,]", b"a=[1,]", b"a=[1,,2]", b"a=[1 2]", b"a=[1", b"a=[[1],['a',true]]", b"a=[ # c\n1 # d\n, # e\n]",
    b"a=[1]]", b"a=[1] 2", b"a=\n1", b"a=[\t1\t,\t]",
    # strings
    b"a=\"\\b\\t\\n\\f\\r\\\"\\\\\"", b"a=\"\\e\"", b"a=\"\\x41\"", b"a=\"\\u00e9\\U0001F600\"", b"a=\"\\ud800\"",
    b"a=\"\\U00110000\"", b"a=\"\\uD7FF\\uE000\"", b"a=\"\\u00g0\"", b"a=\"\\u00e\"",
    b"a=\"\\u0000\"", b"a=\"x", b"a='x", b"a=\"x\ny\"", b"a='x\ny'", b"a=\"\"\"x", b"a='''x", b"a=\"\\\"", b"a='\\'",
    b"a=\"\"\"\\\"\"\"", b"a=\"\"\"\\\n  \n x\"\"\"", b"a=\"\"\"\\  \n x\"\"\"",
    b"a=\"\"\"\\ x\"\"\"", b"a=\"\\ \n\"", b"a=\"\"\"\n\nx\"\"\"", b"a='''\n\nx'''", b"a='''\\\nx'''",
    b"a=\"\"\"a\"\"\"\"", b"a=\"\"\"a\"\"\"\"\"", b"a=\"\"\"a\"\"\"\"\"\"", b"a=''''a'''", b"a='''a'''''",
    b"a='''a''''''", b"a=\"\"\"a\"b\"\"c\"\"\"", b"a=\"\"\"\"\"\"", b"a=\"\"\"\"\"\"\"\"", b"a=''''''", b"a=\"\"",
    b"a=''", b"a='\x01'", b"a='\x7f'", b"a=\"\x1f\"", b"# \x01", b"# \x7f",
    b"# \xc2\x80", b"a='\xc2\x80'", b"a='\xff'", b"# \xff", b"a='\xc0\x80'", b"a='\xed\xa0\x80'",
    b"a='\xf4\x90\x80\x80'", b"a='\t'", b"a=\"\t\"", b"a=\"\x00\"", b"a=\"\"\"\\\r\n x\"\"\"",
    b"a=\"\"\"\\", b"a=\"\"\"\\ ", b"a=\"\"\"\\\n", b"a=\"\"\"\\\n\\\n  x\\\n\"\"\"", b"a=\"\\", b"a='' ''",
    b"a=\"a\"\"b\"",
    # numbers
    b"a=0", b"a=+0", b"a=-0", b"a=00", b"a=01", b"a=+01", b"a=1_000", b"a=1__0", b"a=_1", b"a=1_", b"a=+_1",
    b"a=9223372036854775807", b"a=-9223372036854775808", b"a=0xDEAD_beef", b"a=0x_1",
    b"a=0x", b"a=0X1", b"a=+0x1", b"a=-0b1", b"a=0o17", b"a=0o8", b"a=0b12", b"a=0b1_0", b"a=0x7fffffffffffffff",
    b"a=1.5", b"a=1.", b"a=.5", b"a=1.e5", b"a=1e5", b"a=1E+5", b"a=1e-05", b"a=1e0_0",
    b"a=1e_5", b"a=1e5_", b"a=1e", b"a=1e+", b"a=1e5.5", b"a=1._5", b"a=1_.5", b"a=1.5_", b"a=01.5", b"a=-0.0",
    b"a=+1.5e+7", b"a=6.626e-34", b"a=1e999", b"a=1e-999", b"a=inf", b"a=+inf", b"a=-inf",
    b"a=nan", b"a=+nan", b"a=-nan", b"a=Inf", b"a=NaN", b"a=infinity", b"a=in", b"a=+", b"a=-", b"a=+true", b"a=true",
    b"a=false", b"a=True", b"a=truer", b"a=tru", b"a=0e0", b"a=0.1_2", b"a=1e1e1", b"a=--1",
    b"a=1a", b"a=0xg", b"a=0.0e+00", b"a=3.14159265358979323846264338327950288", b"a=0o_7", b"a=0_0", b"a=0_1",
    b"a=1,2",
    # dates and times
    b"a=1979-05-27", b"a=1979-05-27T07:32:00Z", b"a=1979-05-27t07:32:00z", b"a=1979-05-27 07:32:00-07:00",
    b"a=1979-05-27T00:32:00.999999999", b"a=1979-05-27 ", b"a=1979-05-27 # c", b"a=1979-05-27T",
    b"a=1979-05-27 07:32", b"a=1979-05-27T07:32", b"a=07:32:00", b"a=07:32:00.5", b"a=07:32", b"a=24:00:00",
    b"a=23:60:00", b"a=23:59:60", b"a=1979-02-29", b"a=1980-02-29", b"a=1900-02-29", b"a=2000-02-29",
    b"a=1979-13-01", b"a=1979-00-01", b"a=1979-01-00", b"a=1979-04-31", b"a=1979-5-27", b"a=79-05-27",
    b"a=1979-05-27T07:32:00+24:00", b"a=1979-05-27T07:32:00+07:60", b"a=1979-05-27T07:32:00+7:00",
    b"a=1979-05-27T07:32:00.", b"a=1979-05-27T07:32:00.Z", b"a=07:32:00Z", b"a=1979-05-27Z", b"a=1979-05-27T25:00:00",
    b"a=1979-05-27T07:32:00.1234567Z", b"a=1979-05-27  07:32:00", b"a=1979-05-27_07:32:00",
    b"a=9999-12-31T23:59:59.999999+23:59", b"a=0001-01-01", b"a=[1979-05-27,07:32:00]", b"a=1979-05-27]",
    b"a=+1979-05-27", b"a=1979-05", b"a=1979-", b"a=19790-05-27",
]


def known(text):
    """Documents about which the two may differ."""
    return (re.search(rb"[0-9]{19}|0x[0-9a-fA-F_]{16}|0o[0-7_]{21}|0b[01_]{63}", text.replace(b"_", b""))
            or re.search(rb"0000-\d\d-\d\d", text)
            or text.count(b"[") + text.count(b"{") > 60 or text.count(b".") > 60)


def tagged(value):
    """tomllib's value in the driver's words."""
    if isinstance(value, dict):
        return {k: tagged(v) for k, v in value.items()}
    if isinstance(value, list):
        return ["array", *(tagged(v) for v in value)]
    if isinstance(value, bool):
        return ["bool", "true" if value else "false"]
    if isinstance(value, int):
        return ["integer", str(value)]
    if isinstance(value, float):
        return ["float", "nan" if math.isnan(value) else repr(value)]
    if isinstance(value, str):
        return ["string", value]
    if isinstance(value, datetime.datetime):
        return ["local-datetime" if value.tzinfo is None else "datetime", value.isoformat()]
    if isinstance(value, datetime.date):
        return ["local-date", value.isoformat()]
    return ["local-time", value.isoformat()]


def micro(text):
    """A date of ours as isoformat() writes it: a fraction of exactly six digits or none, Z as +00:00."""
    text = text.replace("Z", "+00:00")
    found = re.search(r"\.(\d+)", text)
    if found:
        six = found.group(1)[:6].ljust(6, "0")
        text = text[:found.start()] + ("" if six == "000000" else "." + six) + text[found.end():]
    return text


def ours(value):
    """The driver's value, with floats and dates in Python's spelling."""
    if isinstance(value, dict):
        return {k: ours(v) for k, v in value.items()}
    kind = value[0]
    if kind == "array":
        return ["array", *(ours(v) for v in value[1:])]
    if kind == "float":
        number = float(value[1])
        return ["float", "nan" if math.isnan(number) else repr(number)]
    if kind in ("datetime", "local-datetime", "local-time"):
        return [kind, micro(value[1])]
    return value


class Maker:
    """Valid documents, as odd as the grammar allows."""

    def __init__(self, rng):
        self.rng = rng

    def pick(self, *choices):
        return self.rng.choice(choices)

    def blanks(self):
        return self.pick("", "", "", " ", "\t", "  ")

    def newline(self):
        return self.pick("\n", "\n", "\n", "\r\n", "\n\n", " # é comment\n", "\t\n")

    def name(self):
        return self.pick("a", "b", "c", "d", "key", "0", "-", "a_b", '"a"', "'b'", '"a.b"', "''", '"\\u0061"', "'ü'",
                         '"\\t"', "true", "1979-05-27", "inf")

    def key(self):
        return (self.blanks() + "." + self.blanks()).join(self.name() for _ in range(self.pick(1, 1, 1, 1, 2, 2, 3)))

    def digits(self, few=1, many=4):
        text = "".join(self.rng.choice("0123456789") for _ in range(self.rng.randint(few, many)))
        return text if len(text) < 2 or self.rng.random() < 0.8 else text[0] + "_" + text[1:]

    def integer(self):
        kind = self.rng.random()
        if kind < 0.1:
            return "0x" + self.pick("DEADbeef", "0", "7f_ff", "0_1")
        if kind < 0.2:
            return self.pick("0o17", "0b1_01", "0o0", "0b0")
        text = self.pick("", "+", "-") + self.pick("0", "1", "9", self.pick(*"123456789") + self.digits())
        return text

    def number(self):
        if self.rng.random() < 0.15:
            return self.pick("", "+", "-") + self.pick("inf", "nan")
        text = self.pick("", "+", "-") + self.pick("0", "7", "12_3")
        fraction = self.pick("", "." + self.digits())
        exponent = self.pick("e",
                             "E") + self.pick("", "+",
                                              "-") + self.digits(1,
                                                                 2) if not fraction or self.rng.random() < 0.4 else ""
        return text + fraction + exponent

    def date(self):
        day = f"{self.rng.randint(1, 9999):04}-{self.rng.randint(1, 12):02}-{self.rng.randint(1, 28):02}"
        time = f"{self.rng.randint(0, 23):02}:{self.rng.randint(0, 59):02}:{self.rng.randint(0, 59):02}" + self.pick(
            "", "", ".5", ".123456789", ".000", ".1234567")
        kind = self.rng.random()
        if kind < 0.25:
            return day
        if kind < 0.5:
            return time
        return day + self.pick("T", "t", " ") + time + self.pick("", "Z", "z", "+00:00", "-07:30", "+23:59")

    def character(self):
        return self.pick("a", "b", " ", "\t", "é", "€", "😀", "#", "=", "[", "]", ",", "\u0080", "\u2028", "{")

    def string(self):
        body = "".join(self.character() for _ in range(self.rng.randint(0, 6)))
        escapes = "".join(self.pick("\\n", "\\t", '\\"', "\\\\", "\\u00e9", "\\U0001F600", "\\b", "\\f", "\\r",
                                    "\\u0000", "'") for _ in range(self.rng.randint(0, 3)))
        kind = self.rng.randint(0, 3)
        if kind == 0:
            return '"' + body + escapes + '"'
        if kind == 1:
            return "'" + body + self.pick("", '"', "\\") + "'"
        if kind == 2:
            return '"""' + self.pick("", "\n", "\r\n") + body + self.pick(
                "", "\n", '"', '""', "\\\n   ", "\\ \t\r\n\n  ") + escapes + body + self.pick("", '"', '""') + '"""'
        return "'''" + self.pick("", "\n") + body + self.pick("", "\n", "'", "''", "\\", '"""',
                                                              "\r\n") + body + self.pick("", "'", "''") + "'''"

    def space(self):
        return self.pick("", "", " ", "\n", " # c\n", "\r\n\t")

    def value(self, depth=0):
        kind = self.rng.random()
        if depth < 4 and kind < 0.15:
            items = [self.space() + self.value(depth + 1) + self.space() for _ in range(self.rng.randint(0, 3))]
            return "[" + ",".join(items) + self.pick("", "," if items else "") + self.space() + "]"
        if depth < 4 and kind < 0.3:
            pairs = [self.blanks() + self.key() + self.blanks() + "=" + self.blanks() + self.value(depth + 1)
                     + self.blanks() for _ in range(self.rng.randint(0, 3))]
            return "{" + ",".join(pairs) + "}"
        return self.pick(self.integer, self.number, self.date, self.string, self.string,
                         lambda: self.pick("true", "false"))()

    def document(self):
        """Most are valid; some define a key or table twice, which both readers have to see."""
        out = []
        for _ in range(self.rng.randint(1, 8)):
            kind = self.rng.random()
            if kind < 0.2:
                out.append(self.blanks() + "[" + self.blanks() + self.key() + self.blanks() + "]")
            elif kind < 0.3:
                out.append("[[" + self.blanks() + self.key() + self.blanks() + "]]")
            elif kind < 0.35:
                out.append("# " + self.character())
            else:
                out.append(self.blanks() + self.key() + self.blanks() + "=" + self.blanks() + self.value())
            out.append(self.blanks() + self.newline())
        return "".join(out).encode()

    def mutate(self, text):
        for _ in range(self.pick(1, 1, 2, 3)):
            at = self.rng.randint(0, len(text))
            kind = self.rng.randint(0, 4)
            if kind == 0:
                text = text[:at] + text[at + 1:]
            elif kind == 1:
                text = text[:at] + bytes([self.rng.choice(b"\"'[]{}=.,#\\\n\r\t 0_-+:TZexu\x00\x7f\x80\xff")]) + text[
                    at:]
            elif kind == 2 and text:
                at = min(at, len(text) - 1)
                text = text[:at] + bytes([text[at] ^ 1 << self.rng.randint(0, 7)]) + text[at + 1:]
            elif kind == 3:
                end = min(len(text), at + self.rng.randint(1, 6))
                text = text[:at] + text[at:end] + text[at:]
            else:
                end = min(len(text), at + self.rng.randint(1, 6))
                text = text[:at] + text[end:]
        return text


def drive(documents):
    sent = b"".join(b"%d\n%s" % (len(d), d) for d in documents)
    done = subprocess.run([DRIVER], input=sent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=300)
    if done.returncode != 0:
        raise AssertionError(f"the driver ended with {done.returncode}: {done.stderr[-2000:]!r}")
    return [json.loads(line) for line in done.stdout.splitlines()]


@unittest.skipUnless(tomllib, "this Python has no tomllib")
class Differential(unittest.TestCase):
    LIMIT_SECONDS = 300

    def compare(self, documents):
        accepted = refused = skipped = 0
        answers = drive(documents)
        self.assertEqual(len(answers), len(documents))
        for document, answer in zip(documents, answers):
            try:
                want = tagged(tomllib.loads(document.decode("utf-8")))
            except (ValueError, RecursionError) as error:
                want, why = None, error
            if want is None and "ok" in answer:
                if known(document):
                    skipped += 1
                    continue
                self.fail(f"accepted, but {why}: {document!r}")
            if want is not None and "error" in answer:
                if known(document):
                    skipped += 1
                    continue
                self.fail(f"refused with {answer['error']!r}: {document!r}")
            if want is None:
                refused += 1
                self.assertRegex(answer["error"], r"^line \d+: ")
            else:
                accepted += 1
                self.assertEqual(ours(answer["ok"]), want, document)
        return accepted, refused, skipped

    def test_tricky_documents(self):
        self.compare(TRICKY)

    def test_generated_documents(self):
        maker = Maker(random.Random(SEED))
        documents = [maker.document() for _ in range(COUNT)]
        accepted, refused, skipped = self.compare(documents)
        self.assertGreater(accepted, COUNT // 3)
        self.assertGreater(refused, COUNT // 50)
        self.assertLess(skipped, COUNT // 50)

    def test_mutated_documents(self):
        maker = Maker(random.Random(SEED + 1))
        documents = [maker.mutate(maker.document()) for _ in range(4 * COUNT)]
        documents += [maker.mutate(t) for t in TRICKY for _ in range(20)]
        accepted, refused, skipped = self.compare(documents)
        self.assertGreater(accepted, COUNT // 2)
        self.assertGreater(refused, COUNT)
        self.assertLess(skipped, COUNT // 10)

    def test_where_the_two_differ_on_purpose(self):
        answers = drive([b"a=9223372036854775808", b"a=-9223372036854775809", b"a=0x8000000000000000", b"a=0000-01-01",
                         b"a=" + b"[" * 65, b"a=" + b"[" * 64 + b"]" * 64,
                         b"#" * ((1 << 20) + 1)])
        self.assertEqual(answers[:3], [{"error": "line 1: the integer does not fit 64 bits"}] * 3)
        self.assertEqual(answers[3], {"ok": {"a": ["local-date", "0000-01-01"]}})
        self.assertIn("more than 64 deep", answers[4]["error"])
        self.assertIn("ok", answers[5])
        self.assertIn("at most 1048576 bytes", answers[6]["error"])


if __name__ == "__main__":
    sys.exit(unittest.main())
