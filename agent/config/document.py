"""docs/configuration.md, written from the types. deploy/docs/generate.py writes it, a test keeps it fresh."""

from __future__ import annotations

import typing
from collections.abc import Iterator

from annotated_types import Ge, Gt, Le, MaxLen
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agent.config.model import Config
from agent.config.schema import element_model, section_model

INTRODUCTION = """\
<!-- Generated from agent/config by deploy/docs/generate.py. Edit the docstrings there. -->
# Configuration

Every setting has a name `section.key`, a production default, and its unit in the name
(`_ms`, `_s`, `_bytes`, `_per_s`; `_max` bounds). Only `log.url` and `store.url` have no default.

Sources, each replacing single settings of the one before:

1. the defaults below (`floe dev` adds a few of its own: `floe dev --help`);
2. a YAML file: `--config floe.yaml` or the variable `FLOE_CONFIG`;
3. environment variables `FLOE_SECTION__KEY`, such as `FLOE_STORE__SECRET_KEY`; lists by number:
   `FLOE_LISTENERS__0__PORT`;
4. flags `--set section.key=value`, such as `--set listeners.0.port=9092`.

An unknown setting, a value out of its range and settings that contradict each other are refused
with the place they came from and, for a misspelt name, the nearest one (exit status 3).
`floe config` prints what is in force and where each value came from; secrets are masked.

```yaml
cluster: {name: prod}
listeners:
  - {name: PLAINTEXT, host: 0.0.0.0, port: 9092, advertised_host: agent-0.example.com}
log: {url: "etcd://etcd-0:2379,etcd-1:2379,etcd-2:2379/prod"}
store: {url: "s3://streams/prod", region: eu-central-1}
```
"""


def render() -> str:
    """The whole page, Markdown."""
    parts = [INTRODUCTION]
    for name, field in Config.model_fields.items():
        model = section_model(field) or element_model(field)
        assert model is not None, f"{name} is not a section"
        prefix = f"{name}.N" if element_model(field) else name
        parts.append("\n".join(_section(prefix, model)))
    return "\n".join(parts)


def _section(prefix: str, model: type[BaseModel]) -> Iterator[str]:
    yield f"## {prefix.removesuffix('.N')}\n"
    yield f"{(model.__doc__ or '').strip()}\n"
    yield "| setting | type | default | meaning |"
    yield "|---|---|---|---|"
    for name, field in model.model_fields.items():
        meaning = (field.description or "").replace("\n", " ").replace("|", "\\|").strip()
        yield f"| `{prefix}.{name}` | {_type(field)} | {_default(name, field)} | {meaning} |"
    yield ""


def _type(field: FieldInfo) -> str:
    """The type in words, with its range."""
    kind = field.annotation
    if typing.get_origin(kind) is typing.Literal:
        return " \\| ".join(f"`{choice}`" for choice in typing.get_args(kind))
    if typing.get_origin(kind) is dict:
        return "names and texts"
    names = {bool: "true or false", int: "integer", float: "number", str: "text", SecretStr: "secret"}
    word = names[kind]  # type: ignore[index]  # a KeyError here means: teach this table a new type
    low = next((str(c.ge) for c in field.metadata if isinstance(c, Ge)), "")
    low = low or next((f">{c.gt}" for c in field.metadata if isinstance(c, Gt)), "")
    high = next((str(c.le) for c in field.metadata if isinstance(c, Le)), "")
    length = next(
        (f" of at most {c.max_length} characters" for c in field.metadata if isinstance(c, MaxLen)), ""
    )
    return f"{word} {low} … {high}" if low or high else word + length


def _default(name: str, field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "none" if field.default_factory else "**required**"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, SecretStr) or value == "":
        return "empty"
    return f"`{value}`{_readable(value) if 'bytes' in name else ''}"


def _readable(value: object) -> str:
    """A large power of two in words."""
    assert isinstance(value, int)
    for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if value % size == 0:
            return f" ({value // size} {unit})"
    return ""
