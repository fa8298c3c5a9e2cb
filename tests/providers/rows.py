# SPDX-License-Identifier: Apache-2.0
"""The table of the suite that runs on every provider: one row for each check, one column for each provider.

A check is a method that returns what it saw, or ends with Refused. The decorator row() says what must be seen: the
value `same` on every provider, but where the row has another expectation for that column:

    differs(how, value)          it works otherwise, and exactly so
    refuses(why, status, text)   it is not possible, and the answer of the service is exactly that

`needs` is a capability of docs/PROVIDERS.md: a provider without it must refuse with the text of NEEDS. Whether it has
it is what GET /v1/providers says; test_suite.py compares that with the document. There is no expectation that anything
fulfils. tools/gen_providers.py writes docs/PROVIDERS-TABLE.md from the rows.
"""

import dataclasses
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DOCUMENT = ROOT / "docs/PROVIDERS.md"


@dataclasses.dataclass(frozen=True)
class Column:
    """A provider as the table has it. service: that of fleet.py which has it; provider: its name there; limits: those
    that a sandbox or a run gets there which names none."""

    name: str
    service: str
    provider: str
    limits: dict = dataclasses.field(default_factory=dict)


COLUMNS = {c.name: c for c in (
    Column("local", "first", "local"), Column("runc", "first", "runc"), Column("crun", "first", "crun"),
    Column("runsc", "first", "runsc"),
    # Every thread of its programs is a process of the host, and there are more of them than anywhere else.
    Column("runsc-2022", "second", "runsc", {"pids": 1000}), Column("docker", "first", "docker"),
    Column("podman", "second", "docker"), Column("vm", "first", "vm"))}
ENGINES = ("docker", "podman")
GVISOR = ("runsc", "runsc-2022")

# What a provider without the capability says, with 422.
NEEDS = {"root_inside": "the provider {provider} has no root inside",
         "writable_root": "the provider {provider} has no writable root",
         "rootfs": "the provider {provider} has no other roots",
         "binds": "the provider {provider} has no binds",
         "disks": "the provider {provider} has no disks that can be kept",
         "image": "the provider {provider} has no images by name",
         "gate": "the provider {provider} has no network",
         "own_kernel": "required layer own_kernel: the provider {provider} cannot show it"}


class Refused(Exception):
    """The service's answer to what it does not do."""

    def __init__(self, answer):
        super().__init__(f"{answer}")
        self.seen = ("refused", answer.status, answer.json["error"]["message"])


@dataclasses.dataclass(frozen=True)
class Differs:
    how: str
    value: object


@dataclasses.dataclass(frozen=True)
class Refuses:
    why: str
    status: int
    text: str

    @property
    def value(self):
        return ("refused", self.status, self.text)


@dataclasses.dataclass
class Row:
    room: str
    test: str
    what: str
    same: object
    needs: str
    others: dict

    def expected(self, column, can):
        """What must be seen there: None for the value of the row, a Differs or a Refuses. can: its capabilities."""
        if column in self.others:
            return self.others[column]
        if self.needs and self.needs not in can:
            text = NEEDS[self.needs].format(provider=COLUMNS[column].provider)
            return Refuses(f"`{self.needs}` is missing", 422, text)
        return None

    def value(self, column, can):
        other = self.expected(column, can)
        return self.same if other is None else other.value


ROWS = []


def differs(how, value):
    return Differs(how, value)


def refuses(why, text, status=422):
    return Refuses(why, status, text)


def on(columns, expectation):
    """The same expectation for several columns."""
    return dict.fromkeys(columns, expectation)


def row(what, same, needs=None, **others):
    """Makes a check of a method. others: expectations by column; `on_NAME` are dicts of on()."""
    merged = {}
    for name, value in others.items():
        merged.update(value if isinstance(value, dict) else {name.replace("_", "-"): value})
    unknown = set(merged) - set(COLUMNS)
    assert not unknown, unknown

    def make(check):
        mine = Row(check.__qualname__.split(".")[0], check.__name__, what, same, needs, merged)
        ROWS.append(mine)

        @functools.wraps(check)
        def test(self):
            try:
                seen = check(self)
            except Refused as answer:
                seen = answer.seen
            self.assertEqual(seen, mine.value(self.COLUMN, self.can), f"{what}: seen, and what the table says")

        return test

    return make


def documented():
    """The capabilities of docs/PROVIDERS.md: {provider: names}."""
    text = DOCUMENT.read_text(encoding="utf-8")
    table = re.search(r"^\| provider \| capabilities \|\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)[1]
    found = {}
    for line in table.splitlines():
        names, can = line.strip("|").split("|")[:2]
        for name in re.findall(r"`(\w+)`", names):
            found[name] = set(re.findall(r"`(\w+)`", can))
    return found
