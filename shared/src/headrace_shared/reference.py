"""Settings models as a page for people: every key with its type, default and bounds, as Markdown.

The words come from the models' docstrings, so that the page cannot say something else than the code.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

_WORDS: Final = {str: "text", int: "whole number", float: "number", bool: "true or false", Path: "path"}
_BOUNDS: Final = {"ge": "≥ {}", "gt": "> {}", "le": "≤ {}", "lt": "< {}"}
# A longer list of defaults tells less than the code's own name for it.
_LONGEST_DEFAULT: Final = 60


@dataclass(frozen=True, slots=True)
class Section:
    """One model at one place of the file, such as `cells[]` or `pools.NAME`; "" is the file itself."""

    place: str
    model: type[BaseModel]


def render(model: type[BaseModel], title: str, intro: str) -> str:
    """The whole page for the settings file whose model this is."""
    parts, first = [f"# {title}\n\n{intro}\n"], dict[type[BaseModel], str]()
    for each in sections(model):
        parts.append(_section(each, first.setdefault(each.model, each.place)))
    return "\n".join(parts)


def sections(model: type[BaseModel], place: str = "") -> Iterator[Section]:
    """The file and all that it nests, each model once at each place, in the order of the file."""
    yield Section(place, model)
    for name, field in model.model_fields.items():
        for suffix, nested in _nested(field.annotation):
            yield from sections(nested, f"{place}.{name}{suffix}".lstrip("."))


def _section(section: Section, first: str) -> str:
    """A model that has stood elsewhere, at the place `first`, is named and not shown again."""
    if first != section.place:
        return f"## `{section.place}`\n\nAs `{first}`.\n"
    heading = f"## `{section.place}`\n\n" if section.place else ""
    words = inspect.cleandoc(section.model.__doc__ or "")
    rows = [_row(name, field) for name, field in section.model.model_fields.items()]
    table = "\n".join(["| key | type | default | bounds |", "| --- | --- | --- | --- |", *rows])
    return f"{heading}{words}\n\n{table}\n"


def _row(name: str, field: FieldInfo) -> str:
    cells = (f"`{name}`", type_words(field.annotation), _default(field), ", ".join(_bounds(field)))
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


def type_words(annotation: Any) -> str:
    """A type in words, as someone who writes YAML thinks of it."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_words(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(type_words(each) for each in arguments if each is not type(None)))
    if origin in (tuple, list, set, frozenset):
        return f"list of {type_words(arguments[0])}"
    if origin is not None and issubclass(origin, Mapping):
        return f"map from {type_words(arguments[0])} to {type_words(arguments[1])}"
    return _plain_words(annotation)


def _plain_words(annotation: Any) -> str:
    if annotation in _WORDS:
        return _WORDS[annotation]
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        return "section"
    if inspect.isclass(annotation) and issubclass(annotation, Enum):
        return " or ".join(f"`{each.value}`" for each in annotation)
    return {"HostPort": "`host:port`"}.get(getattr(annotation, "__name__", ""), "text")


def _nested(annotation: Any) -> Iterator[tuple[str, type[BaseModel]]]:
    """The models within a type, each with what stands for it in a place: "", "[]" or ".NAME"."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
        yield "", annotation
    elif origin is Annotated:
        yield from _nested(arguments[0])
    elif origin in (Union, types.UnionType):
        for each in arguments:
            yield from _nested(each)
    elif origin in (tuple, list):
        yield from ((f"[]{suffix}", model) for suffix, model in _nested(arguments[0]))
    elif origin is not None and inspect.isclass(origin) and issubclass(origin, Mapping):
        yield from ((f".NAME{suffix}", model) for suffix, model in _nested(arguments[1]))


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.get_default(call_default_factory=True)
    if value is PydanticUndefined or value is None or isinstance(value, BaseModel):
        return ""
    return _value(value)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Mapping | tuple | list | frozenset):
        listed = ", ".join(str(each) for each in value)
        return f"`[{listed}]`" if len(listed) <= _LONGEST_DEFAULT else f"{len(value)} of them, see the code"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def _bounds(field: FieldInfo) -> Iterator[str]:
    found = [*field.metadata, *_inner(field.annotation)]
    for name, words in _BOUNDS.items():
        yield from (words.format(f"{bound:g}") for each in found if (bound := _get(each, name)) is not None)
    least = next((n for each in found if (n := _get(each, "min_length")) is not None), 0)
    most = next((n for each in found if (n := _get(each, "max_length")) is not None), None)
    if most is not None:
        yield f"{least} to {most} {_counted(field.annotation)}"
    elif least:
        yield f"at least {least} {_counted(field.annotation)}"


def _get(bound: Any, name: str) -> Any:
    return getattr(bound, name, None)


def _inner(annotation: Any) -> tuple[Any, ...]:
    """The bounds of a value that may be left out stand one step within."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return ()
    parts = [
        part for each in get_args(annotation) if get_origin(each) is Annotated for part in get_args(each)
    ]
    return tuple(inner for part in parts for inner in getattr(part, "metadata", [part]))


def _counted(annotation: Any) -> str:
    return "entries" if get_origin(annotation) in (tuple, list, dict) else "characters"
