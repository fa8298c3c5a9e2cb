# SPDX-License-Identifier: Apache-2.0
# A part of the Python runtime: values that are not plain JSON, arguments that are not what their annotation says, the
# agent's state, errors, files, commands. Compiled when a run first needs one of them; `core` is the namespace of
# runtime.py. The tables of docs/TOOLS.md, "Values", are tested against this row by row.
os, sys = core["os"], core["sys"]  # not imported: a tool may have emptied sys.modules


# --- Python to JSON ---------------------------------------------------------------------------------------------------

def _base64(data):
    import binascii
    return {"base64": binascii.b2a_base64(data, newline=False).decode("ascii")}


def _of_module(value, *names):
    return type(value).__module__.partition(".")[0] in names


def _is_model(kind):
    return (hasattr(kind, "model_dump") and hasattr(kind, "model_validate")
            or hasattr(kind, "__fields__") and hasattr(kind, "parse_obj"))


def _binary(value, limit):
    if memoryview(value).nbytes > limit:
        raise core["ResultTooLarge"]("the result is larger than the %d bytes that are allowed" % limit)
    return _base64(value)


def _array(value, limit):
    """numpy, pandas and their like: scalars have item(), arrays tolist()."""
    if _of_module(value, "pandas") and hasattr(value, "to_dict"):
        if getattr(value, "size", 0) > limit:
            raise core["ResultTooLarge"]("the result is larger than the %d bytes that are allowed" % limit)
        return value.to_dict(orient="records") if hasattr(value, "columns") else value.tolist()
    if hasattr(value, "tolist"):
        if getattr(value, "size", 0) and isinstance(value.size, int) and value.size * 2 > limit + 2:
            raise core["ResultTooLarge"]("the result is larger than the %d bytes that are allowed" % limit)
        return value.tolist()
    return value.item() if hasattr(value, "item") else value


def _fields(value):
    names = [name for name, field in type(value).__dataclass_fields__.items()
             if getattr(field._field_type, "name", "") == "_FIELD"]
    return {name: getattr(value, name) for name in names}


def _sorted(value):
    try:
        return sorted(value)
    except TypeError:
        return sorted(value, key=lambda item: (type(item).__name__, repr(item)))


def _dated(value):
    """datetime, date, time as ISO 8601; timedelta in seconds. The module is not imported for this: without it there is
    no such value."""
    module = sys.modules.get("datetime")
    if module is None:
        return None
    if isinstance(value, (module.datetime, module.date, module.time)):
        return value.isoformat()
    return value.total_seconds() if isinstance(value, module.timedelta) else None


def rare(value, note, spend, limit, encode):
    """What stands for a value that JSON does not have. Returns something simpler each time; the encoder asks again."""
    kind = type(value)
    if isinstance(value, (set, frozenset)):
        return _sorted(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _binary(value, limit)
    dated = _dated(value)
    if dated is not None:
        return dated
    enum = sys.modules.get("enum")
    if enum is not None and isinstance(value, enum.Enum):
        return value.value
    if hasattr(kind, "__dataclass_fields__"):
        return _fields(value)
    if _is_model(kind):
        return value.model_dump() if hasattr(kind, "model_dump") else value.dict()
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    if _of_module(value, "numpy", "pandas", "torch"):
        simpler = _array(value, limit)
        if simpler is not value:
            return simpler
    if _of_module(value, "decimal", "uuid", "pathlib", "fractions", "ipaddress") or isinstance(value, os.PathLike):
        return str(value)
    if (isinstance(value, range) or kind.__name__ in ("deque", "dict_keys", "dict_values", "UserList")
            and _of_module(value, "builtins", "collections")):
        return list(value)
    if hasattr(kind, "keys") and hasattr(kind, "__getitem__") and not isinstance(value, type):
        return {name: value[name] for name in value.keys()}
    note("a value of type %s became its str()" % kind.__name__)
    text = str(value)
    return text if type(text) is str else str.__str__(text)


# --- JSON to what an annotation says ----------------------------------------------------------------------------------

class _No(Exception):
    pass


def _parsed(text):
    try:
        import json
        return json.loads(text)
    except ValueError:
        raise _No from None


def _to_int(value):
    if isinstance(value, str):
        try:
            return int(value)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                raise _No from None
    if (isinstance(value, float) and value == value and value not in (float("inf"), float("-inf"))
            and value == int(value)):
        return int(value)
    raise _No


def _to_float(value):
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise _No
    try:
        return float(value)
    except (ValueError, OverflowError):
        raise _No from None


def _to_bool(value):
    known = {"true": True, "1": True, "false": False, "0": False}
    if isinstance(value, str):
        value = known.get(value.strip().lower())
    elif type(value) is int and value in (0, 1):
        value = bool(value)
    if type(value) is not bool:
        raise _No
    return value


def _to_str(value):
    if type(value) in (int, float):
        return str(value)
    raise _No


def _to_none(value):
    if value in ("null", "None", ""):
        return None
    raise _No


def _to_bytes(value):
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, dict) and list(value) == ["base64"] and isinstance(value["base64"], str):
        import base64
        return base64.b64decode(value["base64"])
    raise _No


PLAIN = {int: _to_int, float: _to_float, bool: _to_bool, str: _to_str, type(None): _to_none, bytes: _to_bytes}


def _container(value, origin, args):
    if isinstance(value, str):
        value = _parsed(value)
    if origin is dict:
        if not isinstance(value, dict):
            raise _No
        if len(args) != 2:
            return value
        return {_lenient(name, args[0]): _lenient(item, args[1]) for name, item in value.items()}
    if not isinstance(value, (list, tuple, set)):
        raise _No
    if origin is tuple and args and not (len(args) == 2 and args[1] is Ellipsis):
        wants = args if len(args) == len(value) else [None] * len(value)
    else:
        wants = [args[0] if args else None] * len(value)
    return origin([_lenient(item, want) for item, want in zip(value, wants)])


def _union(value, members):
    kinds = [getattr(member, "__origin__", None) or member for member in members]
    if value is None and type(None) in kinds:
        return None
    if isinstance(value, str) and str in kinds:
        return value
    for member, kind in zip(members, kinds):  # what it is already comes first
        if isinstance(kind, type) and type(value) is kind:
            return _lenient(value, member)
    for member in members:
        try:
            return _convert(value, member)
        except _No:
            pass
    raise _No


def _literal(value, choices):
    for choice in choices:
        if type(choice) is type(value) and choice == value:
            return value
    for choice in choices:
        if not isinstance(choice, str) and isinstance(value, str) and str(choice).lower() == value.lower():
            return choice
    raise _No


def _dataclass(value, kind):
    if isinstance(value, str):
        value = _parsed(value)
    if not isinstance(value, dict):
        raise _No
    import typing
    try:
        wants = typing.get_type_hints(kind)
    except Exception:
        wants = {}
    return kind(**{name: _lenient(item, wants.get(name)) for name, item in value.items()})


def _by_name(value, kind):
    """Classes of the standard library that are written as text in JSON."""
    where, name = kind.__module__, kind.__name__
    if not isinstance(value, str):
        raise _No
    try:
        if where == "datetime" and name in ("datetime", "date", "time"):
            return kind.fromisoformat(value[:-1] + "+00:00" if value.endswith("Z") and name != "date" else value)
        if ((where, name) in (("decimal", "Decimal"), ("uuid", "UUID"), ("fractions", "Fraction"))
                or where.startswith("pathlib")):
            return kind(value)
    except (ValueError, ArithmeticError):
        pass
    raise _No


def _class(value, kind):
    if isinstance(value, kind):
        return value
    enum = sys.modules.get("enum")
    if enum is not None and issubclass(kind, enum.Enum):
        for member in kind:
            if (member.value == value and type(member.value) is type(value) or member.name == value
                    or isinstance(value, str) and str(member.value) == value):
                return member
        raise _No
    if _is_model(kind):
        if isinstance(value, str):
            value = _parsed(value)
        return kind.model_validate(value) if hasattr(kind, "model_validate") else kind.parse_obj(value)
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass(value, kind)
    return _by_name(value, kind)


def _convert(value, want):
    """The value as `want` has it; _No when it cannot be. Errors of models and dataclasses are the user's to see."""
    if want is None:
        want = type(None)
    while hasattr(want, "__metadata__") and hasattr(want, "__origin__"):  # Annotated
        want = want.__origin__
    origin = getattr(want, "__origin__", None)
    args = getattr(want, "__args__", ())
    if (origin is None and type(want).__name__ == "UnionType" or str(origin) == "typing.Union"
            or origin is not None and type(want).__name__ in ("Union", "_UnionGenericAlias")):
        return _union(value, args)
    if type(want).__name__ == "Union":  # 3.14: one class for both spellings
        return _union(value, args)
    if str(origin) == "typing.Literal":
        return _literal(value, args)
    kind = origin or want
    kind = ({"Sequence": list, "Iterable": list, "Collection": list, "Mapping": dict, "MutableMapping": dict,
             "MutableSequence": list}.get(getattr(kind, "__name__", ""), kind)
            if getattr(kind, "__module__", "") in ("collections.abc", "typing") else kind)
    if not isinstance(kind, type) or kind.__module__ == "typing":  # Any is a class since 3.11
        raise _No
    if kind in PLAIN:
        return value if type(value) is kind else PLAIN[kind](value)
    if kind in (list, dict, tuple, set, frozenset):
        return _container(value, kind, args)
    return _class(value, kind)


def _lenient(value, want):
    if want is None:
        return value
    try:
        return _convert(value, want)
    except _No:
        return value


def coerce(value, want, function):
    if isinstance(want, str):  # from __future__ import annotations
        import typing
        space = dict(vars(typing))
        space.update(getattr(function, "__globals__", None) or getattr(sys.modules.get("__tool__"), "__dict__", {}))
        try:
            want = eval(want, space)
        except Exception:
            return value
    return _lenient(value, want)


def parameters(function):
    """For what is not a plain function: decorated, partial, an object with __call__."""
    import inspect
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return (), 0
    names = [one for one in found if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
    return tuple(one.name for one in names), sum(one.kind is one.POSITIONAL_ONLY for one in names)


# --- the agent's state ------------------------------------------------------------------------------------------------

class State(dict):
    """An object of the state: state.memory and state["memory"] are the same. A key named like a method of dict is
    reached by [] only."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError("%r has no field %r" % (type(self).__name__, name)) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def model_dump(self, **_):
        return {name: value.model_dump() if isinstance(value, State) else value for name, value in self.items()}


class Memory(State):
    """`memory` as tools of Letta use it."""

    def get_blocks(self):
        return self["blocks"]

    def list_block_labels(self):
        return [block["label"] for block in self["blocks"]]

    def get_block(self, label):
        for block in self["blocks"]:
            if block["label"] == label:
                return block
        raise KeyError("Block field %s does not exist (available sections = %s)"
                       % (label, ", ".join(self.list_block_labels())))

    def update_block_value(self, label, value):
        if not isinstance(value, str):
            raise ValueError("Provided value must be a string")
        self.get_block(label)["value"] = value

    def set_block(self, block):
        for index, old in enumerate(self["blocks"]):
            if old["label"] == block["label"]:
                self["blocks"][index] = block
                return
        self["blocks"].append(block)

    def compile(self, *_, **__):
        return "\n\n".join("<%s>\n%s\n</%s>" % (block["label"], block.get("value", ""), block["label"])
                           for block in self["blocks"])


def state(value, name=""):
    if isinstance(value, dict):
        kind = Memory if name == "memory" and isinstance(value.get("blocks"), list) else State
        return kind((key, state(item, key)) for key, item in value.items())
    return [state(item) for item in value] if isinstance(value, list) else value


# --- errors -----------------------------------------------------------------------------------------------------------

def _text(error):
    try:
        if isinstance(error, SyntaxError) and error.lineno and error.filename:
            return "%s (%s, line %d)" % (error.msg, error.filename, error.lineno)
        return str.__str__(str(error))
    except BaseException:
        return "<exception str() failed>"


def _cut(error, seen):
    """Takes the runtime's own frames off, here and in what it came from."""
    if error is None or id(error) in seen:
        return
    seen.add(id(error))
    trace = error.__traceback__
    while trace is not None and (core["_ours"](trace.tb_frame.f_globals)
                                 or trace.tb_frame.f_code.co_filename.startswith("<frozen importlib")):
        trace = trace.tb_next
    try:
        error.__traceback__ = trace
        _cut(error.__cause__, seen)
        _cut(error.__context__, seen)
        if isinstance(error.__context__, _No):
            error.__context__ = None
    except BaseException:
        pass  # a class that forbids it


def _trace(error):
    try:
        import traceback
        _cut(error, set())
        lines = traceback.format_exception(type(error), error, error.__traceback__)
        # the tool's own classes, as in a script
        return "".join([line[9:] if line.startswith("__tool__.") else line for line in lines])
    except BaseException as why:  # a broken exception class, or no memory
        return "%s: <traceback failed: %s>\n" % (type(error).__name__, type(why).__name__)


def error(trouble):
    """(JSON text, exit code); the traceback also goes where the interpreter would have put it."""
    name, code = type(trouble).__name__, 1
    if isinstance(trouble, SystemExit):
        code = trouble.code & 0xff if isinstance(trouble.code, int) else 1
        message, trace = _text(trouble), ""
        shown = "" if isinstance(trouble.code, int) else message + "\n"
    elif isinstance(trouble, CommandError):
        message, trace, shown, code = _text(trouble), "", "", trouble.code
    else:
        message = _text(trouble)
        shown = trace = _trace(trouble)
    try:
        if shown:
            sys.stderr.write(shown)
    except BaseException:
        pass
    quote = core["_quote"]
    return '{"type":%s,"message":%s,"traceback":%s}' % (quote(name), quote(message[:65536]),
                                                        quote(trace[-262144:])), code


# --- files and commands -----------------------------------------------------------------------------------------------

def put_files(files):
    import base64
    for one in files:
        folder = os.path.dirname(one["path"])
        if folder:
            os.makedirs(folder, exist_ok=True)
        with open(one["path"], "wb") as out:
            out.write(base64.b64decode(one.get("base64") or ""))


def get_files(paths, limit):
    found = []
    for path in paths:
        try:
            with open(path, "rb") as data:
                content = data.read(limit + 1)
            limit -= len(content)
            if limit < 0:
                raise OSError("too large")
            found.append({"path": path, **_base64(content)})
        except (OSError, ValueError) as why:
            limit = max(limit, 0)
            found.append({"path": path, "error": getattr(why, "strerror", None) or str(why)})
    return found


class CommandError(Exception):
    __module__ = "builtins"
    code = 1


def command(request):
    """argv, with the arguments as JSON on its stdin; what it writes to the descriptor BRIG_RESULT is the result: JSON,
    or else text."""
    import json
    import subprocess
    import tempfile
    argv = request.get("command") or json.loads(request.get("source") or "[]")
    with tempfile.TemporaryFile() as result:
        os.environ["BRIG_RESULT"] = str(result.fileno())
        done = subprocess.run(argv, input=json.dumps(request.get("args") or {}).encode(), pass_fds=(result.fileno(),))
        result.seek(0)
        limit = request.get("result_max") or 16 << 20
        text = result.read(limit + 1)
    if len(text) > limit:
        raise core["ResultTooLarge"]("the result is larger than the %d bytes that are allowed" % limit)
    if done.returncode:
        how = "exit status %d" % done.returncode if done.returncode > 0 else "signal %d" % -done.returncode
        failure = CommandError("%s: %s" % (argv[0], how))
        failure.code = done.returncode if done.returncode > 0 else 128 - done.returncode
        raise failure
    try:
        return (json.loads(text) if text.strip() else None), 0
    except ValueError:
        return text.decode("utf-8", "replace"), 0
