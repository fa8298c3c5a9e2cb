# SPDX-License-Identifier: Apache-2.0
"""docs/BENCHMARKS.md and the chart, from what `brig bench -o json` said and the facts of the machine.

The page is written anew each time but for what stands between the two markers: why a number was missed is for a person
to say.
"""

import re
import textwrap

import chart
import tools_profile
from catalog import GATE, NUMBERS, PEERS, PROVIDERS, SERVICE, TEMPLATES, TOOLS

BEGIN, END = "<!-- written by hand: begin -->", "<!-- written by hand: end -->"
NOTHING_YET = "Nothing was written here yet."
LABELS = {
    "standalone": "brig run / bwrap", "library_pooled": "library, pooled", "library_pool_off": "library, pool off",
    "burst_pooled": "100 at once / posix_spawn",
    "python": "python3, inside / outside", "memory": "memory of an idle sandbox", "cpu": "CPU loop",
    "getppid": "getppid loop",
    "checked": "argument-checked call", "files": "file loop, memory", "files_on_disk": "file loop, disk",
}


class Results:
    def __init__(self, bench, machine):
        self.bench, self.machine = bench, machine
        self.rows = {row["name"]: row for row in bench["results"]}
        self.numbers = [(n, self.rows[n.row]) for n in NUMBERS if n.row in self.rows]
        self.missing = [n for n in NUMBERS if n.row not in self.rows]

    def bounded(self):
        return [(n, row) for n, row in self.numbers if "kept" in row]

    def missed(self):
        return [n for n, row in self.bounded() if not row["kept"]]

    def fewest_runs(self):
        return min(row["runs"] for n, row in self.numbers if n.id != "memory") if self.numbers else 0


# ---- Values ---------------------------------------------------------------------------------------------------------


def show(value, unit):
    if unit == "us":
        return f"{value / 1000:.2f} ms" if value < 100000 else f"{value / 1000:.0f} ms"
    if unit == "ops/s":
        return f"{value / 1e6:.1f} M/s" if value >= 1e6 else f"{value / 1e3:.1f} k/s"
    if unit == "MiB" and value < 10:
        return f"{value:.2f} MiB"
    return f"{value:.0f} {unit}"


def bound_of(row):
    """"at most 0.8 ×", "at most 2 ms" ..."""
    if "kept" not in row:
        return "reported"
    side, value = ("at least", row["at_least"]) if "at_least" in row else ("at most", row["at_most"])
    side = f"{row['of']} {side}" if "of" in row else side
    if "ratio" in row:
        return f"{side} {value:.2f} ×"
    if "added" in row:
        return f"{side} +{value / 1000:g} ms"
    return f"{side} {value / 1000:g} ms" if row["unit"] == "us" else f"{side} {value:g} {row['unit']}"


def compared(row):
    """With the row it is measured against: "1.37 ×", or "+0.12 ms"."""
    if "added" in row:
        return f"{row['added'] / 1000:+.2f} ms"
    return f"{row['ratio']:.2f} ×" if "ratio" in row else ""


def share_of(row):
    """Of the bound, what was used: 1 is just kept."""
    value = row["ratio"] if "ratio" in row else row["p50"]
    return row["at_least"] / value if "at_least" in row else value / row["at_most"]


def verdict(row):
    return "" if "kept" not in row else "kept" if row["kept"] else "**missed**"


def table(head, rows, right=()):
    rule = ["---:" if i in right else "---" for i in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, rule, *rows]) + "\n"


def how_list(rows):
    """How each number is measured: (id, command, words)."""
    return "".join(fill(f"* `{name}` (`{command}`): {how}", "  ") + "\n" for name, command, how in rows)


def fill(text, indent=""):
    return textwrap.fill(text, 100, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def filled(text):
    """The text with no paragraph wider than 100 columns; rows of tables cannot be broken."""
    parts = text.split("\n\n")
    return "\n\n".join(fill(p) if max(map(len, p.split("\n"))) > 100
                       and not re.search(r"^([|#*<-]|!\[)", p, re.M) else p for p in parts)


# ---- The page -------------------------------------------------------------------------------------------------------


def promises_table(results):
    rows = []
    for n, row in results.numbers:
        tail = (f"highest {show(row['p99'], row['unit'])}", "") if n.id == "memory" else (show(row["p95"], row["unit"]),
                                                                                          show(row["p99"], row["unit"]))
        other = results.rows.get(row.get("against"))
        against = f"{other['name']}: {show(other['p50'], other['unit'])}" if other else ""
        ratio = f"{row['ratio']:.2f} ×" if "ratio" in row else ""
        rows.append([f"{n.what} (`{n.id}`)", show(row["p50"], row["unit"]), *tail, str(row["runs"]), against, ratio,
                     bound_of(row), verdict(row)])
    rows += [[f"{n.what} (`{n.id}`)", "not measured", "", "", "", "", "", "", ""] for n in results.missing]
    return table(["number", "p50", "p95", "p99", "runs", "against (p50)", "ratio", "promise", ""], rows,
                 right=(1, 2, 3, 4, 6))


def peers_table(results):
    rows, base = [], results.rows.get("brig run")
    for name, command, what in PEERS:
        if row := results.rows.get(name):
            ratio = f"{row['p50'] / base['p50']:.2f} ×" if base and row is not base else ""
            rows.append([f"`{command}`", *(show(row[p], "us") for p in ("p50", "p95", "p99")), ratio, what])
    return table(["command", "p50", "p95", "p99", "to brig", "what it sets up"], rows, right=(1, 2, 3, 4))


def how_table(results):
    return how_list((n.id, f"brig bench --only {n.group}", n.how) for n in NUMBERS)


def written_by_hand(old):
    hit = re.search(re.escape(BEGIN) + r"\n(.*?)" + re.escape(END), old, re.S)
    return hit.group(1).strip() if hit else NOTHING_YET


def unexplained(results, prose):
    return [n.id for n in results.missed() if not re.search(rf"(?<![\w-]){re.escape(n.id)}(?![\w-])", prose)]


def summary(results):
    bounded, missed = results.bounded(), results.missed()
    words = f"{len(bounded) - len(missed)} of {len(bounded)} promises kept"
    return words + (f"; missed: {', '.join(n.id for n in missed)}" if missed else "")


def page(results, old):
    bench, prose = results.bench, written_by_hand(old)
    facts = table(["machine", ""], [[k, v] for k, v in results.machine])
    absent = "".join(f"- {s['name']}: {s['reason']}\n" for s in bench["skipped"])
    return filled(f"""# Benchmarks

What a sandbox costs, and what is promised about it. Everything on this page but the last section is written by `make
bench` (`tests/bench/run.py`) from one run of `brig bench -o json`: what is compared was measured in that run,
interleaved, and a ratio is that of two p50s. Ratios travel from machine to machine better than times; make your own
with `make bench`, or `brig bench` where brig is installed.

{facts}
![Two bar charts: the time of /bin/true as a command by brig and its peers, and the share of each
promise's bound that was used](benchmarks.svg)

## Promises

**{summary(results)}.**

Percentiles count from the good end: p99 of a speed is what 99 of 100 runs reached.

{promises_table(results)}
## brig and its peers, as commands

The same run; each in the cheapest form that still is a sandbox, from Debian's packages. Docker's engine is started
before, on a private socket with a private data root, and its start is not counted; its image is `/bin/true` with its
libraries.

{peers_table(results)}
{"Not measured:" + chr(10) * 2 + absent + chr(10) if absent else ""}## How each is measured

All at once: `make bench`, at most 20 minutes. One group: the command in the list, with `-o json` for a program and
`--runs N` for more or fewer than 200 rounds. Times are CLOCK_MONOTONIC in the measuring process; percentiles are by
nearest rank; nothing is averaged and no run is left out.

{how_table(results)}
{old_parts(old)}## What was missed and why

{BEGIN}
{prose}
{END}
""")


# ---- The service and the gate: sections of their own -----------------------------------------------------------------


def section_line(number, row, rows):
    other = rows.get(row.get("against"))
    against = f"{other['name'].partition(': ')[2]}: {show(other['p50'], other['unit'])}" if other else ""
    return [f"{number.what} (`{number.id}`)", *(show(row[p], row["unit"]) for p in ("p50", "p95", "p99")),
            str(row["runs"]), against, compared(row), bound_of(row), verdict(row)]


def section(results, numbers, script, title, intro, after=""):
    """The numbers of a script's results, what could not be measured, and how each is taken."""
    rows = {row["name"]: row for row in results["results"]}
    found = [(n, rows[n.row]) for n in numbers if n.row in rows]
    bounded = [(n, row) for n, row in found if "kept" in row]
    missed = [n.id for n, row in bounded if not row["kept"]]
    words = f"{len(bounded) - len(missed)} of {len(bounded)} promises kept" + (f"; missed: {', '.join(missed)}"
                                                                               if missed else "")
    lines = table(["number", "p50", "p95", "p99", "runs", "against (p50)", "ratio", "promise", ""],
                  [section_line(n, row, rows) for n, row in found], right=(1, 2, 3, 4, 6))
    how = how_list((n.id, f"tests/bench/{script} --only {n.group}", n.how) for n in numbers)
    absent = "".join(f"- {s['name']}: {s['reason']}\n" for s in results["skipped"])
    return filled(f"""## {title}

{intro} The load of the machine (one minute) was {results['load']} before it and {results['load_after']} after it.

**{words}.**

{lines}
{after + chr(10) * 2 if after else ""}{"Not measured:" + chr(10) * 2 + absent + chr(10) if absent else ""}{how}""")


def service_section(results):
    rows = {row["name"]: row for row in results["results"]}
    parts = ", ".join(f"{name.removeprefix('service: ')} {show(rows[name]['p50'], 'us')}"
                      for name in ("service: create", "service: run", "service: delete") if name in rows)
    intro = """A `brig serve` with directories of its own, asked over its unix socket by a client in C
(`tests/bench/service_client.c`); what is compared takes turns in one run."""
    cycle = f"A cycle consists of (p50 each): {parts}." if parts else ""
    return section(results, SERVICE, "service.py", "The service", intro, cycle)


def gate_section(results):
    intro = """The client and the server of `tests/bench/gate_peer.c`: the client in a sandbox of a `brig serve` with
directories of its own, through brig-egress, or (direct) on the host without it; the server on the host's loopback.
They take turns in one run. brig-egress is held to one CPU and both peers to another; where brig-egress shares theirs,
that is said. What is decided is written to the audit log meanwhile, as always."""
    return section(results, GATE, "gate.py", "The gate", intro)


def profile_table(lines):
    """Of CPU time per run: who has it, and in which stages."""
    if not lines:
        return ""
    rows = [[who, f"{share:.0%}", f"{us:.0f} µs",
             ", ".join(f"{name} {value:.0f}" for name, value in stages if value >= us / 50)]
            for who, share, us, stages in tools_profile.by_who(lines) if share >= 0.005]
    words = """Where the CPU time of a sustained load goes, all CPUs together, \
per run (samples of `cpu-clock` by `perf record -a -g`, \
put together by the program that ran and the kernel's function it was in; the
client's own share is in it):"""
    return words + "\n\n" + table(["who", "share", "per run", "of that, in µs"], rows, right=(1, 2))


def tools_section(results):
    intro = """A `brig serve` with directories of its own, asked over its unix socket by a client in C
(`tests/bench/tools_client.c`). Each run is in a fresh sandbox that is used once, with every layer on (a receipt is
looked at before anything is measured), and is audited and stored as always. What is compared takes turns in one
run."""
    return section(results, TOOLS, "tools.py", "Tools", intro, profile_table(results.get("profile")).rstrip())


def templates_section(results):
    intro = """A `brig serve` with directories of its own, a registry on loopback, and a private Docker engine that is
asked for the same in turns. The image is made by the bench: programs of this machine, and files whose content gzip
makes about half as long."""
    return section(results, TEMPLATES, "templates.py", "Templates", intro)


def providers_section(results):
    intro = """`make bench-providers`: a `brig serve` with directories of its own, asked over its unix socket by a
client in Python, and each provider's own program as a command: a private Docker engine, runc, crun and runsc with a
bundle whose root is this machine's `/usr`, and QEMU with the same words outside of any sandbox. They take turns in one
run."""
    return section(results, PROVIDERS, "providers.py", "Providers", intro)


# What is measured after `brig bench`, each a section of its own: name, name in its markers, section.
PARTS = {"service": ("the service", service_section), "gate": ("the gate", gate_section),
         "tools": ("tools", tools_section), "templates": ("templates", templates_section),
         "providers": ("providers", providers_section)}


def marker(part, word):
    return f"<!-- {PARTS[part][0]}: {word} -->"


def part_section(part, results):
    """The whole section, markers included."""
    return f"{marker(part, 'begin')}\n{PARTS[part][1](results)}\n{marker(part, 'end')}\n"


def old_part(old, part):
    hit = re.search(re.escape(marker(part, "begin")) + r"\n.*?" + re.escape(marker(part, "end")) + r"\n", old, re.S)
    return hit.group(0) if hit else ""


def old_parts(old):
    return "".join(found + "\n" for found in (old_part(old, part) for part in PARTS) if found)


def with_part(old, part, results):
    """The page with this section in place of the one it has, or before the last."""
    before, text = old_part(old, part), part_section(part, results)
    if before:
        return old.replace(before, text)
    return old.replace("## What was missed and why\n", text + "\n## What was missed and why\n", 1)


def svg(results):
    commands = []
    for name, _, _ in PEERS:
        if row := results.rows.get(name):
            commands.append((name, row["p50"], row["p95"], row["p99"], name == "brig run"))
    shares = []
    for n, row in results.bounded():
        measured = f"{row['ratio']:.2f} ×" if "ratio" in row else show(row["p50"], row["unit"])
        shares.append((LABELS[n.id], share_of(row), f"{measured} ({bound_of(row).removesuffix(' ×')})"))
    facts = dict(results.machine)
    return chart.draw(f"{facts['date']}, Linux {facts['kernel']}, {facts['CPUs']}, {results.fewest_runs()} runs each",
                      commands, shares)
