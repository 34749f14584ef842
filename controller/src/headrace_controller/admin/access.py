"""Who may do what: tokens with roles, and for a controller without tokens this machine alone."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from headrace_controller.control.intents.records import Actor
from headrace_controller.settings import AdminSettings
from headrace_shared.config import ConfigError, Problem

LEAST_TOKEN: Final = 16
MAX_TOKEN: Final = 4096


class Role(IntEnum):
    """What a request needs; each includes those below."""

    NOBODY = 0
    VIEWER = 1
    OPERATOR = 2


@dataclass(frozen=True, slots=True)
class _Token:
    name: str
    role: Role
    digest: bytes


class Denied(Exception):  # noqa: N818 - what happened to the request
    """The request is not let in. `reason` is a word for metrics; the message is for people."""

    def __init__(self, status: int, reason: str, message: str, actor: Actor | None = None) -> None:
        self.status = status
        self.reason = reason
        self.actor = actor
        super().__init__(message)


class Access:
    """Decides about requests. `tokens` are read once: a changed file is taken up by a reload."""

    def __init__(self, settings: AdminSettings, tokens: Sequence[_Token] = ()) -> None:
        self._settings = settings
        self._tokens = tuple(tokens)

    @classmethod
    def of(cls, settings: AdminSettings) -> Access:
        """By the settings and their files. Raises ConfigError that names each file that is no use."""
        tokens, problems = [], []
        for number, token in enumerate(settings.tokens):
            try:
                secret = _read(token.file)
            except ValueError as error:
                problems.append(Problem(0, f"admin.tokens[{number}].file", f"{token.file}: {error}"))
                continue
            tokens.append(_Token(token.name, Role[token.role.upper()], _digest(secret)))
        if len({token.digest for token in tokens}) < len(tokens):
            problems.append(Problem(0, "admin.tokens", "two files hold the same token; give each its own"))
        if problems:
            raise ConfigError("the operators' tokens", problems)
        return cls(settings, tokens)

    def needs(self, role: Role, is_metrics: bool) -> Role:
        """What a route of this role needs under these settings."""
        return Role.NOBODY if is_metrics and self._settings.open_metrics else role

    def admit(self, request: web.Request, role: Role) -> Actor:
        """Who asks. Raises Denied."""
        source = request.remote or ""
        if role is Role.NOBODY:
            return Actor("", "", source)
        _refuse_other_pages(request)
        if not self._tokens:
            return _local(request, source)
        token = self._known(request.headers.get("Authorization", ""))
        actor = Actor(token.name, token.role.name.lower(), source)
        if token.role < role:
            raise Denied(
                403, "role", f"the token {token.name!r} may only look; this needs an operator's", actor
            )
        return actor

    def _known(self, header: str) -> _Token:
        scheme, _, secret = header.partition(" ")
        if not secret or scheme.lower() != "bearer":
            raise Denied(401, "no_token", "give a token: `Authorization: Bearer TOKEN` (headrace --token)")
        digest, found = _digest(secret.strip().encode("utf-8", "replace")), None
        for token in self._tokens:
            # All are compared, and digests of one length: time tells nothing of any of them.
            if hmac.compare_digest(token.digest, digest):
                found = token
        if found is None:
            raise Denied(
                401, "wrong_token", "this token is not known; admin.tokens lists the files of those that are"
            )
        return found


def is_loopback(host: str) -> bool:
    """True for an address of this machine's own loopback, also one that is mapped into IPv6."""
    if host == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def _local(request: web.Request, source: str) -> Actor:
    """Without tokens: only from this machine, and only by a name that no other site can point here."""
    if not is_loopback(source):
        raise Denied(
            403,
            "not_local",
            "this controller has no admin.tokens: it answers its own machine only, over loopback",
        )
    try:
        host = urlsplit(f"//{request.host}").hostname or ""
    except ValueError:
        host = ""
    if not is_loopback(host):
        raise Denied(
            403, "host", f"requests to {request.host[:80]!r} are not taken; use 127.0.0.1 or admin.tokens"
        )
    return Actor("local", "operator", source)


def _refuse_other_pages(request: web.Request) -> None:
    """A browser says which page it acts for; a page from elsewhere must not act here."""
    origin = request.headers.get("Origin")
    if origin is None:
        return
    try:
        same = urlsplit(origin).netloc == request.host
    except ValueError:
        same = False
    if not same:
        raise Denied(403, "origin", f"requests from pages of {origin[:80]!r} are not taken")


def _digest(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _read(path: Path) -> bytes:
    """A token file's first line. Raises ValueError."""
    try:
        with path.open("rb") as file:
            lines = file.read(MAX_TOKEN + 1).splitlines()
    except OSError as error:
        raise ValueError(f"{error.strerror or error}; give a readable file") from error
    secret = lines[0].strip() if lines else b""
    if not LEAST_TOKEN <= len(secret) <= MAX_TOKEN or not secret.isascii():
        raise ValueError(
            f"its first line has {len(secret)} characters; give {LEAST_TOKEN} or more, ASCII, as "
            "`openssl rand -hex 24` makes them"
        )
    return secret
