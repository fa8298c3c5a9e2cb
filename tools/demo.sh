#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# tools/demo.sh BUILD: the last step of `make run`.  Runs examples/tool.py in a sandbox with nothing but defaults, and
# prints what it answered and the receipt of the run.

set -euo pipefail
cd "$(dirname "$0")/.."
brig=$1/src/brig
BRIG_LIBEXEC_DIR=$(realpath "$1/src") # not installed yet: the helpers lie beside it
export BRIG_LIBEXEC_DIR
receipt=$(mktemp)
trap 'rm -f "$receipt"' EXIT

echo
echo "\$ brig run -i --receipt FILE -- python3 -I - '{\"numbers\": [3, 1, 4, 1, 5, 9, 2, 6]}' <examples/tool.py"
status=0
"$brig" run -i --receipt "$receipt" -- /usr/bin/python3 -I - '{"numbers": [3, 1, 4, 1, 5, 9, 2, 6]}' <examples/tool.py \
    || status=$?
echo
echo "its receipt:"
/usr/bin/python3 -m json.tool --no-ensure-ascii "$receipt"
exit "$status"
