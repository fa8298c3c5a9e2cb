#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""gen_openapi.py IN.yaml OUT.h: the API's description as JSON in a C array, for GET /v1/openapi.json."""

import json
import sys

import yaml

with open(sys.argv[1], encoding="utf-8") as f:
    text = json.dumps(yaml.safe_load(f), separators=(",", ":"), ensure_ascii=True)
data = text.encode("ascii")
with open(sys.argv[2], "w", encoding="ascii") as out:
    out.write("/* made from docs/openapi.yaml */\n#include <stddef.h>\n")
    out.write("static const char openapi_json[] = {\n")
    for i in range(0, len(data), 24):
        out.write(",".join(str(b) for b in data[i:i + 24]) + ",\n")
    out.write("};\nstatic const size_t openapi_json_len = sizeof openapi_json;\n")
