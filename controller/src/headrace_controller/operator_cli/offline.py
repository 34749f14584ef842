"""Commands that need no controller: replay, and config check."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace_controller.operator_cli.client import Code, fail
from headrace_controller.operator_cli.options import AsJson
from headrace_controller.operator_cli.show import figure, show
from headrace_controller.operator_cli.tables import Table, text
from headrace_controller.operator_cli.terminal import write

if TYPE_CHECKING:
    from headrace_controller.control.recording.report import Report, Worst
    from headrace_controller.control.recording.variant import Parameters


class Scorer(StrEnum):
    """The scorers."""

    V2 = "v2"
    V3 = "v3"


class ProjectionName(StrEnum):
    """The projections."""

    SPEED = "speed"
    HEADROOM = "headroom"
    EQUALISE = "equalise"


config_app = typer.Typer(help="Work with settings files.", no_args_is_help=True, rich_markup_mode=None)


def replay(
    recording: Annotated[
        Path, typer.Argument(metavar="FILE", help="A recording: one file, or the directory of all.")
    ],
    scorer: Annotated[Scorer | None, typer.Option(help="Score with this scorer.")] = None,
    projection: Annotated[ProjectionName | None, typer.Option(help="Weigh with this projection.")] = None,
    settings: Annotated[
        Path | None,
        typer.Option(help="Take pressure and projection from this settings file of a controller."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Score a recording again with other parameters, and show what would have changed."""
    # Numpy and the stages take half a second to load, which no other command needs.
    from headrace_controller.control.recording.entries import RecordingError
    from headrace_controller.control.recording.files import find_files
    from headrace_controller.control.recording.replay import replay_files

    change = None if settings is None else _parameters(settings)
    try:
        report = replay_files(
            find_files(recording), scorer and scorer.value, projection and projection.value, change
        )
    except RecordingError as error:
        fail(str(error), Code.USAGE)
    show(asdict(report), [*_summary(report), _rows(report)], as_json)


@config_app.command("check")
def check(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The controller's settings file.")],
) -> None:
    """Check a controller's settings file and the files it names; list everything that is wrong."""
    from headrace_controller.service import load_checked
    from headrace_shared.config import ConfigError
    from headrace_shared.tls import TlsError

    try:
        chosen = load_checked(path)
    except (ConfigError, TlsError) as error:
        fail(str(error), Code.USAGE)
    gateways = ", ".join(each.id for each in chosen.gateways)
    write(f"{path}: good.\nregion {chosen.region}; gateways: {gateways}\n")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(replay)
    app.add_typer(config_app, name="config")


def _parameters(path: Path) -> Parameters:
    from headrace_controller.control.recording.variant import Parameters
    from headrace_controller.settings import load
    from headrace_shared.config import ConfigError

    try:
        chosen = load(path)
    except ConfigError as error:
        fail(str(error), Code.USAGE)
    return Parameters(chosen.pressure, chosen.projection)


def _summary(report: Report) -> list[str]:
    return [
        f"{report.seconds:.0f} s, {report.ticks} ticks; gateways: {', '.join(report.gateways)}",
        f"pushes: {report.pushes_recorded} recorded, {report.pushes_before} computed again with the same "
        f"parameters, {report.pushes_after} with the others",
        f"greatest change of a share: {_worst(report.worst)}",
        f"greatest difference between recorded and computed again: {_worst(report.fidelity)}",
    ]


def _worst(worst: Worst) -> str:
    if not worst.cell:
        return "none"
    where = f"{worst.cell} in {worst.model} at {worst.gateway}"
    return f"{worst.difference:.1%} of its pool's requests, {where}, after {worst.at_s:.1f} s"


def _rows(report: Report) -> Table:
    table = Table(
        (
            "cell",
            "model",
            "share before",
            "share after",
            "change",
            "last weights: recorded",
            "before",
            "after",
        ),
        right=("share before", "share after", "change"),
    )
    for row in report.rows:
        change = None
        if row.share_before is not None and row.share_after is not None:
            change = row.share_after - row.share_before
        table.add_row(
            text(row.cell),
            text(row.model),
            figure(row.share_before, "{:.2%}"),
            figure(row.share_after, "{:.2%}"),
            figure(change, "{:+.2%}"),
            *(
                " ".join(map(str, each)) or "-"
                for each in (row.weights_recorded, row.weights_before, row.weights_after)
            ),
        )
    return table
