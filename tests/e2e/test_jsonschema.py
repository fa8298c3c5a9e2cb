# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema validator against the official test suite, drafts 2020-12 and 7, optional parts and formats included.

The suite is no part of this tree: it is looked for in $BRIG_TEST_DATA/json-schema-test-suite. What we do not do is
listed here, group by group and test by test, with the reason, and the lists are exact: a schema that is refused and not
listed fails, and so does one that is listed and not refused.
"""

import json
import os
import pathlib
import subprocess
import unittest

PREFIX = os.environ.get("BRIG_INSTALL_DIR", "")
BUILD = os.environ.get("BRIG_BUILD_DIR", "build")
DRIVER = next((p for p in (f"{PREFIX}/tests/e2e/schema_host", f"{BUILD}/tests/e2e/schema_host") if os.path.exists(p)),
              "schema_host")
SUITE = pathlib.Path(os.environ.get("BRIG_TEST_DATA") or "/nonexistent", "json-schema-test-suite/tests")
DRAFT7 = "http://json-schema.org/draft-07/schema#"
FORMATS = 1  # SCHEMA_FORMATS

# Schemas that refer to a document elsewhere (the suite's `remotes`, or a meta-schema). Nothing is ever fetched: refused
# when compiled. True: every group.
OUTSIDE = {
    "draft2020-12/refRemote.json": True,
    "draft2020-12/optional/cross-draft.json": True,
    "draft2020-12/defs.json": ["validate definition against metaschema"],
    "draft2020-12/ref.json": ["remote ref, containing refs itself"],
    "draft2020-12/dynamicRef.json": [
        "strict-tree schema, guards against misspelled properties",
        "tests for implementation dynamic anchor and reference link",
        "$ref and $dynamicAnchor are independent of order - $defs first",
        "$ref and $dynamicAnchor are independent of order - $ref first",
        "$ref to $dynamicRef finds detached $dynamicAnchor",
    ],
    "draft7/refRemote.json": True,
    "draft7/definitions.json": ["validate definition against metaschema"],
    "draft7/ref.json": ["remote ref, containing refs itself"],
    "draft7/optional/cross-draft.json": True,
}
# Schemas whose $schema is a meta-schema of somebody's own: refused.
FOREIGN = {"draft2020-12/vocabulary.json": True, "draft2020-12/optional/format-assertion.json": True}
# content* only describes (2020-12 says so for everybody; draft 7 leaves it open).
IGNORED = {"draft7/optional/content.json"}
# Single tests. pcre2 knows no lookbehind of variable width; libidn2 2.3.3 does not apply two of the rules for text from
# right to left.
KNOWN = {
    ("optional/format/ecmascript-regex.json", "a variable-width lookbehind (ES2018)"),
    ("optional/format/idn-hostname.json", "Bidi domain name with a digit-first label is invalid"),
    ("optional/format/idn-hostname.json", "right-to-left label mixing both digit types is invalid"),
}


def listed(table, name, group):
    entry = table.get(name, [])
    return entry is True or group["description"] in entry


def run(groups):
    """[(flags, schema, instances)] -> the driver's lines."""
    done = subprocess.run([DRIVER], input=json.dumps(groups).encode(), stdout=subprocess.PIPE, check=True)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(groups), (len(lines), len(groups))
    return lines


def with_draft(schema, draft):
    """Draft 7's files name no draft, and ours without one is 2020-12."""
    if draft == "draft7" and isinstance(schema, dict) and "$schema" not in schema:
        return {"$schema": DRAFT7, **schema}
    return schema


@unittest.skipUnless(SUITE.is_dir(), "BRIG_TEST_DATA names no directory with json-schema-test-suite")
class Suite(unittest.TestCase):
    LIMIT_SECONDS = 120

    def check_group(self, name, group, line):
        """How many of its tests agree; what is not as listed fails."""
        where = f"{name}: {group['description']}"
        refused = line.startswith("refused ")
        self.assertEqual(refused, listed(OUTSIDE, name, group) or listed(FOREIGN, name, group), f"{where}: {line}")
        if refused:
            self.assertIn("leads out of the schema" if listed(OUTSIDE, name, group)
                          else "must be JSON Schema 2020-12 or draft 7", line, where)
            return 0
        agreed = 0
        for test, got in zip(group["tests"], line.split("\t")[0], strict=True):
            if name in IGNORED or (name.split("/", 1)[1], test["description"]) in KNOWN:
                self.assertIn(got, "vi", where)
                continue
            self.assertEqual(got, "v" if test["valid"] else "i", f"{where}: {test['description']}: {test['data']!r}")
            agreed += 1
        return agreed

    def check_draft(self, draft):
        counts = {}
        for path in sorted((SUITE / draft).rglob("*.json")):
            name = path.relative_to(SUITE).as_posix()
            groups = json.loads(path.read_text(encoding="utf-8"))
            flags = FORMATS if "/optional/format/" in name else 0
            lines = run([[flags, with_draft(g["schema"], draft), [t["data"] for t in g["tests"]]] for g in groups])
            counts[name] = sum(self.check_group(name, group, line) for group, line in zip(groups, lines))
        for name, count in counts.items():
            print(f"{count:5} {name}")
        print(f"{sum(counts.values()):5} {draft}")
        return sum(counts.values())

    def test_draft_2020_12(self):
        self.assertGreater(self.check_draft("draft2020-12"), 1900)

    def test_draft_7(self):
        self.assertGreater(self.check_draft("draft7"), 1500)


class Driver(unittest.TestCase):
    """What needs no suite: that the driver tells the three answers apart."""

    def test_answers(self):
        web = {"$defs": {f"a{i}": {"allOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 4} for i in range(20)} | {"a20": True},
               "$ref": "#/$defs/a0"}
        lines = run([[0, {"type": "integer"}, [1, 1.5]], [0, {"type": "int"}, []], [0, web, [1]]])
        self.assertEqual(lines[0], "vi\targuments: must be a whole number, is a number with a fraction")
        self.assertEqual(lines[1],
                         "refused schema /type: must be null, boolean, integer, number, string, array or object")
        self.assertEqual(lines[2], "e\targuments: too much work to check against the schema")


if __name__ == "__main__":
    unittest.main()
