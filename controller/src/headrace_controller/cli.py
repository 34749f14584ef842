"""`headrace-controller`: runs the controller and prints what its Envoys need."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal, NoReturn

import typer
from prometheus_client import disable_created_metrics

from headrace_controller import __version__
from headrace_controller.control import garbage
from headrace_controller.service import load_checked
from headrace_controller.service import run as run_service
from headrace_controller.settings import ControllerSettings
from headrace_controller.settings import load as load_settings
from headrace_controller.xds import bootstrap as envoy_bootstrap
from headrace_shared import log
from headrace_shared.config import ConfigError
from headrace_shared.net import CannotListenError, HostPort, parse_host_port
from headrace_shared.reference import render
from headrace_shared.tasks import STDERR, hold_hangups, on_hangup, run_program, take_hangup
from headrace_shared.tls import TlsError, TlsSettings

EPILOG: Final = """\
The least that a settings file needs:

\b
  gateways:
    - id: gw-1                # the Envoy's node id
      host: 10.0.0.5          # what agents measure their path to
      listen: 0.0.0.0:10000   # where this Envoy takes requests

\b
Try it:
  headrace-controller config check controller.yaml
  headrace-controller run --config controller.yaml
  headrace-controller bootstrap --config controller.yaml --gateway gw-1 > envoy.yaml
  envoy -c envoy.yaml

SIGTERM or Ctrl-C ends it with exit code 0; Envoys keep the weights they hold.
SIGHUP takes up a changed file where that needs no restart; the log says what it did.
Exit code 2: the settings or a certificate cannot be used; 1: a port cannot, or a part of the running
controller failed (a service manager tries again). stderr says which and what to do.
"""

app = typer.Typer(
    name="headrace-controller",
    help="Runs one region's controller: states, pressure, weights and xDS.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
config_app = typer.Typer(help="Work with settings files.", no_args_is_help=True, rich_markup_mode=None)
app.add_typer(config_app, name="config")
Baseline = Literal["rr", "lr"] | None
Config = Annotated[Path, typer.Option("--config", "-c", help="The settings file (YAML).")]


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        typer.echo(f"headrace-controller {__version__}")
        raise typer.Exit


@app.command()
def run(
    config: Config,
    baseline: Annotated[
        Baseline,
        typer.Option(
            help="Make the gateways a plain Envoy: round-robin or least-request, health checks only."
        ),
    ] = None,
) -> None:
    """Run the controller until SIGTERM; SIGHUP takes up what can be changed while it runs."""
    hold_hangups()
    with _clear_errors():
        chosen = _with_baseline(load_settings(config), baseline)
        log.configure(chosen.log.level, chosen.log.format)
        # Else each counter has a second series, of when it was made.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        garbage.begin()
        try:
            run_program(lambda stop: _serve(chosen, config, baseline, stop))
        except (CannotListenError, TlsError):
            raise
        except Exception as error:
            log.get("controller").exception(
                "the controller failed and ends; Envoys keep the weights they hold", error=repr(error)
            )
            raise typer.Exit(1) from error


async def _serve(chosen: ControllerSettings, path: Path, baseline: Baseline, stop: asyncio.Event) -> None:
    """Run until `stop`, and take up the file anew at each SIGHUP."""
    reload = asyncio.Event()
    on_hangup(partial(take_hangup, reload, stop, os.isatty(STDERR)))
    await run_service(chosen, stop, reload, lambda: _with_baseline(load_checked(path), baseline))


def _with_baseline(chosen: ControllerSettings, baseline: Baseline) -> ControllerSettings:
    """The command line's baseline stands above the file's."""
    return chosen if baseline is None else chosen.model_copy(update={"baseline": baseline})


@app.command()
def bootstrap(
    config: Config,
    gateway: Annotated[str, typer.Option(help="The gateway's id in the settings file.")],
    admin_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The Envoy's admin port on 127.0.0.1.")
    ] = 9901,
    xds_address: Annotated[
        str, typer.Option(help="Where the Envoy reaches listen.xds, if not by that address.")
    ] = "",
    ca: Annotated[
        Path | None, typer.Option(help="On the Envoy's host: the authority of the controller's certificate.")
    ] = None,
    cert: Annotated[
        Path | None, typer.Option(help="On the Envoy's host: its own certificate (mutual TLS).")
    ] = None,
    key: Annotated[Path | None, typer.Option(help="On the Envoy's host: the key of --cert.")] = None,
    delta: Annotated[
        bool, typer.Option("--delta", help="The Envoy takes differences instead of whole lists (DELTA_GRPC).")
    ] = False,
) -> None:
    """Print the bootstrap file for one Envoy."""
    with _clear_errors():
        chosen = load_settings(config)
    known = [each.id for each in chosen.gateways]
    if gateway not in known:
        _refuse(f"gateway {gateway!r} is not in {config}; it has {', '.join(known)}")
    address = _xds_address(xds_address, chosen.listen.xds)
    _check_files(chosen.listen.xds_tls, ca, cert, key)
    tls = TlsSettings(ca=ca, cert=cert, key=key) if ca is not None else None
    reports = chosen.gateway_reports.enabled
    made = envoy_bootstrap.render(gateway, address, admin_port, tls, delta=delta, load_reports=reports)
    typer.echo(made, nl=False)


def _xds_address(given: str, listen: HostPort) -> HostPort:
    try:
        address = parse_host_port(given) if given else listen
    except ValueError as error:
        _refuse(f"--xds-address: {error}")
    if address.port == 0:
        _refuse(f"{address} is no address to connect to; give --xds-address HOST:PORT")
    if address.host in ("0.0.0.0", "::"):
        _warn(
            f"{address} reaches the controller from its own host only; for an Envoy elsewhere give "
            "--xds-address HOST:PORT"
        )
    elif address.is_loopback and not given:
        _warn(
            f"{address} serves an Envoy on this machine alone; for one elsewhere set listen.xds to an "
            "address that it reaches"
        )
    return address


def _warn(message: str) -> None:
    typer.echo(f"headrace-controller: warning: {message}", err=True)


def _check_files(served: TlsSettings | None, ca: Path | None, cert: Path | None, key: Path | None) -> None:
    """Refuse files with which the Envoy could not connect to a listener that is `served` with TLS or not."""
    if (cert is None) != (key is None):
        _refuse("give both --cert and --key, or neither")
    if ca is None and (served is not None or cert is not None):
        _refuse("the Envoy needs --ca, the authority of the controller's certificate (listen.xds_tls)")
    if served is not None and served.ca is not None and cert is None:
        _refuse("listen.xds_tls has a ca (mutual TLS), so the Envoy needs --cert and --key")


@config_app.command()
def reference() -> None:
    """Print every key of the settings file with its type, default and bounds, as Markdown."""
    intro = (
        "What `headrace-controller config reference` prints: every key of the controller's settings file. "
        "Durations end in `_s` and are seconds."
    )
    typer.echo(render(ControllerSettings, "The controller's settings file", intro), nl=False)


@config_app.command("check")
def check(path: Annotated[Path, typer.Argument(help="The settings file.")]) -> None:
    """Check a settings file and the TLS files it names; list everything that is wrong."""
    with _clear_errors():
        chosen = load_checked(path)
    gateways = ", ".join(each.id for each in chosen.gateways)
    typer.echo(f"{path}: good.\nregion {chosen.region}; gateways: {gateways}")


def main() -> None:
    """Entry point of `headrace-controller`."""
    app()


@contextmanager
def _clear_errors() -> Iterator[None]:
    """What the operator can mend is said in words and with no traceback; exit code 2 where no further
    try could end otherwise."""
    try:
        yield
    except (ConfigError, TlsError) as error:
        _refuse(str(error))
    except CannotListenError as error:
        # A port is freed, and a host gets its address, a moment later: whoever starts this again may.
        _refuse(str(error), code=1)


def _refuse(message: str, code: int = 2) -> NoReturn:
    typer.echo(f"headrace-controller: {message}", err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    main()
