# SPDX-License-Identifier: Apache-2.0
# A tool in bash: lines, words and bytes of a text.
#
#     brig tool run examples/count.sh --args '{"text": "one two\nthree"}'

echo "counting ${#ARG_TEXT} characters" >&2
read -r lines words bytes < <(printf '%s' "$ARG_TEXT" | wc)
printf '{"lines": %d, "words": %d, "bytes": %d}' "$lines" "$words" "$bytes" >&"$BRIG_RESULT"
