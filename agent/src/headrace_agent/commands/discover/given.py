"""What the operator tells `discover`, because no look at the host can. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import TypeAdapter, ValidationError

from headrace_agent.commands.errors import CommandError
from headrace_agent.settings import MAX_CONTROLLERS
from headrace_shared.config import Name
from headrace_shared.net import HostPort, parse_host_port

_NAME: TypeAdapter[str] = TypeAdapter(Name)


@dataclass(frozen=True, slots=True)
class Given:
    """Empty is what was not told, and is left to fill in."""

    site: str = ""
    controllers: tuple[HostPort, ...] = ()


def read_given(site: str | None, controllers: Sequence[str]) -> Given:
    """The options, as a config takes them. Raises CommandError."""
    return Given("" if site is None else _site(site), _controllers(controllers))


def _site(text: str) -> str:
    try:
        return _NAME.validate_python(text)
    except ValidationError as error:
        raise CommandError(
            f"--site: {text!r} is no name; write letters, digits and . _ / -, 128 at most, as in berlin"
        ) from error


def _controllers(texts: Sequence[str]) -> tuple[HostPort, ...]:
    found = tuple(map(_controller, texts))
    for address in found:
        if found.count(address) > 1:
            raise CommandError(f"--controller: {address} is given twice; give each once")
    if len(found) > MAX_CONTROLLERS:
        raise CommandError(f"--controller: {len(found)} are given; give {MAX_CONTROLLERS} at most")
    return found


def _controller(text: str) -> HostPort:
    try:
        address = parse_host_port(text)
    except ValueError as error:
        raise CommandError(f"--controller: {error}") from error
    if address.port == 0:
        raise CommandError(f"--controller: {text!r} has port 0; write that of its listen.telemetry")
    return address
