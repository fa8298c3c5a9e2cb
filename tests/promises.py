#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether every promise of tests/PROMISES.md was kept by a test of this very run.

The drivers append one line per test, `pass ID`, `fail ID` or `skip ID`, to the file that BRIG_TEST_RESULTS names.
`make test` asks for the kinds that it runs, `.ci/run` at its end for all of them (`promises.py FILE`); `long` and
`bench` run in neither.

A promise is kept if every test that it names was run, none of them failed and at least one of them passed: a machine
that lacks a feature skips a test, and another of the same promise must then have passed.  A promise whose row says
`BRIG_TEST_DATA` is looked at only where that variable is set: its tests need data that is no part of this tree.
"""

import os
import pathlib
import re
import sys

PROMISES = pathlib.Path(__file__).resolve().parent / "PROMISES.md"
KINDS = "unit e2e lint long compat providers repro hostile vm bench fuzz".split()
BY_MAKE_TEST = ("unit", "fuzz", "lint", "e2e", "hostile")
BY_CI = (*BY_MAKE_TEST, "repro", "vm", "compat", "providers")
ID = re.compile(r"\b(" + "|".join(KINDS) + r"):([^\s,`|<]+)")


def rows(path=PROMISES):
    """(line number, cells) of every row of every table."""
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [c.strip() for c in re.split(r"(?<!\\)\|", line.strip().strip("|"))]
        if set("".join(cells)) <= set("-: ") or cells[0].lower() == "promise":
            continue
        found.append((number, cells))
    return found


def save(path, results):
    """Appends [(status, id)]."""
    with open(path, "a", encoding="utf-8") as f:
        f.writelines(f"{status} {name}\n" for status, name in results)


def outcomes(kind, rest, results):
    """The statuses of the tests that an id names: one test, a class of them or a whole file."""
    name = f"{'replay' if kind == 'fuzz' else kind}:{rest}"
    return {status for status, got in results if got == name or got.startswith((name + ".", name + ":"))}


def broken(results, kinds, path=PROMISES):
    """One line for every promise that the tests of these kinds did not keep."""
    bad = []
    for number, cells in rows(path):
        if "BRIG_TEST_DATA" in cells[-1] and not os.environ.get("BRIG_TEST_DATA"):
            continue
        ids = [(kind, rest) for kind, rest in ID.findall(cells[-1]) if kind in kinds]
        seen = {f"{kind}:{rest}": outcomes(kind, rest, results) for kind, rest in ids}
        whole = all(kind in kinds for kind, _ in ID.findall(cells[-1]) if kind in BY_CI)
        where = f"tests/PROMISES.md:{number}"
        bad += [f"{where}: {name} was not run" for name, got in seen.items() if not got]
        bad += [f"{where}: {name} failed" for name, got in seen.items() if "fail" in got]
        if whole and not any("pass" in got for got in seen.values()):
            bad.append(f"{where}: no test of it passed: {cells[0]}")
    return bad


def main(path):
    with open(path, encoding="utf-8") as f:
        results = {tuple(line.split()[:2]) for line in f if len(line.split()) > 1}
    bad = broken(results, BY_CI)
    print("\n".join(bad))
    print(f"{len(rows()) - len({line.split(': ')[0] for line in bad})} passed, {len(bad)} failed, 0 skipped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
