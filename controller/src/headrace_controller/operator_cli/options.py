"""The options that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from headrace_controller.operator_cli.client import DEFAULT_URL, Client, checked_token, checked_url


def _usage(check: Callable[[str], str]) -> Callable[[str], str]:
    """A check whose ValueError is wrong usage."""

    def checked(value: str) -> str:
        try:
            return check(value)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    return checked


Url = Annotated[
    str,
    typer.Option(
        "--url",
        envvar="HEADRACE_URL",
        callback=_usage(checked_url),
        help="The controller's admin address (listen.admin).",
    ),
]
Token = Annotated[
    str,
    typer.Option(
        "--token",
        envvar="HEADRACE_TOKEN",
        callback=_usage(checked_token),
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


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """A command that gets a Client first, with the options that say of which controller.

    Typer reads the signature of what this returns: the command's own without its first parameter,
    then --url, --token and --ca.
    """
    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    shared = {"url": (Url, DEFAULT_URL), "token": (Token, ""), "ca": (Ca, None)}

    @wraps(command)
    def run(url: str, token: str, ca: Path | None, **rest: Any) -> None:
        command(Client(url, token, ca), **rest)

    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = [each.replace(annotation=hints[each.name], kind=kind) for each in own]
    parameters += [
        inspect.Parameter(name, kind, default=default, annotation=hint)
        for name, (hint, default) in shared.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    del run.__wrapped__
    return run
