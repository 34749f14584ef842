"""Serves the page's files from memory: read once, packed once, and asked again on every visit.

They hold no figure of the region, so that a browser gets them without a token; what they then ask
of the API has the API's rules.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from aiohttp import web

PREFIX: Final = "/page/"
_KINDS: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
HEADERS: Final[Mapping[str, str]] = {
    # Nothing but our own files, no script in the document, nobody's frame around it.
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # A page of one version never runs with scripts of another.
    "Cache-Control": "no-cache",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class File:
    """One file: its bytes, the same packed, and a tag that changes with them."""

    kind: str
    body: bytes
    packed: bytes
    tag: str

    @classmethod
    def of(cls, name: str, body: bytes) -> File:
        """A file by its name's ending. Raises KeyError for one that no page may hold."""
        kind = _KINDS[name.rpartition(".")[2]]
        return cls(kind, body, gzip.compress(body, 9, mtime=0), hashlib.sha256(body).hexdigest()[:32])


class Pages:
    """The page and what it is made of."""

    def __init__(self, found: Mapping[str, File]) -> None:
        self._files = dict(found)

    @classmethod
    def packaged(cls) -> Pages:
        """The files of this package."""
        place = files(__package__) / "static"
        names = [each.name for each in place.iterdir() if each.name.rpartition(".")[2] in _KINDS]
        return cls({name: File.of(name, (place / name).read_bytes()) for name in names})

    def __contains__(self, name: object) -> bool:
        return name in self._files

    def add_to(self, app: web.Application) -> None:
        """Serve `index.html` at / and every file under PREFIX, to GET and HEAD."""
        app.router.add_get("/", self._page)
        app.router.add_get(f"{PREFIX}{{name}}", self._file)

    async def _page(self, request: web.Request) -> web.Response:
        return _answer(request, self._files["index.html"])

    async def _file(self, request: web.Request) -> web.Response:
        found = self._files.get(request.match_info["name"])
        if found is None:
            raise web.HTTPNotFound(text="the page has no such file")
        return _answer(request, found)


def _answer(request: web.Request, file: File) -> web.Response:
    tags = request.if_none_match or ()
    headers = {**HEADERS, "ETag": f'"{file.tag}"'}
    if any(tag.value in (file.tag, "*") for tag in tags):
        return web.Response(status=304, headers=headers)
    if "gzip" in request.headers.get("Accept-Encoding", ""):
        headers["Content-Encoding"] = "gzip"
        return web.Response(body=file.packed, headers=headers, content_type=file.kind, charset="utf-8")
    return web.Response(body=file.body, headers=headers, content_type=file.kind, charset="utf-8")
