#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_providers.py [--check]: writes docs/PROVIDERS-TABLE.md from the rows of the suite that runs on every provider.

The rows are beside the checks in tests/providers/suite_*.py, so the page says what was tested, and nothing else.  With
--check nothing is written; the exit status is 1 if the page is not what would be written.
"""

import pathlib
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/PROVIDERS-TABLE.md"
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "tests/providers"), str(ROOT / "tests/e2e")]

import rows  # noqa: E402  pylint: disable=wrong-import-position
import suite_life  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import
import suite_programs  # noqa: E402,F401  pylint: disable=wrong-import-position,unused-import

HEAD = """# The same checks on every provider

`make test-providers` runs each of these checks on every provider ([PROVIDERS.md](PROVIDERS.md)).
`same` is what `local` does. `different` and `no` have a number: what is otherwise, or why it is not
possible, stands below the table. A result that this page does not say fails the test.
`runsc-2022` is the runsc of Debian 12. This page is made by `tools/gen_providers.py` from
`tests/providers/suite_programs.py` and `tests/providers/suite_life.py`: change a row there, then
run it.
"""
TITLES = {"Programs": "Programs, terminals and shells", "Files": "Files", "Ports": "Ports and previews",
          "Tools": "Tool runs", "Limits": "Limits and causes", "Life": "Pause, recovery and ends",
          "Network": "Network and secrets", "Roots": "Roots and binds", "Statement": "The statement"}


def table(of_room, can, notes):
    """The lines of one room's table. notes: the texts so far, which it adds to."""
    lines = ["| check | " + " | ".join(rows.COLUMNS) + " |", "|" + "---|" * (1 + len(rows.COLUMNS))]
    for row in of_room:
        cells = []
        for name, column in rows.COLUMNS.items():
            other = row.expected(name, can[column.provider])
            if other is None:
                cells.append("same")
                continue
            word, text = (("no", f"{other.why}: \"{other.text}\"") if isinstance(other, rows.Refuses)
                          else ("different", other.how))
            if text not in notes:
                notes.append(text)
            cells.append(f"{word} {notes.index(text) + 1}")
        lines.append(f"| {row.what} | " + " | ".join(cells) + " |")
    return lines


def page():
    can, notes, lines = rows.documented(), [], [HEAD]
    for room, title in TITLES.items():
        lines += [f"## {title}", "", *table([row for row in rows.ROWS if row.room == room], can, notes), ""]
    lines += ["## What is different, and what is not possible", ""]
    for number, text in enumerate(notes, 1):
        lines += textwrap.wrap(f"{number}. {text}", 100, subsequent_indent="   ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    unknown = {row.room for row in rows.ROWS} - set(TITLES)
    if unknown:
        sys.exit(f"no title for {unknown}")
    text = page()
    if sys.argv[1:]:
        if not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text:
            sys.exit("docs/PROVIDERS-TABLE.md is not what the suite says: run tools/gen_providers.py")
        return
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
