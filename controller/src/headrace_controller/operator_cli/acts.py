"""Commands that act: drain, undrain, override, cordon, pin, shadow, freeze."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import typer

from headrace_controller.operator_cli.client import Client, cell_path, fail
from headrace_controller.operator_cli.options import ASKED, AsJson, Cause, CellId, Clear, SiteName, asking
from headrace_controller.operator_cli.show import say
from headrace_controller.operator_cli.terminal import warn

POLL_S = 1.0
# A drain ends by its deadline, a day at most.
MAX_POLLS = 90_000


class Switch(StrEnum):
    """On or off."""

    ON = "on"
    OFF = "off"


OnOff = Annotated[Switch, typer.Argument(help="on or off.")]


@asking
def drain(
    client: Client,
    cell: CellId,
    cause: Cause = ASKED,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=86400,
            help="Seconds until the drain ends regardless; without it the controller's "
            "lifecycle.drain_deadline_s, 300 by default.",
        ),
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Return when the last request has finished.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send a cell no new requests and let those in flight finish.

    With --wait the exit code is 0 only if all of them have. It is 1 if requests were still under way at the
    deadline, or were cut off because the engine ended first, or if the drain was taken back.
    """
    bound = {} if deadline is None else {"deadline_s": deadline}
    kept = _kept(client, client.call("POST", cell_path(cell, "drain"), {"cause": cause, **bound}))
    first = _look(client, cell)
    last = _ended(client, cell, first) if wait else first
    _say_state(cell, last.state, as_json)
    _warn_unless(kept)
    if wait and (trouble := _trouble(first, last)):
        fail(f"{cell} is not drained: {trouble}")


@asking
def undrain(client: Client, cell: CellId, cause: Cause = ASKED, as_json: AsJson = False) -> None:
    """Take a drain back: the cell gets requests again as soon as it serves."""
    told = client.call("POST", cell_path(cell, "undrain"), {"cause": cause})
    kept = _kept(client, told)
    with client.understood():
        _say_state(cell, str(told["state"]) or "not known yet", as_json)
    _warn_unless(kept)


@asking
def override(
    client: Client,
    cell: CellId,
    weight: Annotated[
        int | None, typer.Argument(min=1, max=10_000, help="The weight, in all its pools.")
    ] = None,
    clear: Clear = False,
    cause: Cause = ASKED,
    as_json: AsJson = False,
) -> None:
    """Set a cell's weight at every gateway, or --clear it."""
    if clear == (weight is not None):
        raise typer.BadParameter("give a WEIGHT, or --clear")
    told = _put(client, cell_path(cell, "override"), None if clear else {"weight": weight}, cause)
    _say(client, cell, "override cleared" if clear else f"weight {weight}", told, as_json)


@asking
def cordon(
    client: Client, site: SiteName, clear: Clear = False, cause: Cause = ASKED, as_json: AsJson = False
) -> None:
    """Send a site no new requests where another site can take them, or --clear that."""
    told = _put(client, f"/api/v1/sites/{quote(site)}/cordon", None if clear else {}, cause)
    _say(client, site, "cordon lifted" if clear else "cordoned", told, as_json)


@asking
def pin(
    client: Client,
    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model, as `headrace pools` shows it.")],
    sites: Annotated[
        list[str] | None, typer.Argument(metavar="[SITE]...", help="The only sites that may serve it.")
    ] = None,
    clear: Clear = False,
    cause: Cause = ASKED,
    as_json: AsJson = False,
) -> None:
    """Let only these sites serve a model, whatever happens, or --clear that."""
    if clear == bool(sites):
        raise typer.BadParameter("give the SITEs, or --clear")
    told = _put(client, f"/api/v1/pools/{quote(model)}/pin", None if clear else {"sites": sites}, cause)
    _say(client, model, "pin lifted" if clear else f"pinned to {', '.join(sites or ())}", told, as_json)


@asking
def shadow(client: Client, switch: OnOff, cause: Cause = ASKED, as_json: AsJson = False) -> None:
    """Compute weights and push none (on), or push again (off). Cells that fail leave all the same."""
    _turn(client, "shadow", switch, cause, as_json)


@asking
def freeze(client: Client, switch: OnOff, cause: Cause = ASKED, as_json: AsJson = False) -> None:
    """Hold the weights that are pushed (on), or let them go (off). Cells that fail leave all the same."""
    _turn(client, "freeze", switch, cause, as_json)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (drain, undrain, override, cordon, pin, shadow, freeze):
        app.command()(command)


def _put(client: Client, path: str, body: dict[str, Any] | None, cause: str) -> Any:
    """Ask for something and say why; no body takes it back."""
    return client.call("DELETE", path) if body is None else client.call("PUT", path, body | {"cause": cause})


def _turn(client: Client, what: str, switch: Switch, cause: str, as_json: bool) -> None:
    """Switch a mode of the whole region."""
    told = client.call("POST", f"/api/v1/{what}", {"on": switch is Switch.ON, "cause": cause})
    _say(client, "", f"{what} {switch.value}", told, as_json)


def _say(client: Client, subject: str, word: str, told: Any, as_json: bool) -> None:
    kept = _kept(client, told)
    say(subject, word, told, as_json)
    _warn_unless(kept)


def _kept(client: Client, told: Any) -> bool:
    with client.understood():
        return bool(told["kept"])


def _warn_unless(kept: bool) -> None:
    if not kept:
        warn("in force, but not on disk: a restart of the controller would forget it")


class _Look(NamedTuple):
    """A cell at one moment: its state, the event and the cause that put it there, and its requests in
    flight, None = not known."""

    state: str
    event: str
    cause: str
    in_flight: int | None


def _look(client: Client, cell: str) -> _Look:
    found = client.get(cell_path(cell))
    with client.understood():
        state = str(found["cell"]["state"])
        came = [each for each in found["history"] if each["to"] == state and each["from"] != state]
        event, cause = (str(came[-1][key]) if came else "" for key in ("event", "cause"))
        return _Look(state, event, cause, found["cell"]["in_flight"])


def _ended(client: Client, cell: str, look: _Look) -> _Look:
    """A look at a cell whose drain has ended, however it did."""
    for _ in range(MAX_POLLS):
        if look.state != "DRAINING":
            break
        time.sleep(POLL_S)
        look = _look(client, cell)
    return look


def _trouble(first: _Look, last: _Look) -> str:
    """Why a cell whose drain was waited for is not drained; empty if it is. One that was out at the first
    look had no drain to wait for, but an earlier one may have left it with requests."""
    left = f"{last.in_flight} requests are under way in it" if last.in_flight else ""
    if last.state != "TERMINATED":
        return f"it is {last.state}; `headrace events` shows why"
    if first.state == "TERMINATED" or last.event == "drain finished":
        return left
    why = ": ".join(dict.fromkeys(word for word in (last.event, last.cause) if word))
    return f"it ended before its requests did ({why})" + (f", and {left}" if left else "")


def _say_state(cell: str, state: str, as_json: bool) -> None:
    say(cell, state, {"cell": cell, "state": state}, as_json)
