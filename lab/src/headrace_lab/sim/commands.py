"""`headrace-lab sim`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from headrace_lab.live.ask import Ask
    from headrace_lab.scenarios import Catalogue

WATCHES_CONTROLLER = frozenset({"dcgm-loss"})


def sim(
    name: Annotated[str, typer.Argument(help="The scenario, as the scenario file names it.")],
    kind: Annotated[str, typer.Option(help="With failover: kill, hang, node, site or loading.")] = "",
    variant: Annotated[str, typer.Option(help="A variant of the scenario.")] = "",
    arms: Annotated[
        str,
        typer.Option(
            help="Arms to run, with commas between; default: the file's, and oracle where it can run."
        ),
    ] = "",
    load: Annotated[str, typer.Option(help="A load class or trace; default: the file's.")] = "",
    network: Annotated[
        str, typer.Option(help="A network of the scenario file; with jitter several, with commas between.")
    ] = "",
    rps: Annotated[float | None, typer.Option(help="Requests per second.", min=0.01, max=1000)] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Length of each arm's load.", min=5, max=86400)
    ] = None,
    tier: Annotated[str, typer.Option(help="The SLO tier of fleet scenarios.")] = "middle",
    hours: Annotated[
        float | None,
        typer.Option(
            help="With lead-time: healthy hours in search of false alarms; default: the file's.", min=0
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Fixes the load and all that is left to chance.", min=0)] = 1,
    settings: Annotated[
        Path | None,
        typer.Option(
            help="A part of a controller's settings file, tried in all arms that have a controller."
        ),
    ] = None,
    json: Annotated[Path | None, typer.Option(help="Write the result here, raw records beside it.")] = None,
) -> None:
    """Run a scenario in simulation: the same engines and the controller's own code on a virtual clock.

    On a fleet scenario (homogeneous, heterogeneous, perturbed) it finds by bisection the rate that
    each arm sustains at an SLO tier, and then compares the arms at one rate below it. Results that
    exist only in simulation say so by their mode.

    Exit status: 0 it ran; 2 wrong options; 130 after Ctrl-C.
    """
    from headrace_lab.demo.commands import check_places
    from headrace_lab.live.ask import AskError, Options, look_up
    from headrace_lab.scenarios import packaged
    from headrace_lab.sim.simulate import simulate
    from headrace_lab.sim.tried import check_settings, read_settings
    from headrace_lab.tables import new_console
    from headrace_shared import log
    from headrace_shared.clock import SystemClock

    log.configure(level="error")
    catalogue = packaged()
    try:
        options = Options(
            name=name,
            kind=kind,
            variant=variant,
            arms=_names(arms) or _with_oracle(name, catalogue),
            load=load,
            networks=_names(network),
            rps=rps,
            seconds=seconds,
            seed=seed,
            json_path=json,
            settings=read_settings(settings) if settings is not None else {},
        )
        ask = look_up(options, catalogue, "sim")
        check_settings(ask.arms.values(), options.settings)
    except AskError as error:
        raise typer.BadParameter(str(error)) from error
    refusal = _refusal(ask, hours)
    if refusal:
        raise typer.BadParameter(refusal)
    if tier not in catalogue.tiers:
        raise typer.BadParameter(f"--tier {tier!r}: give one of {', '.join(catalogue.tiers)}")
    check_places(json, None, 0)
    lead = ask.scenario.lead
    healthy = hours if hours is not None else (lead.healthy_hours if lead else 0.0)
    simulate(ask, tier, healthy, new_console(), SystemClock())


def _refusal(ask: Ask, hours: float | None) -> str:
    """Why the options cannot be obeyed; "" where they can."""
    if hours is not None and ask.scenario.lead is None:
        return "--hours belongs to lead-time; leave it out"
    watched = ask.name in WATCHES_CONTROLLER or ask.scenario.lead is not None
    plain = [name for name, arm in ask.arms.items() if not arm.lifecycle or arm.balancer == "oracle"]
    if ask.scenario.lead is not None:
        plain = [name for name in plain if name != "rr"]
    if watched and plain:
        return f"arm {plain[0]} has no controller to watch; name arms that have one, as weights or v3"
    return ""


def _with_oracle(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """The scenario's arms and the oracle, which has no controller to watch or be silenced; none where
    there is no such scenario."""
    scenario = catalogue.scenarios.get(name)
    if scenario is None or scenario.lead is not None or name in WATCHES_CONTROLLER:
        return ()
    return tuple(dict.fromkeys((*scenario.arms, "oracle")))


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
