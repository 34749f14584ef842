"""Settings files: YAML to a frozen pydantic model, with every error named at once.

Raw text → nodes with line numbers → plain data → the model's defaults and checks. A file is
either taken whole or refused with one `ConfigError` that lists, for each problem, the line, the
field, what is wrong and what to write instead.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError


class Settings(BaseModel):
    """Base of every settings model: unknown keys are errors, and nothing changes after loading."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a settings file; `line` counts from 1, 0 = the file as a whole."""

    line: int
    field: str
    message: str


class ConfigError(Exception):
    """A settings file that cannot be used; `problems` lists all that is wrong with it."""

    def __init__(self, path: Path | str, problems: list[Problem]) -> None:
        self.path = str(path)
        self.problems = problems
        super().__init__("\n".join([f"{self.path} cannot be used:", *map(self._line, problems)]))

    def _line(self, problem: Problem) -> str:
        place = f"line {problem.line}: " if problem.line else ""
        field = f"{problem.field}: " if problem.field else ""
        return f"  {place}{field}{problem.message}"


Name = Annotated[str, Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]
"""A settings field that names a node, site, cell or gateway."""

Model = TypeVar("Model", bound=Settings)
Place = tuple[str | int, ...]

MAX_BYTES = 4 * 1024 * 1024
_LOGIN = re.compile(r"://[^/@\s]*@")


def load(path: Path | str, model: type[Model]) -> Model:
    """Read a YAML file into `model`. Raises ConfigError."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(
            path, [Problem(0, "", f"{error.strerror or error}; give the path of a readable file")]
        ) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(path, [Problem(0, "", f"the file has {len(raw)} bytes, more than {MAX_BYTES}")])
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            path, [Problem(0, "", f"the file is not UTF-8 text (byte {error.start})")]
        ) from error
    return parse(text, model, path)


def parse(text: str, model: type[Model], path: Path | str = "<text>") -> Model:
    """Read YAML text into `model`; `path` names the text in errors. Raises ConfigError."""
    lines: dict[Place, int] = {}
    problems: list[Problem] = []
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = _plain(node, (), lines, problems) if node is not None else {}
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(
            path, [Problem(mark.line + 1 if mark else 0, "", f"not valid YAML: {error.problem}")]
        ) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(path, [Problem(0, "", f"not valid YAML: {error}")]) from error
    try:
        loaded = model.model_validate(data)
    except ValidationError as error:
        problems += [_problem(detail, lines) for detail in _telling(error)]
        raise ConfigError(path, sorted(problems, key=lambda p: (p.line, p.field))) from error
    if problems:
        raise ConfigError(path, problems)
    return loaded


def _telling(error: ValidationError) -> list[Any]:
    """The errors that say something: a list is not too short only because its items are wrong."""
    details: list[Any] = error.errors(include_url=False)
    places = [tuple(detail["loc"]) for detail in details]
    return [
        detail
        for detail in details
        if detail["type"] != "too_short"
        or not any(
            len(place) > len(detail["loc"]) and place[: len(detail["loc"])] == tuple(detail["loc"])
            for place in places
        )
    ]


def _plain(node: yaml.Node, place: Place, lines: dict[Place, int], problems: list[Problem]) -> Any:
    """Turn a node tree into plain data, noting each place's line and each key said twice."""
    if len(place) > 32:
        raise ValueError("more than 32 levels deep")
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*place, i), lines, problems) for i, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return _scalar(node)
    data: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value) if isinstance(key_node, yaml.ScalarNode) else "?"
        if key in data:
            where = _dotted((*place, key))
            problems.append(
                Problem(key_node.start_mark.line + 1, where, "this key stands twice; keep one of them")
            )
        data[key] = _plain(value_node, (*place, key), lines, problems)
        lines[(*place, key)] = key_node.start_mark.line + 1
    return data


class _ScalarLoader(yaml.SafeLoader):
    """Only lends its constructor for scalars."""

    def __init__(self) -> None:
        super().__init__("")


def _scalar(node: yaml.Node) -> Any:
    return _ScalarLoader().construct_object(node)


def _dotted(place: Place) -> str:
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _problem(detail: Any, lines: dict[Place, int]) -> Problem:
    place: Place = tuple(detail["loc"])
    known = place
    while known and known not in lines:
        known = known[:-1]
    return Problem(lines.get(known, 0), _dotted(place), _message(detail))


def _message(detail: Any) -> str:
    kind, said = detail["type"], str(detail["msg"])
    if kind == "extra_forbidden":
        return "unknown key; check its spelling against the documentation, or remove it"
    if kind == "missing":
        return "this key is required; add it"
    # A URL may hold a user and a password, and errors go into logs.
    shown = _LOGIN.sub("://***@", repr(detail.get("input")))
    return f"{said} (got {shown if len(shown) <= 80 else shown[:77] + '...'})"
