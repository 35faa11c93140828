"""The dataclasses: one per message and per struct, with Kafka's defaults."""

from __future__ import annotations

from agent.net.wire.generator.definition import Api, DefinitionError, Field, Message

_TYPES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "bytes",
}
_EMPTY = {
    "bool": "False",
    "float64": "0.0",
    "string": '""',
    "bytes": 'b""',
    "uuid": "NIL_UUID",
    "records": "None",
}


def element_type(field: Field) -> str:
    """The Python type of one value of the field."""
    return _TYPES.get(field.base, field.base)


def optional(field: Field) -> bool:
    """Whether None is a value of the field. Of a tagged struct it stands for Kafka's default."""
    return bool(field.nullable[1] >= 0 or field.default == "null" or tagged_struct(field))


def tagged_struct(field: Field) -> bool:
    """A struct in a tagged field: None, and so not sent, unless there is something to say."""
    return field.struct and not field.array and field.tag is not None


def annotation(field: Field, kind: str) -> str:
    """The field's annotation. Records come in as a view of the request and go out as any buffers."""
    if field.base == "records":
        return "memoryview | None" if kind == "request" else "Records | None"
    plain = f"list[{element_type(field)}]" if field.array else element_type(field)
    return f"{plain} | None" if optional(field) else plain


def default(field: Field) -> str:
    """Kafka's default as an expression; a fresh object where it is mutable."""
    if field.default == "null" or tagged_struct(field):
        return "None"
    if field.array:
        return "[]"
    if field.struct:
        return f"{field.base}()"
    if field.base.startswith(("int", "uint")):
        return str(int(field.default or "0", 0))
    if field.base == "bool":
        return str(field.default == "true")
    if field.default is not None:
        return repr(field.default)
    return _EMPTY[field.base]


def render(api: Api) -> list[str]:
    """The source of all dataclasses of one API, each before its first use.

    Raises DefinitionError when two different structs have one name.
    """
    classes: dict[str, str] = {}
    for message in (api.request, api.response):
        for field in message.fields:
            _struct(field, message, api, classes)
        name = api.name + message.kind.capitalize()
        classes[name] = _class(name, f"{api.name} {message.kind}.", message.fields, message.kind)
    return list(classes.values())


def _struct(field: Field, message: Message, api: Api, classes: dict[str, str]) -> None:
    if not field.struct:
        return
    for inner in field.fields:
        _struct(inner, message, api, classes)
    text = _class(field.base, f"Part of {api.name}.", field.fields, message.kind)
    if classes.setdefault(field.base, text) != text:
        raise DefinitionError(f"{api.name}: two different structs are called {field.base}")


def _class(name: str, about: str, fields: list[Field], kind: str) -> str:
    lines = ["@dataclass(slots=True)", f"class {name}:", f'    """{about}"""', ""]
    for field in fields:
        value = default(field)
        if value == "[]":
            value = "field(default_factory=list)"
        elif value.endswith("()"):
            value = f"field(default_factory={value[:-2]})"
        lines.append(f"    {field.name}: {annotation(field, kind)} = {value}")
    return "\n".join(lines)
