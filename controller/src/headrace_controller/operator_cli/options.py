"""The options that commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import typer

DEFAULT_URL = "http://127.0.0.1:18002"


def _check_url(url: str) -> str:
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise typer.BadParameter(f"{url!r} is no address; write http://HOST:PORT, as in {DEFAULT_URL}")
    return url.rstrip("/")


def _check_token(token: str) -> str:
    if not token.isascii() or not token.isprintable():
        raise typer.BadParameter("a token has ASCII characters only, and no line break")
    return token


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="HEADRACE_URL",
        callback=_check_url,
        help="The controller's admin address (listen.admin).",
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="HEADRACE_TOKEN",
        callback=_check_token,
        show_default=False,
        help="One of its admin.tokens. The variable keeps it out of the list of processes.",
    ),
]
Ca = Annotated[
    Path | None,
    typer.Option(
        "--ca", envvar="HEADRACE_CA", help="For https: the authority of the controller's certificate (PEM)."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Cause = Annotated[str, typer.Option(help="Why; it stands in the history.")]
CellId = Annotated[str, typer.Argument(metavar="CELL", help="The cell's id, as `headrace cells` shows it.")]
SiteName = Annotated[str, typer.Argument(metavar="SITE", help="The site, as `headrace status` shows it.")]
Clear = Annotated[bool, typer.Option("--clear", help="Take it back.")]
ASKED = "asked by the operator"
