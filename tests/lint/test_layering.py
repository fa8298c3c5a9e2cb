# SPDX-License-Identifier: Apache-2.0
"""The layering law: a room of src/ includes only itself and rooms below it.

The order is not written here but in docs/ARCHITECTURE.md, in the fenced block ```layers, lowest room first, one per
line; words after the first are for the reader.  `include` stands for include/brig.h: its place in the order says who
may use it.  Four laws more: the command line uses the library as any other program would, so it never looks into the
rooms behind brig.h; a private header is included only by files of its own room; a folder has at most FOLDER_MAX files;
and no file name stands in two rooms.
"""

import collections
import os
import pathlib
import re
import unittest

from tree import ROOT, bare_c, files, name

FOLDER_MAX = 45
ARCHITECTURE = ROOT / "docs/ARCHITECTURE.md"
# behind brig.h lie jail, guest and engine
CLI_ONLY = {"include", "base", "loop", "codec", "gate", "config", "client", "supervisor", "cli"}
PRIVATE = re.compile(r"(?:private|internal|.*_(?:priv|private|parts|int))\.h")  # a name that says: for this room only
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)


def layers():
    text = ARCHITECTURE.read_text(encoding="utf-8")
    block = re.search(r"^```layers[ \t]*\n(.*?)^```", text, re.M | re.S)
    if not block:
        raise AssertionError("docs/ARCHITECTURE.md has no fenced block ```layers")
    return [line.split()[0] for line in block.group(1).splitlines() if line.strip()
            and not line.lstrip().startswith("#")]


def room_of(path, order):
    parts = pathlib.PurePath(path).parts
    return parts[0] if len(parts) > 1 and parts[0] in order else None


def target(source, quoted, angled, order):
    """The room that an include leads to; None for the system's headers."""
    text = quoted or angled
    src = ROOT / "src"
    if pathlib.PurePath(text).name == "brig.h":
        return "include"
    if quoted and (source.parent / text).exists():
        real = os.path.relpath((source.parent / text).resolve(), src)
        return room_of(real, order) if not real.startswith("..") else None
    # "room/file.h" with src/ as the include directory, whether the file is in the tree or generated
    return room_of(text, order)


def violations(order, sources):
    bad = []
    for path in sources:
        inside = path.relative_to(ROOT / "src")
        room = room_of(inside, order)
        if room is None:
            bad.append(f"{name(path)}: src/{inside.parts[0]} is not a room of the ```layers block")
            continue
        text = bare_c(path.read_text(encoding="utf-8"), strings=False)
        for hit in INCLUDE.finditer(text):
            line = text.count("\n", 0, hit.start()) + 1
            to = target(path, hit.group(1), hit.group(2), order)
            if to is None or to == room:
                continue
            header = pathlib.PurePath(hit.group(1) or hit.group(2)).name
            if PRIVATE.fullmatch(header):
                bad.append(f"{name(path)}:{line}: {header} is private to {to}, and {room} includes it")
            if order.index(to) > order.index(room):
                bad.append(f"{name(path)}:{line}: {room} must not include {to}, which is above it")
            elif room == "cli" and to not in CLI_ONLY:
                bad.append(f"{name(path)}:{line}: cli must not include {to}, only brig.h")
    return bad


class Layering(unittest.TestCase):
    def test_order_is_sane(self):
        order = layers()
        self.assertEqual(len(order), len(set(order)), f"a room twice: {order}")
        self.assertIn("include", order)
        self.assertIn("base", order[:2])
        self.assertEqual(order[-1], "cli")

    def test_includes_point_downwards(self):
        sources = files(ROOT / "src", {".c", ".h", ".inc"})
        self.assertTrue(sources, "no sources")
        bad = violations(layers(), sources)
        self.assertFalse(bad, "\n" + "\n".join(bad))

    def test_a_folder_is_a_room_and_not_a_hall(self):
        count = collections.Counter(path.parent for path in files(ROOT / "src", {".c", ".h", ".inc"}))
        self.assertEqual({name(folder): n for folder, n in count.items() if n > FOLDER_MAX}, {})

    def test_a_file_name_stands_in_one_room(self):
        where = collections.defaultdict(list)
        for path in files(ROOT / "src", {".c", ".h", ".inc"}):
            where[path.name].append(name(path))
        self.assertEqual([places for places in where.values() if len(places) > 1], [])

    def test_the_names_of_private_headers(self):
        for header in ("private.h", "internal.h", "pool_priv.h", "link_private.h", "cgroup_parts.h", "files_int.h"):
            self.assertTrue(PRIVATE.fullmatch(header), header)
        for header in ("privileges.h", "process.h", "print.h", "parts.h", "point.h"):
            self.assertFalse(PRIVATE.fullmatch(header), header)

    def test_the_check_bites(self):
        order = ["include", "base", "jail", "cli"]
        source = ROOT / "src/base/x.c"
        self.assertEqual(target(source, "jail/plan.h", None, order), "jail")
        self.assertEqual(target(source, None, "stdio.h", order), None)
        self.assertEqual(target(source, None, "sys/mount.h", order), None)
        self.assertEqual(target(source, "brig.h", None, order), "include")


if __name__ == "__main__":
    unittest.main()
