"""`headrace gateway`: what an operator asks of a running Envoy."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from http.client import HTTPException
from typing import Annotated, Any, NoReturn
from urllib import error as urlerror
from urllib import request as urlrequest

import typer

from headrace_controller.gateway_check.check import Report, check
from headrace_controller.gateway_check.dump import NotAnEnvoyError
from headrace_shared.urls import checked_url

EXAMPLE = "http://127.0.0.1:9901"
TIMEOUT_S = 10.0
MAX_BYTES = 256 * 1024 * 1024
# Admin ports are reached directly: a proxy for the way out of the site does not know them.
_OPENER = urlrequest.build_opener(urlrequest.ProxyHandler({}))

app = typer.Typer(
    help="Look at a gateway: an Envoy that takes weights from Headrace.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.callback()
def gateway() -> None:
    """Look at a gateway: an Envoy that takes weights from Headrace."""


@app.command("check")
def check_gateway(
    url: Annotated[str, typer.Argument(metavar="URL", help=f"The Envoy's admin address: {EXAMPLE}.")],
    cluster: Annotated[
        list[str] | None,
        typer.Option(help="Look at this cluster, and not at all that ask for a pool; may be repeated."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Name every setting of a running Envoy that would undo the weights, with the mend.

    Exit codes: 0 nothing found, 1 something found, 2 the Envoy cannot be read.
    """
    base = _checked(url)
    try:
        report = check(_fetched(base + "/config_dump"), cluster or ())
    except NotAnEnvoyError as error:
        _fail(f"{base}/config_dump: {error}; is it the admin address of an Envoy?")
    if as_json:
        found = [asdict(each) for each in report.findings]
        typer.echo(json.dumps({"url": base, "clusters": report.clusters, "findings": found}, indent=2))
    else:
        typer.echo("\n".join(_lines(report)))
    raise typer.Exit(1 if report.findings else 0)


def _lines(report: Report) -> Sequence[str]:
    """The report for people; what an Envoy says drives no terminal."""
    looked = ", ".join(report.clusters) or "none"
    lines = [f"clusters looked at: {looked}"]
    for each in report.findings:
        lines += [f"{each.level}: {each.where}: {each.setting}: {each.says}", f"    mend: {each.mend}"]
    warnings = len(report.findings) - report.errors
    if report.findings:
        lines.append(f"{_count(report.errors, 'error')}, {_count(warnings, 'warning')}")
    else:
        lines.append("nothing found that undoes the weights")
    return ["".join(sign if sign.isprintable() else "\ufffd" for sign in line) for line in lines]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def _checked(url: str) -> str:
    try:
        return checked_url(url, EXAMPLE).removesuffix("/config_dump")
    except ValueError as error:
        _fail(str(error))


def _fetched(url: str) -> Any:
    """The JSON under `url`; ends the program with exit code 2 where there is none."""
    try:
        with _OPENER.open(url, timeout=TIMEOUT_S) as response:
            page = response.read(MAX_BYTES + 1)
    except urlerror.HTTPError as error:
        with error:
            _fail(f"{url} answered {error.code} {error.reason}; is it the admin address of an Envoy?")
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", error)
        _fail(f"{url} cannot be read: {reason}; is the Envoy running, and does its admin page listen there?")
    if len(page) > MAX_BYTES:
        _fail(f"{url} is larger than {MAX_BYTES >> 20} MiB")
    try:
        return json.loads(page)
    except (ValueError, RecursionError) as error:
        _fail(f"{url} is no JSON ({error}); is it the admin address of an Envoy?")


def _fail(message: str) -> NoReturn:
    typer.echo(f"headrace: {message}", err=True)
    raise typer.Exit(2)
