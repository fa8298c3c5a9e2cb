# SPDX-License-Identifier: Apache-2.0
"""docs/benchmarks.svg: two bar charts, drawn by hand.

Above, the commands on a logarithmic axis, with whiskers to p95 and p99. Below, every promise as the share of its bound
that was used: left of the line it is kept. No scripts, no fonts of our own, a background, so that it reads on light and
dark pages.
"""

import math
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, ROW = 900, 220, 170, 30
PLOT = WIDTH - LEFT - RIGHT
BRIG, PEER, KEPT, MISSED, INK, SOFT, GRID = "#1f6feb", "#8c959f", "#2da44e", "#d1242f", "#1f2328", "#59636e", "#d8dee4"


def text(x, y, words, size=13, anchor="start", fill=INK, weight="normal"):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="{fill}" '
            f'font-weight="{weight}">{escape(words)}</text>')


def line(x1, y1, x2, y2, stroke, width=1.0):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def rect(x, y, w, h, fill):
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 1):.1f}" height="{h:.1f}" rx="2" fill="{fill}"/>'


def show_ms(us):
    return f"{us / 1000:.1f} ms" if us < 100000 else f"{us / 1000:.0f} ms"


def commands(rows, top):
    """rows: (label, p50, p95, p99 in us, is it brig). Returns the elements and the y below."""
    out = [text(16, top, "/bin/true as a command: p50, whiskers to p95 and p99 (logarithmic)", 15, weight="bold")]
    low = 10 ** math.floor(math.log10(min(r[1] for r in rows)))
    high = 10 ** math.ceil(math.log10(max(r[3] for r in rows)))
    place = lambda us: LEFT + PLOT * math.log10(max(us, low) / low) / math.log10(high / low)
    top += 20
    bottom = top + ROW * len(rows)
    for decade in range(round(math.log10(low)), round(math.log10(high)) + 1):
        x = place(10.0**decade)
        out += [line(x, top, x, bottom, GRID), text(x, bottom + 16, f"{10.0**decade / 1000:g} ms", 12, "middle", SOFT)]
    for i, (label, p50, p95, p99, brig) in enumerate(rows):
        y, mid = top + ROW * i + 5, top + ROW * (i + 0.5)
        out += [text(LEFT - 10, mid + 4, label, 13, "end", INK, "bold" if brig else "normal"),
                rect(LEFT, y, place(p50) - LEFT, ROW - 10, BRIG if brig else PEER)]
        out += [line(place(p50), mid, place(p99), mid, INK)] + [line(place(v), mid - 5, place(v), mid + 5, INK)
                                                                for v in (p95, p99)]
        out.append(text(place(p99) + 8, mid + 4, show_ms(p50), 13))
    return out, bottom + 30


def promises(rows, top):
    """rows: (label, share of the bound, words beside the bar). Returns the elements and the y below."""
    out = [text(16, top, "Promises: what of the bound was used; left of the line is kept", 15, weight="bold")]
    end = max(1.25, math.ceil(max(r[1] for r in rows) * 4) / 4)
    place = lambda share: LEFT + PLOT * share / end
    top += 20
    bottom = top + ROW * len(rows)
    for i in range(round(end * 4) + 1):
        if end <= 2.5 or i % 4 == 0:
            x = place(i / 4)
            out += [line(x, top, x, bottom, GRID), text(x, bottom + 16, f"{i * 25} %", 12, "middle", SOFT)]
    for i, (label, share, words) in enumerate(rows):
        y, mid = top + ROW * i + 5, top + ROW * (i + 0.5)
        out += [text(LEFT - 10, mid + 4, label, 13, "end"),
                rect(LEFT, y, place(share) - LEFT, ROW - 10, KEPT if share <= 1 else MISSED)]
        out.append(text(max(place(share), place(1)) + 8, mid + 4, words, 12, fill=INK))
    out.append(line(place(1), top - 4, place(1), bottom, INK, 2))
    return out, bottom + 30


def draw(caption, command_rows, promise_rows):
    out, y = [], 34
    if command_rows:
        more, y = commands(command_rows, y)
        out, y = out + more, y + 24
    if promise_rows:
        more, y = promises(promise_rows, y)
        out += more
    out.append(text(16, y + 8, caption, 12, fill=SOFT))
    height = y + 24
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img"'
        ' font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">\n'
        "<!-- Made by tests/bench/run.py. -->\n"
        f"<title>brig benchmarks</title>\n<desc>{escape(caption)}</desc>\n"
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="6" fill="#ffffff"/>\n'
    )
    return head + "\n".join(out) + "\n</svg>\n"
