"""A request's header fields: what is called, and how it is answered."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

from headrace_controller.wire.messages import CallFault, Status

Fields = Sequence[tuple[str, str]]

_PSEUDO: Final = frozenset((":method", ":scheme", ":path", ":authority"))
_NEEDED: Final = frozenset((":method", ":scheme", ":path"))
_OF_HTTP_1: Final = frozenset(
    ("connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade")
)
_timeout: Final = re.compile(r"([0-9]{1,8})([HMSmun])")
_SECONDS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")
OPENING: Final[Fields] = (
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity"),
)
"""The header fields before a call's first answer."""


class MalformedError(Exception):
    """Header fields that no HTTP/2 request may have."""


class NotGrpcError(Exception):
    """A request of another kind; `status` is the HTTP status that says so."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP status {status}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """`timeout_s` is None where the caller would wait for ever; `fields` are all header fields, the first of
    each name."""

    path: str
    encoding: str = "identity"
    timeout_s: float | None = None
    fields: Mapping[str, str] = field(default_factory=dict, compare=False)


def read_request(fields: Iterable[tuple[str, str]]) -> Request:
    """What is called. Raises MalformedError, NotGrpcError, and CallFault for a bad field of gRPC's own."""
    found = _checked(fields)
    if found[":method"] != "POST":
        raise NotGrpcError(405)
    kind = found.get("content-type", "")
    if not (kind == "application/grpc" or kind.startswith(("application/grpc+proto", "application/grpc;"))):
        raise NotGrpcError(415)
    return Request(
        found[":path"],
        found.get("grpc-encoding", "identity"),
        _read_timeout(found.get("grpc-timeout")),
        found,
    )


def ending(status: Status, details: str, opened: bool) -> list[tuple[str, str]]:
    """The trailers of a call; with all header fields in them where it was not `opened` by any before."""
    fields = [] if opened else [*OPENING]
    fields.append(("grpc-status", str(int(status))))
    if details:
        fields.append(("grpc-message", quote(details[:1024], safe=_PLAIN)))
    return fields


def _checked(fields: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Fields by name, the first of each. Raises MalformedError as RFC 9113, section 8.2 and 8.3, demands."""
    found: dict[str, str] = {}
    plain = False
    for name, value in fields:
        if name.startswith(":"):
            if plain or name not in _PSEUDO or name in found:
                raise MalformedError(f"{name[:32]!r} is not expected")
        else:
            plain = True
        if not name or name != name.lower() or name in _OF_HTTP_1:
            raise MalformedError(f"{name[:32]!r} is no field of HTTP/2")
        found.setdefault(name, value)
    if not found.keys() >= _NEEDED:
        raise MalformedError("no method, scheme or path")
    return found


def _read_timeout(text: str | None) -> float | None:
    if text is None:
        return None
    match = _timeout.fullmatch(text)
    if match is None:
        raise CallFault(Status.INTERNAL, "grpc-timeout is not a number and a unit")
    return int(match[1]) * _SECONDS[match[2]]
