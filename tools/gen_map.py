#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_map.py [--check]: writes docs/FILES.md, the map of src/, from the first sentence of each file.

The rooms and their order are those of the block ```layers in docs/ARCHITECTURE.md.  With --check nothing is written;
the exit status is 1 if the page is not what would be written.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/FILES.md"
HEAD = """# Files

Every source file with its first sentence, room by room, lowest first. A room includes only rooms above it on this page
(see [ARCHITECTURE.md](ARCHITECTURE.md), "The layering law"). This page is made by `tools/gen_map.py`: change the first
sentence of a file, then run it.
"""


def rooms():
    text = (ROOT / "docs/ARCHITECTURE.md").read_text(encoding="utf-8")
    block = re.search(r"^```layers[ \t]*\n(.*?)^```", text, re.M | re.S).group(1)
    return [line.split(None, 1) for line in block.splitlines() if line.strip()]


def first_sentence(path):
    """The opening comment, without the file's own name, up to the end of its first sentence."""
    text = path.read_text(encoding="utf-8")
    found = re.match(r"/\* SPDX[^\n]*\n(?:#ifndef \w+\n#define \w+\n)?/\*(.*?)\*/", text, re.S)
    if not found:
        raise SystemExit(f"{path.relative_to(ROOT)}: no opening comment after the SPDX line")
    lines = [line.strip().removeprefix("*").strip() for line in found.group(1).strip().split("\n")]
    paragraphs = [" ".join(p.split()).removeprefix(f"{path.name}: ") for p in "\n".join(lines).split("\n\n")]
    words = next(p for p in paragraphs if p != "Theory of operation").removeprefix("Theory of operation. ")
    return re.split(r"(?<=[a-z0-9)`\"'])\.(?= |$)", words)[0].rstrip(".:; ")


def page():
    out = [HEAD]
    for name, told in rooms():
        if name == "include":
            continue
        out.append(f"## {name}\n\n{textwrap.fill(told[0].upper() + told[1:] + '.', 100)}\n")
        for path in sorted((ROOT / "src" / name).rglob("*.[ch]")):
            line = f"- `{path.relative_to(ROOT / 'src' / name)}` {first_sentence(path)}."
            out.append(textwrap.fill(line, 100, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False))
        out.append("")
    return "\n".join(out).rstrip() + "\n"


def main():
    made = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(made, encoding="utf-8")
    elif not PAGE.exists() or PAGE.read_text(encoding="utf-8") != made:
        sys.exit("docs/FILES.md is not what the files say: run tools/gen_map.py")


if __name__ == "__main__":
    main()
