# SPDX-License-Identifier: Apache-2.0
# A part of the Python runtime: the JSON Schema of a tool, from its source and its Google-style docstring. The source is
# read, never run. The rules are Letta's (docs/TOOLS.md, "Schema"): the last function at top level, `async def`
# included; every parameter but self and agent_state has an annotation and a description; Optional is "not required".
# Classes of the source that are models (BaseModel, dataclass, TypedDict) become objects with their fields.
import ast
import inspect

SCALARS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null", "NoneType": "null"}
ARRAYS = ("list", "List", "Sequence", "Iterable", "set", "Set", "frozenset", "FrozenSet")
OBJECTS = ("dict", "Dict", "Mapping", "MutableMapping")
SKIPPED = ("self", "agent_state")
SECTIONS = {"args": "args", "arguments": "args", "parameters": "args", "params": "args", "example": "examples",
            "examples": "examples", "returns": "", "return": "",
            "yields": "", "yield": "", "raises": "", "raise": "", "exceptions": "", "except": "", "attributes": "",
            "note": "", "notes": "", "warnings": "", "warns": "", "todo": ""}


# --- the docstring ----------------------------------------------------------------------------------------------------

def _indent(line):
    return len(line) - len(line.lstrip())


def _sections(lines):
    """[(name, lines)]; the first one is "" and holds the description."""
    found = [("", [])]
    for line in lines:
        word = line.strip()
        if word.endswith(":") and _indent(line) == 0 and word[:-1].lower() in SECTIONS:
            found.append((word[:-1].lower(), []))
        else:
            found[-1][1].append(line)
    return found


def _entries(lines):
    """name -> description of an Args section: `name (type, optional): text`, further lines deeper."""
    entries, name = {}, None
    filled = [line for line in lines if line.strip()]
    if not filled:
        return entries
    base = min(map(_indent, filled))
    for line in lines:
        head, colon, rest = line.strip().partition(":")
        word = head.partition(" ")[0].partition("(")[0].lstrip("*")
        if line.strip() and _indent(line) == base and colon and word.isidentifier():
            name = word
            entries[name] = [rest.strip()]
        elif name is not None:
            entries[name].append(line)
    return {key: (text[0] + "\n" + inspect.cleandoc("\n".join([""] + text[1:]))).strip()
            for key, text in entries.items()}


def _docstring(text):
    """(description, {parameter: description})"""
    sections = _sections(inspect.cleandoc(text).split("\n"))
    first = "\n".join(sections[0][1]).strip()
    short, _, long = first.partition("\n")
    description = short + ("\n\n" + long.strip() if long.strip() else "")
    described = {}
    for name, lines in sections[1:]:
        kind = SECTIONS[name]
        if kind == "args":
            described.update(_entries(lines))
        elif kind == "examples":
            body = inspect.cleandoc("\n".join([""] + lines)).strip()
            description += "\n\n%s:\n%s" % (name.capitalize(), body) if body else ""
    return description, described


# --- annotations ------------------------------------------------------------------------------------------------------

def _name(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return None


def _parse(node):
    """An annotation that is text is what the text says."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        try:
            return _parse(ast.parse(node.value, mode="eval").body)
        except SyntaxError:
            raise ValueError("annotation %r cannot be read" % node.value) from None
    return node


def _members(node):
    """The members of Optional[X], Union[X, Y], X | Y; None for anything else."""
    node = _parse(node)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [member for side in (node.left, node.right) for member in _members(side) or [side]]
    if isinstance(node, ast.Subscript):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if _name(node.value) == "Optional":
            return inner + [ast.Constant(value=None)]
        if _name(node.value) == "Union":
            return [member for one in inner for member in _members(one) or [one]]
    return None


def _is_none(node):
    return isinstance(node, ast.Constant) and node.value is None or _name(node) in ("None", "NoneType")


def _optional(node):
    members = _members(node)
    return bool(members) and any(map(_is_none, members))


def _literal(items):
    values = []
    for item in items:
        try:
            values.append(ast.literal_eval(item))
        except ValueError:
            raise ValueError("Literal %s is not a constant" % ast.unparse(item)) from None
    kinds = {bool: "boolean", int: "integer", str: "string", type(None): "null"}
    found = {kinds.get(type(value)) for value in values}
    kind = found.pop() if len(found) == 1 else "string"
    return {"type": kind or "string", "enum": values}


def _subscript(node, classes):
    name = _name(node.value)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if name == "Annotated":
        return _type(inner[0], classes)
    if name == "Literal":
        return _literal(inner)
    if name in ARRAYS:
        return {"type": "array", "items": _type(inner[0], classes)}
    if name in ("tuple", "Tuple"):
        if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is Ellipsis:
            return {"type": "array", "items": _type(inner[0], classes)}
        items = [_type(one, classes) for one in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if name in OBJECTS:
        raise ValueError("Dictionary type %s is not supported (consider using a Pydantic model)" % ast.unparse(node))
    raise ValueError("type %s has no corresponding JSON schema type" % ast.unparse(node))


def _type(node, classes):
    node = _parse(node)
    members = _members(node)
    if members:
        rest = [member for member in members if not _is_none(member)]
        if len(rest) == 1:
            return _type(rest[0], classes)
        raise ValueError("Union types are not supported unless they are Optional: %s" % ast.unparse(node))
    if isinstance(node, ast.Subscript):
        return _subscript(node, classes)
    name = "None" if _is_none(node) else _name(node)
    if name in SCALARS:
        return {"type": SCALARS[name]}
    if name in ARRAYS or name in ("tuple", "Tuple"):
        return {"type": "array", "items": {"type": "string"}}
    if name in OBJECTS:
        return {"type": "object"}
    if name in classes:
        return _object(classes[name], classes)
    raise ValueError("type %s has no corresponding JSON schema type" % ast.unparse(node))


def _field(value):
    """(has a default, description) of what stands behind `=` in a model: Field(...), field(...) or the default
    itself."""
    if value is None:
        return False, None
    if not (isinstance(value, ast.Call) and _name(value.func) in ("Field", "field")):
        return True, None
    given = {word.arg: word.value for word in value.keywords}
    ellipsis = [one for one in value.args[:1] + [given.get("default")]
                if isinstance(one, ast.Constant) and one.value is Ellipsis]
    text = given.get("description")
    described = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else None
    return bool(value.args or "default" in given or "default_factory" in given) and not ellipsis, described


def _class_fields(node, classes):
    """name -> (annotation, what stands behind `=`): those of its bases in the source first."""
    fields = {}
    for base in node.bases:
        if _name(base) in classes:
            fields.update(_class_fields(classes[_name(base)],
                                        {name: one for name, one in classes.items() if name != _name(base)}))
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and not line.target.id.startswith("_"):
            fields[line.target.id] = (line.annotation, line.value)
    return fields


def _object(node, classes):
    # one that holds itself has no finite schema
    classes = {name: one for name, one in classes.items() if one is not node}
    properties, required = {}, []
    for name, (annotation, value) in _class_fields(node, classes).items():
        properties[name] = _type(annotation, classes)
        default, described = _field(value)
        if described:
            properties[name]["description"] = described
        if not default and not _optional(annotation):
            required.append(name)
    return {"type": "object", "properties": properties, "required": required}


# --- the function -----------------------------------------------------------------------------------------------------

def _parameters(function, described, classes):
    spec = function.args
    named = spec.posonlyargs + spec.args
    defaults = [None] * (len(named) - len(spec.defaults)) + spec.defaults
    properties, required = {}, []
    for one, default in list(zip(named, defaults)) + list(zip(spec.kwonlyargs, spec.kw_defaults)):
        if one.arg in SKIPPED:
            continue
        if one.annotation is None:
            raise TypeError("Parameter '%s' in function '%s' lacks a type annotation" % (one.arg, function.name))
        if not described.get(one.arg):
            raise ValueError("Parameter '%s' in function '%s' lacks a description in the docstring"
                             % (one.arg, function.name))
        try:
            found = _type(one.annotation, classes)
        except ValueError as why:
            raise ValueError("Parameter '%s' in function '%s': %s" % (one.arg, function.name, why)) from None
        found["description"] = described[one.arg]
        properties[one.arg] = found
        if default is None and not _optional(one.annotation):
            required.append(one.arg)
    return {"type": "object", "properties": properties, "required": required}


def derive(source, arguments=None):
    """{name, description, parameters}; with `arguments` (args_json_schema) those are the parameters, and a docstring is
    not needed."""
    tree = ast.parse(source, "<tool source>")
    functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    if not functions:
        raise core["NoFunctionError"]("No functions found in source code")
    function = functions[-1]
    text = ast.get_docstring(function, clean=False)
    if arguments is not None:
        description = _docstring(text)[0] if text else "The %s tool" % function.name
        parameters = {**arguments, "type": "object", "properties": arguments.get("properties", {}),
                      "required": arguments.get("required", [])}
        return {"name": function.name, "description": description, "parameters": parameters}
    if not text or not text.strip():
        raise ValueError("Function '%s' has no docstring: a Google-style docstring describes the tool "
                         "and its parameters" % function.name)
    description, described = _docstring(text)
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    return {"name": function.name, "description": description, "parameters": _parameters(function, described, classes)}
