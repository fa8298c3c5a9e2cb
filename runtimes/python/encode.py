# SPDX-License-Identifier: Apache-2.0
# Values to JSON text: the plain ones, within a budget of bytes. Goes behind channel.py in one text.
DEPTH = 60  # the service reads 64 levels; the answer itself has some
MEMBERS = 1000000  # values and keys; the service reads some more


class ResultTooLarge(Exception):
    __module__ = "builtins"  # shown without a module


def _utf8(text):
    """Half surrogates have no UTF-8; they become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace").encode()


def _encoder(limit, notes, quote=_quote, irepr=int.__repr__, frepr=float.__repr__):
    """encode(value) -> JSON text. What is not plain JSON goes through rare() of values.py, once per value."""
    total = members = 0
    path = set()
    huge = 1 << 1020  # a double's range: past it the service's reader refuses a number

    def note(text):
        if text not in notes and len(notes) < 16:
            notes.append(text)

    def spend(count, values=1):
        nonlocal total, members
        total += count
        members += values
        if total > limit:
            raise ResultTooLarge("the result is larger than the %d bytes that are allowed" % limit)
        if members > MEMBERS:
            raise ResultTooLarge("the result has more than the %d values that are allowed" % MEMBERS)

    def number(value):
        if isinstance(value, float):
            text = frepr(value)
            if text[-1] in "nf":  # nan, inf
                note("%s became null: JSON has no such number" % text)
                text = "null"
        elif -huge < value < huge:
            text = irepr(value)
        else:
            note("an integer past 1e307 became a string")
            text = '"%s"' % (irepr(value) if value.bit_length() < 14000 else hex(value))
        spend(len(text) + 1)
        return text

    def string(value):
        spend(len(value) + 3)
        text = quote(value)
        spend(len(text) - len(value) - 2, 0)
        return text

    def key(value):
        if not isinstance(value, str):
            if value is None or value is True or value is False:
                value = {None: "null", True: "true", False: "false"}[value]
            elif isinstance(value, (int, float)):
                value = str(value)
            else:
                note("keys of type %s became their str()" % type(value).__name__)
                value = str(value)
        return value.replace("\0", "\ufffd") if "\0" in value else str(value)

    def sequence(value, depth):
        kinds = set(map(type, value)) if len(value) > 8 else ()
        if len(kinds) == 1:  # long and all alike: no call per element
            kind = kinds.pop()
            spend(2 * len(value), 0)
            if kind is int and -huge < min(value) and max(value) < huge:
                text = ",".join(map(irepr, value))
                spend(len(text), len(value))
                return "[" + text + "]"
            if kind is float:
                text = ",".join(map(frepr, value))
                if "n" not in text:
                    spend(len(text), len(value))
                    return "[" + text + "]"
            if kind is str:
                spend(sum(map(len, value)), len(value))
                return "[" + ",".join(map(quote, value)) + "]"
        return "[" + ",".join([encode(item, depth) for item in value]) + "]"

    def mapping(value, depth):
        if not all(type(name) is str and "\0" not in name for name in value):
            value = {key(name): value[name] for name in value}  # two that become alike: the later one stays
        return "{" + ",".join([string(name) + ":" + encode(item, depth) for name, item in value.items()]) + "}"

    def encode(value, depth=0):
        if value is None or value is True or value is False:
            spend(6)
            return "null" if value is None else "true" if value else "false"
        if isinstance(value, str):
            return string(value if type(value) is str else str.__str__(value))
        if isinstance(value, (int, float)):
            return number(value)
        if depth >= DEPTH:
            raise ValueError("the result is nested deeper than %d levels" % DEPTH)
        mark = id(value)
        if mark in path:
            raise ValueError("Circular reference detected")
        path.add(mark)
        spend(2)
        if isinstance(value, dict):
            text = mapping(value, depth + 1)
        elif isinstance(value, (list, tuple)):
            text = sequence(value, depth + 1)
        else:
            text = encode(part("values")["rare"](value, note, spend, limit, encode), depth + 1)
        path.discard(mark)
        return text

    return encode
