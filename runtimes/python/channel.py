# SPDX-License-Identifier: Apache-2.0
# The Python runtime (3.9 and later): it is started before anybody needs it, takes one request on descriptor 3, runs it,
# answers, ends. docs/PROTOCOL.md, "Runtime", is what goes over the descriptor; runtimes/README.md is how this text is
# started and how a zygote uses it.
#
# Theory of operation. The text comes with `python3 -I -S -c`, so that nothing of ours must exist in a template. Its
# start is the refill cost of a pool, so only what nearly every run needs is imported and compiled before the ready
# frame; rare things are parts: further texts (values.py, schema.py), compiled at first use. User code shares this
# process. What the answer needs is therefore held in local variables and closures, captured before user code begins:
# replacing json, hmac, os.write or builtins changes nothing. The key is turned into two hash states at once and is in
# no variable afterwards. Only the process that took the request may answer: a forked child that comes back here ends
# without a word.
import _io
import builtins
import os
import posix
import sys

__builtins__ = dict(vars(builtins))  # ours: what user code does to the builtins does not reach the functions below
try:
    import _json
except ImportError:  # an interpreter without the accelerator
    _json = None
try:
    from _sha256 import sha256 as _sha256
except ImportError:
    try:
        from _sha2 import sha256 as _sha256
    except ImportError:
        from hashlib import sha256 as _sha256

VERSION = 1
OURS = globals()  # frames whose globals these are, or those of a part, are cut out of tracebacks
TEXTS = list(OURS.get("BRIG_PARTS") or sys.argv[1:])
PARTS = {}
PART_NAMES = ("values", "schema")
FLAG_AWAIT = 0x2000  # ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FLAG_AST = 0x0400  # ast.PyCF_ONLY_AST
TYPING = frozenset(
    "Any AnyStr Annotated Awaitable AsyncIterator AsyncIterable AsyncGenerator Callable ClassVar Collection Coroutine "
    "DefaultDict Deque Dict Final FrozenSet Generator Generic Hashable IO Iterable "
    "Iterator List Literal Mapping MutableMapping MutableSequence NamedTuple NewType NoReturn Optional Protocol "
    "Sequence Set Sized Tuple Type TypedDict TypeVar Union "
    "cast overload get_type_hints Never NotRequired OrderedDict Required Self Text TypeAlias".split())


# --- the channel ------------------------------------------------------------------------------------------------------

def _keep(fd):
    """The channel at a high number, closed on exec: a tool that closes 3, 4, 5 ... or starts programs does not meet
    it."""
    import fcntl
    for number in (960, 230, 100, 40, 10):
        try:
            high = fcntl.fcntl(fd, 1030, number)  # F_DUPFD_CLOEXEC
        except (OSError, ValueError):
            continue
        posix.close(fd)
        return high
    posix.set_inheritable(fd, False)
    return fd


def _again(fd, events):
    """Somebody made the descriptor non-blocking."""
    import select
    poll = select.poll()
    poll.register(fd, events)
    poll.poll()


def _read(fd, count):
    pieces = []
    while count:
        try:
            piece = posix.read(fd, min(count, 1 << 20))
        except BlockingIOError:
            _again(fd, 1)  # POLLIN
            continue
        except OSError:
            piece = b""
        if not piece:
            posix._exit(0)  # the other side is gone: nobody wants us
        pieces.append(piece)
        count -= len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _send(fd, data, write=posix.write, again=_again):
    view = memoryview(len(data).to_bytes(4, "little") + data)
    while view:
        try:
            view = view[write(fd, view):]
        except BlockingIOError:
            again(fd, 4)  # POLLOUT


class _Plain:
    """What the scanner asks for: JSON as it is."""
    strict = False
    object_hook = object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = float
    memo = {}


_scan = _json and _json.make_scanner(_Plain)


def _loads(text):
    if _scan is None:
        import json
        return json.loads(text)
    return _scan(text, 0)[0]


if _json is not None:
    _quote = _json.encode_basestring
else:
    def _quote(text):
        import json
        return json.dumps(text, ensure_ascii=False)


# --- parts and state --------------------------------------------------------------------------------------------------

def part(name):
    space = PARTS.get(name)
    if space is None:
        space = {"__name__": "brig_" + name, "__builtins__": __builtins__, "core": OURS}
        exec(compile(TEXTS[PART_NAMES.index(name)], "<brig %s>" % name, "exec", dont_inherit=True), space)
        PARTS[name] = space
    return space


def _ours(space):
    return space is OURS or any(space is other for other in PARTS.values())


def load(parts=PART_NAMES,
         modules=("json", "typing", "inspect", "traceback", "linecache", "dataclasses", "datetime", "random", "re")):
    """For a zygote: everything a run may want, before the fork."""
    for name in parts:
        part(name)
    for name in modules:
        try:
            __import__(name)
        except ImportError:
            pass
    rehearse(False, 32)


def _refresh():
    """After a fork from a zygote: nothing random may be the parent's. OpenSSL sees the fork by itself."""
    modules = sys.modules
    if "random" in modules:
        modules["random"].seed()
    if "uuid" in modules:
        modules["uuid"]._node = modules["uuid"]._last_timestamp = None
    if "numpy.random" in modules:
        modules["numpy.random"].seed()
    if "tempfile" in modules:
        modules["tempfile"]._name_sequence = None
        modules["tempfile"].tempdir = None


def park(fd=3):
    """Says ready, waits for the one request, serves it. Does not return."""
    fd = _keep(fd)
    if "BRIG_ZYGOTE" in OURS:
        _refresh()
        rehearse(True)
    version = "%d.%d.%d" % sys.version_info[:3]
    _send(fd, b'{"ready":1,"language":"python","version":"%s","pid":%d}' % (version.encode(), posix.getpid()))
    request = _loads(str(_read(fd, int.from_bytes(_read(fd, 4), "little")), "utf-8"))
    _serve(request, _answerer(fd, request))


def _xored(key, byte):
    """Each byte of the key with that one: the whole is one number, not sixty-four."""
    size = len(key)
    return (int.from_bytes(key, "big") ^ int.from_bytes(bytes((byte,)) * size, "big")).to_bytes(size, "big")


def _until_closed(fd):
    """A wait for the end of the channel, and for nothing else: who waits for bytes is woken when the other side reads,
    and takes a processor from those who hand the answer out."""
    import select
    poll = select.poll()
    poll.register(fd, 0x2000)  # POLLRDHUP
    return poll.poll


def _answerer(fd, request, write=posix.write, leave=posix._exit):
    """answer(payload bytes): keyed, once, only from this process, and then the end. The key is in no variable
    afterwards."""
    key = bytes.fromhex(request.pop("key")).ljust(64, b"\0")
    inner = _sha256(_xored(key, 0x36))
    outer = _sha256(_xored(key, 0x5c))
    del key
    pid = posix.getpid()
    getpid, send, exception = posix.getpid, _send, BaseException
    linger = _until_closed(fd) if "BRIG_ZYGOTE" in OURS else None

    def answer(payload):
        if getpid() == pid:
            first, second = inner.copy(), outer.copy()
            first.update(payload)
            second.update(first.digest())
            try:
                send(fd, second.hexdigest().encode() + b"\n" + payload, write)
                if linger is not None:
                    # killed here, with the sandbox, once the answer is handed out: an end of its own would take a
                    # processor from those who hand it out
                    linger()
            except exception:
                # the channel was closed by the tool: no answer, and the service says so; or a handler of its signals
                # has spoken
                pass
        leave(0)

    return answer
