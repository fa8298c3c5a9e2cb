#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_text.py texts.json OUT.h DEPFILE: the runtimes as C strings, one array per text; a text may be several files, one
behind the other.

A text is one argument of execve(), which the kernel limits to 128 KiB (MAX_ARG_STRLEN); ours end at 120.
"""

import json
import pathlib
import sys

LIMIT = 120 * 1024


def main():
    listed, out_path, dep_path = sys.argv[1:4]
    root = pathlib.Path(listed).parent
    out = ["/* made from runtimes/ by tools/gen_text.py */"]
    inputs = [listed]
    for name, files in json.loads(pathlib.Path(listed).read_text(encoding="utf-8")).items():
        data = b"".join((root / file).read_bytes() for file in files)
        inputs += [str(root / file) for file in files]
        if len(data) > LIMIT or b"\0" in data:
            sys.exit(f"{name}: {len(data)} bytes, or a NUL: one argument has at most {LIMIT}")
        out.append(f"static const char runtime_{name}[] = {{")
        out += [",".join(str(byte) for byte in data[i:i + 32]) + "," for i in range(0, len(data), 32)]
        out.append("0};")
    pathlib.Path(out_path).write_text("\n".join(out) + "\n", encoding="ascii")
    pathlib.Path(dep_path).write_text(f"{out_path}: {' '.join(inputs)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
