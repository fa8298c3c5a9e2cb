#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_runtime.py texts.json OUT.py DEPFILE: the Python runtime as the one file that a zygote loads
(src/spawner/zygote.py): its parts, then its core."""

import json
import pathlib
import sys


def main():
    listed, out_path, dep_path = sys.argv[1:4]
    root = pathlib.Path(listed).parent
    texts = json.loads(pathlib.Path(listed).read_text(encoding="utf-8"))
    inputs = [listed]

    def text(name):
        inputs.extend(str(root / file) for file in texts[name])
        return "".join((root / file).read_text(encoding="utf-8") for file in texts[name])

    parts = [text("python_values"), text("python_schema")]
    out = (f"# made from runtimes/ by tools/gen_runtime.py\nBRIG_ZYGOTE = True\nBRIG_PARTS = {parts!r}\n"
           f"{text('python_core')}")
    pathlib.Path(out_path).write_text(out, encoding="utf-8")
    pathlib.Path(dep_path).write_text(f"{out_path}: {' '.join(inputs)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
