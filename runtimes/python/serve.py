# SPDX-License-Identifier: Apache-2.0
# One request, from its environment to its answer. Goes behind encode.py in one text.
_settrace = sys.settrace


def _environment(request):
    environ = os.environ
    if environ:
        environ.clear()
    for name, value in (request.get("env") or {}).items():
        try:
            environ[name] = value
        except ValueError:
            pass  # not a name; the service has refused it already
    version = "python%d.%d" % sys.version_info[:2]
    base = sys.exec_prefix
    site = request.get("site")
    cwd = request.get("cwd")
    if cwd:
        posix.chdir(cwd)
    path = sys.path
    path.insert(0, cwd or posix.getcwd())
    extra = environ.get("PYTHONPATH")
    if extra:
        path[1:1] = [entry for entry in extra.split(":") if entry]
    if site:
        environ["VIRTUAL_ENV"] = site
        environ["PATH"] = site + "/bin:" + environ.get(
            "PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        import site as module
        module.addsitedir(site + "/lib/" + version + "/site-packages")
        sys.prefix = sys.exec_prefix = site
        sys.executable = site + "/bin/python3"
    else:  # as the interpreter would without -S, but for .pth files
        path += [base + "/local/lib/" + version + "/dist-packages", base + "/lib/python3/dist-packages",
                 base + "/lib/" + version + "/dist-packages",
                 base + "/local/lib/" + version + "/site-packages", base + "/lib/" + version + "/site-packages"]


def _streams():
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the interpreter was started without
            stream = _io.TextIOWrapper(_io.FileIO(1 if name == "stdout" else 2, "w", closefd=False), encoding="utf-8")
            setattr(sys, name, stream)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def _module(name, filename, source):
    """A new module for user code; ours is not to be had as __main__ any more."""
    kind = type(sys)
    sys.modules["__main__"] = kind("__main__")
    module = sys.modules[name] = kind(name)
    module.__file__ = filename
    module.__builtins__ = builtins
    lines = source.splitlines(True)
    entry = (len(source), None, lines, filename)
    cache = sys.modules.get("linecache")
    if cache is not None:
        cache.cache[filename] = entry
    else:
        sys.meta_path.insert(0, _Lines(filename, entry))
    return module.__dict__


class _Lines:
    """linecache costs more than a run; it learns the source when somebody imports it."""

    def __init__(self, filename, entry):
        self.filename, self.entry = filename, entry

    def find_spec(self, name, path=None, target=None):
        if name != "linecache" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    module.cache[self.filename] = self.entry
                spec.loader.exec_module = exec_module
                return spec
        return None


def _typing_names(code, space):
    """Tools are written as if `from typing import *` stood above them; only what they use is brought in."""
    found, todo = set(), [code]
    while todo:
        one = todo.pop()
        found.update(TYPING.intersection(one.co_names))
        todo += [const for const in one.co_consts if type(const) is type(code)]
    if found:
        import typing
        for name in found:
            if hasattr(typing, name):
                space.setdefault(name, getattr(typing, name))


def _functions(source, filename):
    """The names of the functions at top level, in order; _ast is a builtin, the ast module would cost milliseconds."""
    names = []

    def walk(body):
        for node in body:
            kind = type(node).__name__
            if kind in ("FunctionDef", "AsyncFunctionDef"):
                names.append(node.name)
            elif kind in ("If", "Try", "TryStar", "With"):
                walk(node.body)
                for more in ("orelse", "finalbody"):
                    walk(getattr(node, more, ()))
    walk(compile(source, filename, "exec", FLAG_AST | FLAG_AWAIT, True).body)
    return names


class NoFunctionError(Exception):
    __module__ = "builtins"


def _find(request, source, filename, space):
    name = request.get("name")
    found = space.get(name) if name else None
    if not callable(found):
        for name in reversed(_functions(source, filename)):
            found = space.get(name)
            if callable(found):
                break
        else:
            raise NoFunctionError("No functions found in source code")
    return found


def _parameters(function):
    """(names, how many of them are positional-only) without the inspect module where that is possible."""
    code = getattr(function, "__code__", None)
    if code is not None and type(function) is type(_find) and not hasattr(function, "__wrapped__"):
        count = code.co_argcount + code.co_kwonlyargcount
        return code.co_varnames[:count], code.co_posonlyargcount
    return part("values")["parameters"](function)


def _arguments(function, request, state):
    """(positional, named) for the call: JSON data, brought to the annotations."""
    args = request.get("args") or {}
    names, positional = _parameters(function)
    if "agent_state" in names:
        args["agent_state"] = state
    if "agent_id" in names and (request.get("agent_id") is not None or "agent_id" not in args):
        args["agent_id"] = request.get("agent_id")
    try:
        wants = getattr(function, "__annotations__", None) if args else None
    except NameError:  # 3.14 looks names up only now
        wants = None
    for name in args if wants else ():
        want = wants.get(name)
        if want is not None and want is not type(args[name]) and name != "agent_state":
            args[name] = part("values")["coerce"](args[name], want, function)
    first = []
    for name in names[:positional]:
        if name not in args:
            break
        first.append(args.pop(name))
    return first, args


def _await(awaitable, loop):
    """Drives it on the run's own loop. What it raises is caught inside, so that no frame of asyncio gets into the
    traceback."""
    import asyncio
    if not loop:
        loop.append(asyncio.new_event_loop())
        asyncio.set_event_loop(loop[0])

    async def drive():
        try:
            return True, await awaitable
        except BaseException as why:
            return False, why
    good, value = loop[0].run_until_complete(drive())
    if good:
        return value
    raise value


def _finish(loop, wait):
    """What asyncio.run() does at its end, and for a snippet what the interpreter does."""
    if loop:
        import asyncio
        tasks = asyncio.all_tasks(loop[0])
        for task in tasks:
            task.cancel()
        if tasks:
            loop[0].run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop[0].run_until_complete(loop[0].shutdown_asyncgens())
    if wait:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        if "atexit" in sys.modules:
            sys.modules["atexit"]._run_exitfuncs()


def _client():
    """None unless letta_client can be imported and LETTA_API_KEY is set."""
    key = os.environ.get("LETTA_API_KEY")
    if not key:
        return None
    try:
        from letta_client import Letta
    except ImportError:
        return None
    try:
        return Letta(api_key=key)
    except TypeError:
        return Letta(token=key)


def _run_tool(request, state):
    source = request.get("source") or ""
    filename = "<tool %s>" % (request.get("name") or "source")
    sys.argv = [filename]
    space = _module("__tool__", filename, source)
    code = compile(source, filename, "exec", FLAG_AWAIT, True)
    _typing_names(code, space)
    space.update(client=_client(), agent_id=request.get("agent_id"), agent_state=state)
    loop = []
    made = eval(code, space)
    if made is not None:
        _await(made, loop)
    function = _find(request, source, filename, space)
    first, named = _arguments(function, request, state)
    result = function(*first, **named)
    _settrace(None)  # one that raises would raise in our own calls
    if hasattr(type(result), "__await__"):
        result = _await(result, loop)
    _finish(loop, False)
    return result


def _run_code(request):
    source = request.get("source") or ""
    sys.argv = ["<code>"]
    space = _module("__main__", "<code>", source)
    code = compile(source, "<code>", "exec", FLAG_AWAIT, True)
    loop = []
    try:
        made = eval(code, space)
        _settrace(None)
        if made is not None:
            _await(made, loop)
    finally:
        _finish(loop, True)


def _quiet(kind):
    """Letta runs tools with PYTHONWARNINGS=ignore; -I makes the interpreter itself deaf to that variable."""
    want = os.environ.get("PYTHONWARNINGS", "ignore" if kind == "tool" else "")
    if want:
        sys.warnoptions[:] = want.split(",")
        if "warnings" in sys.modules:
            sys.modules["warnings"].resetwarnings()
            sys.modules["warnings"]._processoptions(sys.warnoptions)
        elif want == "ignore":
            import _warnings
            _warnings.filters.insert(0, ("ignore", None, Warning, None, 0))


def _flush():
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        try:
            stream.flush()
        except BaseException:
            pass  # closed or replaced by the tool


def _nothing_left(listdir=posix.listdir):
    """Whether /workspace/out is not there, or empty: the service need not look."""
    try:
        return not listdir("/workspace/out")
    except OSError:
        return True


def _work(request, kind, state):
    """(result, exit code or None)"""
    if kind == "tool":
        return _run_tool(request, state), None
    if kind == "code":
        _run_code(request)
        return None, 0
    if kind == "schema":
        return part("schema")["derive"](request.get("source") or "", request.get("schema")), None
    if kind == "command":
        return part("values")["command"](request)
    raise ValueError("unknown kind of request: %r" % (kind,))


def _serve(request, answer, here=True):
    """here is false in a zygote, where streams and files are nobody's."""
    kind = request.get("kind")
    getpid, pid = posix.getpid, posix.getpid()
    limit = request.get("result_max") or 16 << 20
    notes, fields = [], []
    quote, utf8, exception, encoder, flush = _quote, _utf8, BaseException, _encoder, _flush if here else tuple
    trouble = values = None
    code = None
    try:
        if here:
            _streams()
        _environment(request)
        _quiet(kind)
        state = before = None
        if request.get("agent_state") is not None:
            state = part("values")["state"](request["agent_state"])
            before = encoder(64 << 20, [])(state)
        if request.get("files"):
            part("values")["put_files"](request["files"])
        sys.orig_argv = [sys.executable]
        try:
            result, code = _work(request, kind, state)
        except SystemExit as why:  # the end that was asked for
            if why.code is not None and why.code != 0:
                raise
            result, code = None, 0
        if getpid() == pid:
            values = [type(result).__name__, encoder(limit, notes)(result)]
            after = encoder(64 << 20, [])(state) if before is not None else None
            if after != before:
                fields.append('"agent_state":' + after)
    except exception as why:
        trouble = why
    if getpid() != pid:
        flush()
        answer(b"")  # ends here
    if trouble is not None:
        fields, code = [], 1
        text, code = part("values")["error"](trouble)
        fields.append('"error":' + text)
        values = ["NoneType", "null"]
    if request.get("collect"):
        fields.append('"files":' + encoder(48 << 20, notes)(part("values")["get_files"](request["collect"], 32 << 20)))
    flush()
    if here and _nothing_left():
        fields.append('"out":false')
    fields += ['"notes":[%s]' % ",".join(map(quote, notes))] if notes else []
    if kind in ("code", "command"):
        fields.append('"exit_code":%d' % code)
    answer(utf8('{"status":"%s","result":%s,"result_type":%s%s}' % (
        "ok" if trouble is None else "error", values[1], quote(values[0]),
        "".join([",%s" % field for field in fields]))))


# --- rehearsal --------------------------------------------------------------------------------------------------------

REHEARSAL = ('{"kind":"tool","name":"f","source":"def f(x: int, y: int) -> int:\\n    return x + y\\n",'
             '"args":{"x":2,"y":3},"env":{"BRIG":"1"},"cwd":".","limits":{"a":[1.5,null,true]},"key":"'
             + "00" * 32 + '"}')


def _unsaid(fd, view):
    """Instead of a write, in a rehearsal."""
    raise OSError


def _rehearse(here):
    """A run as it is, without a word and without a trace. A child of a zygote that has gone this way before it is
    parked has made the pages that a run writes to its own: two hundred faults that the run need not wait for. In the
    zygote, where here is false, the interpreter learns these functions once for all children. Says whether it went
    well."""
    import _warnings
    environ, modules, said = os.environ, sys.modules, []
    lists = [(one, one[:]) for one in (sys.path, sys.meta_path, sys.warnoptions, _warnings.filters)]
    names, main = dict(environ), modules["__main__"]
    words = {name: vars(sys)[name] for name in ("argv", "orig_argv") if name in vars(sys)}
    try:
        request = _loads(REHEARSAL)
        answer = _answerer(0, request, _unsaid, said.append)
        _serve(request, lambda text: (said.append(text), answer(text)), here)
    finally:
        for one, before in lists:
            one[:] = before
        vars(sys).update(words)
        modules.pop("__tool__", None)
        modules["__main__"] = main
        environ.clear()
        environ.update(names)
        if "linecache" in modules:
            modules["linecache"].cache.pop("<tool f>", None)
        if "warnings" in modules:
            modules["warnings"]._filters_mutated()
    return said[0].startswith(b'{"status":"ok","result":5,') and said[1:] == [0]


def rehearse(here, times=1):
    try:
        for _ in range(times):
            _rehearse(here)
    except Exception:
        pass  # a run that can be slower is not one that fails


if "BRIG_ZYGOTE" not in OURS:
    # 3.9 hands on the builtins of a caller with the same globals: this one has others
    eval("park(3)", {"park": park, "__builtins__": __builtins__})
