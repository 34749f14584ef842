"""`discover`, carried out: look, propose, print or write."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from headrace_agent.commands.console import console, plain, print_json
from headrace_agent.commands.discover.candidates import parse_ports
from headrace_agent.commands.discover.found import Host, Placed
from headrace_agent.commands.discover.given import Given, read_given
from headrace_agent.commands.discover.propose import TO_FILL_IN, propose
from headrace_agent.commands.discover.survey import survey
from headrace_agent.commands.errors import CommandError, said_clearly
from headrace_agent.commands.loop import run
from headrace_shared import log
from headrace_shared.clock import SystemClock
from headrace_shared.config import ConfigError

NOTHING: Final = 1
_NO_ENGINE: Final = (
    "no engine answers on this host's ports. Start one and run this again; if one runs, name its port with "
    "--ports, and run this as root, so that its processes can be seen"
)


def look_around(ports: str) -> Host:
    """This host. Raises CommandError."""
    only = parse_ports(ports) if ports else ()
    return run(survey(only, SystemClock()))


def discover(
    ports: str,
    site: str | None,
    controllers: Sequence[str],
    output: Path | None,
    force: bool,
    as_json: bool,
) -> None:
    """`discover`; ends the program with its exit code."""
    with said_clearly():
        log.configure("error")
        given = read_given(site, controllers)
        if output is not None and output.exists() and not force:
            raise CommandError(f"--output: {output} exists already; choose another, or add --force")
        with console(stderr=True).status("looking at this host"):
            host = look_around(ports)
        text = _proposal(host, given) if host.engines else ""
        if text and output is not None:
            _write(output, text, force)
            _say(host, output, TO_FILL_IN in text)
        if as_json:
            print_json(as_data(host, text))
        elif text and output is None:
            sys.stdout.write(text)
        if not text:
            raise CommandError("\n".join([_NO_ENGINE, *_seen(host)]), code=NOTHING)


def _proposal(host: Host, given: Given) -> str:
    try:
        return propose(host, given)
    except ConfigError as error:
        raise CommandError(f"what was found makes no config: {error}", code=NOTHING) from error


def as_data(host: Host, config: str) -> dict[str, Any]:
    """All that was found; `config` is the proposal, null where there is none."""
    return {
        "node": host.node,
        "address": host.address or None,
        "engines": [_engine(placed) for placed in host.engines],
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "name": gpu.name,
                "memory_mib": gpu.memory_mib,
                "instances": [f"{gpu.uuid}:{each.instance}" for each in gpu.instances],
            }
            for gpu in host.gpus
        ],
        "dcgm_url": host.dcgm_url or None,
        "notes": list(host.notes),
        "config": config or None,
    }


def _engine(placed: Placed) -> dict[str, Any]:
    engine = placed.engine
    return {
        "url": engine.candidate.url,
        "port": engine.candidate.port,
        "kind": engine.kind,
        "version": engine.version or None,
        "models": [{"id": each.id, "max_model_len": each.max_model_len} for each in engine.models],
        "shows_metrics": engine.shows_metrics,
        "metrics_url": engine.metrics_url or None,
        "pids": sorted(engine.pids),
        "gpus": list(placed.gpus),
        "gpus_by": placed.basis or None,
    }


def _seen(host: Host) -> list[str]:
    found = [f"  GPU {gpu.index}: {gpu.uuid} {gpu.name}" for gpu in host.gpus]
    exporter = [f"  DCGM exporter: {host.dcgm_url}"] if host.dcgm_url else []
    return [*found, *exporter, *(f"  {note}" for note in host.notes)]


def _write(path: Path, text: str, force: bool) -> None:
    """Write a new file, or, with `force`, in place of an old one; never half of it."""
    target = path if not force else path.with_name(f"{path.name}.new")
    try:
        with target.open("w" if force else "x", encoding="utf-8") as file:
            file.write(text)
        if force:
            target.replace(path)
    except OSError as error:
        raise CommandError(f"--output: {path}: {error.strerror or error}") from error


def _say(host: Host, path: Path, to_fill_in: bool) -> None:
    err = console(stderr=True)
    for placed in host.engines:
        names = ", ".join(placed.gpus) or "GPUs to fill in"
        err.print(plain(f"{placed.engine.candidate.url}: {placed.engine.kind}, on {names}"))
    first = f"Fill in what says {TO_FILL_IN}, then" if to_fill_in else "Try it"
    err.print(plain(f"{path} is written. {first}: headrace-agent check --config {path}"))
