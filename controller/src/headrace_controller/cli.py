"""`headrace-controller`: runs the controller and prints what its Envoys need."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, NoReturn

import typer

from headrace_controller import __version__, settings
from headrace_controller.service import run as run_service
from headrace_controller.xds import bootstrap as envoy_bootstrap
from headrace_shared import log
from headrace_shared.config import ConfigError
from headrace_shared.net import PortInUseError, parse_host_port
from headrace_shared.tasks import run_program
from headrace_shared.tls import TlsError, TlsSettings

EXAMPLE = """The least that a settings file needs:

    gateways:
      - id: gw-1          # the Envoy's node id
        host: 10.0.0.5    # what agents measure their path to
        listen: 0.0.0.0:10000

Then: headrace-controller bootstrap --config FILE --gateway gw-1 > envoy.yaml; envoy -c envoy.yaml
"""

app = typer.Typer(
    name="headrace-controller",
    help="Runs one region's controller: states, pressure, weights and xDS.\n\n" + EXAMPLE,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)
config_app = typer.Typer(help="Work with settings files.", no_args_is_help=True)
app.add_typer(config_app, name="config")
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
        Literal["rr", "lr"] | None,
        typer.Option(
            help="Make the gateways a plain Envoy: round-robin or least-request, health checks only."
        ),
    ] = None,
) -> None:
    """Run the controller until SIGTERM."""
    chosen = _load(config)
    if baseline is not None:
        chosen = chosen.model_copy(update={"baseline": baseline})
    log.configure(chosen.log.level, chosen.log.format)
    try:
        run_program(lambda stop: run_service(chosen, stop))
    except (PortInUseError, TlsError) as error:
        _refuse(str(error))


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
) -> None:
    """Print the bootstrap file for one Envoy."""
    chosen = _load(config)
    if gateway not in {each.id for each in chosen.gateways}:
        _refuse(
            f"gateway {gateway!r} is not in {config}; it has {', '.join(each.id for each in chosen.gateways)}"
        )
    try:
        address = parse_host_port(xds_address) if xds_address else chosen.listen.xds
    except ValueError as error:
        _refuse(f"--xds-address: {error}")
    if chosen.listen.xds_tls is not None and ca is None:
        _refuse("listen.xds_tls is set, so the Envoy needs --ca (with mutual TLS also --cert and --key)")
    tls = TlsSettings(ca=ca, cert=cert, key=key) if ca is not None else None
    typer.echo(envoy_bootstrap.render(gateway, address, admin_port, tls), nl=False)


@config_app.command("check")
def check(path: Annotated[Path, typer.Argument(help="The settings file.")]) -> None:
    """Check a settings file and list everything that is wrong with it."""
    chosen = _load(path)
    typer.echo(f"{path}: good; region {chosen.region}, {len(chosen.gateways)} gateways")


def main() -> None:
    """Entry point of `headrace-controller`."""
    app()


def _load(path: Path) -> settings.ControllerSettings:
    try:
        return settings.load(path)
    except ConfigError as error:
        _refuse(str(error))


def _refuse(message: str) -> NoReturn:
    typer.echo(message, err=True)
    raise typer.Exit(2)


if __name__ == "__main__":
    main()
