"""`check`, carried out: every source at once, within a bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace_agent import settings as settings_module
from headrace_agent.collectors.names import Resolver
from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.network.rights import find_right
from headrace_agent.commands.check import report
from headrace_agent.commands.check.controllers import check_controller
from headrace_agent.commands.check.engines import judge_engine
from headrace_agent.commands.check.findings import Finding, Level, arrange, gravest
from headrace_agent.commands.check.hardware import judge_hardware
from headrace_agent.commands.check.network import judge_paths, judge_right
from headrace_agent.commands.check.observe import Look, Observation, quiet
from headrace_agent.commands.check.own import check_listen, judge_config
from headrace_agent.commands.console import console, print_json
from headrace_agent.commands.discover.propose import propose
from headrace_agent.commands.discover.run import look_around
from headrace_agent.commands.errors import CommandError, said_clearly
from headrace_agent.commands.loop import leave, run
from headrace_agent.settings import AgentSettings
from headrace_shared import log
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.config import ConfigError, parse
from headrace_shared.tls import TlsError

CONTROLLER_S: Final = 3.0
# Over the time of looking: for collectors to close, and for what was asked beside it.
SLACK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a check is to do. `wait_s`: seconds to look at the sources."""

    gateways: tuple[GatewayTarget, ...] = ()
    wait_s: float = 4.0
    warm_up: bool = False


def check_config(
    config: Path | None, gateways: Sequence[str], wait_s: float, warm_up: bool, as_json: bool
) -> None:
    """`check`; ends the program with its exit code."""
    with said_clearly():
        log.configure("error")
        asked = Asked(tuple(map(read_gateway, gateways)), wait_s, warm_up)
        with console(stderr=True).status(f"looking at every source for {wait_s:g} s"):
            settings, proposed = find_settings(config)
            observation, findings = _run(settings, asked, proposed)
        if as_json:
            print_json(report.as_json(observation, findings))
        else:
            report.show(console(), observation, findings)
        leave(1 if gravest(findings) is Level.ERROR else 0)


def read_gateway(text: str) -> GatewayTarget:
    """A gateway as HOST, HOST:PORT or [V6]:PORT; without a port, only ICMP can measure its path."""
    host, port = text, 0
    if text.startswith("[") or text.count(":") == 1:
        head, _, tail = text.rpartition(":")
        host = head.removeprefix("[").removesuffix("]")
        port = int(tail) if tail.isascii() and tail.isdigit() else -1
    if not host or not 0 <= port < 65536 or len(host) > 253:
        raise CommandError(f"--gateway: {text!r} is no gateway; write HOST or HOST:PORT, as in 10.0.0.5:443")
    return GatewayTarget(text, host, port)


async def examine(
    settings: AgentSettings, asked: Asked, clock: Clock, proposed: bool = False
) -> tuple[Observation, list[Finding]]:
    """Look at everything that a config names; the gravest finding comes first.

    Of a proposal, what its operator has yet to fill in is let be. Raises TlsError where an engine's TLS
    files cannot be used.
    """
    resolver = Resolver(clock)
    controllers = () if proposed else settings.controllers
    look = Look(quiet(settings, asked.warm_up), asked.gateways, clock)
    async with asyncio.TaskGroup() as group:
        observing = group.create_task(look.observe(asked.wait_s), name="observe")
        listening = group.create_task(check_listen(settings, clock), name="metrics_listen")
        talks = [
            group.create_task(
                check_controller(each, resolver, CONTROLLER_S, clock), name=f"controller {each.address}"
            )
            for each in controllers
        ]
    observation = observing.result()
    findings = [*judge_config(settings, proposed), judge_right(settings.network, find_right())]
    for cell in observation.cells:
        findings += judge_engine(cell, asked.warm_up)
        findings += judge_hardware(cell.cell.id, cell.cell.gpus, cell.hardware, settings.hardware)
    for member in settings.members:
        findings += judge_hardware(
            member.cell, member.gpus, observation.members[member.cell], settings.hardware
        )
    findings += judge_paths(observation.paths)
    for talk in (listening, *talks):
        findings += talk.result()
    return observation, arrange(findings)


def find_settings(config: Path | None) -> tuple[AgentSettings, bool]:
    """The settings to check, and whether they are a proposal for what is on this host.

    Raises CommandError where there are none that can be used.
    """
    try:
        if config is not None:
            return settings_module.load(config), False
        host = look_around("")
        if not host.engines:
            raise CommandError("no engine answers on this host; give --config FILE")
        return parse(propose(host), AgentSettings, "what was found here"), True
    except ConfigError as trouble:
        raise CommandError(str(trouble)) from trouble


def _run(settings: AgentSettings, asked: Asked, proposed: bool) -> tuple[Observation, list[Finding]]:
    async def main() -> tuple[Observation, list[Finding]]:
        async with asyncio.timeout(asked.wait_s + SLACK_S):
            return await examine(settings, asked, SystemClock(), proposed)

    try:
        return run(main())
    except TlsError as trouble:
        raise CommandError(str(trouble)) from trouble
    except TimeoutError as trouble:
        raise CommandError("the check did not end in time; something on this host hangs", code=1) from trouble
