#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tool as an agent would call it: one JSON argument in, one JSON result out.

    brig run -v ./examples:/workspace/tool:ro -- python3 /workspace/tool/tool.py '{"numbers": [3, 1, 4, 1, 5]}'

It knows nothing of brig.  The rest of what it prints is what it can see of the machine from inside.
"""

import json
import os
import socket
import statistics
import sys


def describe(numbers):
    return {
        "count": len(numbers),
        "sum": sum(numbers),
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "sorted": sorted(numbers),
    }


def network():
    """What an outgoing connection meets.  A sandbox has no route to anywhere."""
    try:
        socket.create_connection(("192.0.2.1", 80), timeout=2).close()
        return "connected"
    except OSError as why:
        return why.strerror or str(why)


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: tool.py '{\"numbers\": [1, 2, 3]}'")
    try:
        numbers = json.loads(sys.argv[1])["numbers"]
        if not numbers or not all(isinstance(n, (int, float)) for n in numbers):
            raise ValueError("numbers: a list of at least one number")
    except (ValueError, KeyError, TypeError) as why:
        print(json.dumps({"error": {"type": type(why).__name__, "message": str(why)}}))
        return 2
    result = describe(numbers)
    seen = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "processes": sum(name.isdigit() for name in os.listdir("/proc")),
        "network": network(),
    }
    print(json.dumps({"result": result, "seen_from_inside": seen}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
