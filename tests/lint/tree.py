# SPDX-License-Identifier: Apache-2.0
"""What the static checks share: the files of the tree, and C without its comments and strings."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIP = {".git", "__pycache__", ".cache", ".venv", "node_modules"}


def files(top=ROOT, suffixes=None):
    """Every file of ours below `top`, sorted.  No git needed: a tarball has none."""
    found = []
    for where, dirs, names in os.walk(top):
        here = pathlib.Path(where)
        dirs[:] = [d for d in dirs if d not in SKIP and not (here == ROOT and d.startswith("build"))]
        found += [here / n for n in names if suffixes is None or pathlib.Path(n).suffix in suffixes]
    return sorted(p for p in found if p.is_file() and not p.is_symlink())


def name(path):
    return str(path.relative_to(ROOT))


def bare_c(text, strings=True):
    """C source with comments blanked, and strings too if asked; line numbers stay."""

    def blank(hit):
        token = hit.group(0)
        if token[0] == "/":
            return re.sub(r"[^\n]", " ", token)
        return token[0] + re.sub(r"[^\n]", " ", token[1:-1]) + token[-1] if strings else token

    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text, flags=re.S)


def c_comments(text):
    """(line, comment) of every /* */ comment, outside of strings."""
    for hit in re.finditer(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', text, flags=re.S):
        if hit.group(0).startswith("/*"):
            yield text.count("\n", 0, hit.start()) + 1, hit.group(0)


def dialect(text):
    """What is no plain English in a text whose paragraphs are lines: a sentence that begins with "Of", and words that
    have a plain one (the original: Letta; what runs leave: output files; requirement set: dependency set)."""
    return (re.findall(r"(?:^|[\0\n|]|[.!?:] ) *(Of (?=[a-z`]).{0,40})", text)
            + re.findall(r"(?i)\b((?:the original|what runs leave|requirement sets?)\b.{0,40})", text))
