# SPDX-License-Identifier: Apache-2.0
"""Which methods of a client a driver called: the list comes from the client itself, so that one nobody thought of is
noticed."""

import inspect


def methods(part):
    return {name for name, _ in inspect.getmembers(type(part), inspect.isfunction) if not name.startswith("_")}


class Watched:
    """A part of a client (its tools, its agents) that remembers what was asked of it."""

    def __init__(self, part):
        self.part, self.seen = part, set()

    def __getattr__(self, name):
        value = getattr(self.part, name)
        if inspect.ismethod(value):
            self.seen.add(name)
        return value

    def unseen(self):
        return methods(self.part) - self.seen


def same(got, wanted):
    assert got == wanted, f"{got!r} is not {wanted!r}"


def refused(kind, status, call, *args, **more):
    """The refusal of a call: the client's own exception, with this status."""
    try:
        got = call(*args, **more)
    except kind as e:
        same(e.status_code, status)
        return e
    raise AssertionError(f"not refused, but {got!r}")
