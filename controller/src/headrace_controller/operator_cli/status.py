"""`headrace status`. Scripts ask for it often: it loads nothing that it does not need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from headrace_controller.operator_cli.client import DEFAULT_URL, Client, checked_token, checked_url, fail
from headrace_controller.operator_cli.show import gateway_line, show, site_table

_VALUES: Final = {"--url": "url", "--token": "token", "--ca": "ca"}
_SWITCHES: Final = {"--check": "check", "--json": "as_json"}
_VARIABLES: Final = {"HEADRACE_URL": "url", "HEADRACE_TOKEN": "token", "HEADRACE_CA": "ca"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line of `headrace status` says; "" = no `ca`."""

    url: str = DEFAULT_URL
    token: str = ""
    ca: str = ""
    check: bool = False
    as_json: bool = False

    def client(self) -> Client:
        """The controller that is asked."""
        return Client(self.url, self.token, Path(self.ca) if self.ca else None)


def read(arguments: Sequence[str], environ: Mapping[str, str]) -> Asked | None:
    """The command line, where it is a plain one. None where there is something to explain or to refuse
    (--help, an unknown option, an address that is none): the whole program does that."""
    found: dict[str, Any] = {field: environ[name] for name, field in _VARIABLES.items() if environ.get(name)}
    left = list(arguments)
    while left:
        name, sign, value = left.pop(0).partition("=")
        if name in _SWITCHES and not sign:
            found[_SWITCHES[name]] = True
        elif name in _VALUES and (sign or left):
            found[_VALUES[name]] = value if sign else left.pop(0)
        else:
            return None
    asked = Asked(**found)
    try:
        return replace(asked, url=checked_url(asked.url), token=checked_token(asked.token))
    except ValueError:
        return None


def status(client: Client, check: bool, as_json: bool) -> None:
    """Show the region at a glance; with `check`, fail where something needs a look."""
    view = client.get("/api/v1/status")
    with client.understood():
        lines = [f"region {view['region']}: {view['warm_start']}"]
        lines += ["self-preservation: weights hold"] if view["self_preservation"] else []
        lines += [f"{intent['kind']} {_detail(intent)}".rstrip() for intent in view["intents"]]
        lines += [gateway_line(gateway) for gateway in view["gateways"]]
        troubles = _troubles(view)
        show(view, [*lines, site_table(view["sites"])], as_json)
    if check and troubles:
        fail("; ".join(troubles))


def _detail(intent: dict[str, Any]) -> str:
    what = [intent["subject"], "" if intent["weight"] is None else str(intent["weight"])]
    what += [f"to {', '.join(intent['sites']) or 'no site'}"] if intent["kind"] == "pin" else []
    why = f"({intent['cause']}; {intent['by']}, {intent['at']})"
    return " ".join([*filter(None, what), why])


def _troubles(view: dict[str, Any]) -> list[str]:
    """What --check complains of."""
    found = [] if view["ready"] else [str(view["warm_start"])]
    found += ["self-preservation holds the weights"] if view["self_preservation"] else []
    found += [f"gateway {each['id']} is not connected" for each in view["gateways"] if not each["connected"]]
    found += [
        f"gateway {each['id']} refuses what it is sent"
        for each in view["gateways"]
        if each["connected"] and not each["in_force"] and each["last_nack"]
    ]
    found += [
        f"site {each['site']} has no READY cell"
        for each in view["sites"]
        if each["cells"] and not each["ready"]
    ]
    return found
