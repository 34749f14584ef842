"""Measures the path to every gateway, one task a path, one echo after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headrace_agent.collectors import moments
from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.grid import AWAKE_S, STEP_S, next_due
from headrace_agent.collectors.names import CACHE_S, Resolver, UnresolvedError
from headrace_agent.collectors.network.echo import Echo, IcmpProber, Outcome, Prober, TcpProber
from headrace_agent.collectors.network.pace import SPACING_S, Pace
from headrace_agent.collectors.network.path import Condition, GatewayTarget, Path
from headrace_agent.collectors.network.policy import probe, probe_preferred
from headrace_agent.collectors.readings import PathReading
from headrace_agent.settings import NetworkSettings
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tasks import Supervisor

__all__ = ["GatewayTarget", "PathCollector"]

MAX_GATEWAYS = 256
# Paths whose echoes share a lap: as many steps of the grid as the usual interval has.
STEPS = 5
# The gateway behind a dead path may have moved: its name is asked for again sooner.
DEAD_NAME_S = 15.0


class PathCollector:
    """The paths to the gateways that `set_gateways` names, from now until it names others.

    `probers` come in order of preference; without them the settings' method decides.
    """

    def __init__(
        self,
        settings: NetworkSettings,
        clock: Clock,
        *,
        probers: Sequence[Prober] | None = None,
        resolver: Resolver | None = None,
        mishaps: Mishaps | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._mishaps = mishaps if mishaps is not None else Mishaps()
        self._probers = _probers(settings, clock) if probers is None else tuple(probers)
        self._resolver = resolver if resolver is not None else Resolver(clock)
        self._log = log.get("network")
        self._paths: dict[str, Path] = {}
        self._running: dict[str, tuple[Path, asyncio.Task[Any]]] = {}
        self._changed = asyncio.Event()
        self._pace = Pace(clock)

    def set_gateways(self, gateways: Sequence[GatewayTarget]) -> None:
        """Measure these from now on. A gateway that stays the same keeps its figures."""
        targets: dict[str, GatewayTarget] = {}
        for gateway in gateways:
            targets.setdefault(gateway.id, gateway)
        if len(targets) > MAX_GATEWAYS:
            self._log.warning("too many gateways", named=len(targets), measured=MAX_GATEWAYS)
            targets = dict(list(targets.items())[:MAX_GATEWAYS])
        self._paths = {id_: self._path(target) for id_, target in targets.items()} if self._probers else {}
        self._changed.set()

    async def run(self) -> None:
        """Measure until cancelled."""
        async with Supervisor() as tasks:
            try:
                while True:
                    self._changed.clear()
                    await self._reconcile(tasks)
                    await tasks.wait(self._changed)
            finally:
                self._running.clear()

    def readings(self, now: float) -> tuple[PathReading, ...]:
        """One reading a gateway, in the order they were named."""
        return tuple(path.reading(now) for path in self._paths.values())

    def _path(self, target: GatewayTarget) -> Path:
        known = self._paths.get(target.id)
        if known is not None and known.target == target:
            return known
        return Path(target, self._probers[0].method, self._settings.interval_s, self._settings.timeout_s)

    async def _reconcile(self, tasks: Supervisor) -> None:
        """Stop the tasks of paths that are gone, start those of new ones."""
        gone = [id_ for id_, (path, _) in self._running.items() if self._paths.get(id_) is not path]
        stopped = [self._running.pop(id_)[1] for id_ in gone]
        for task in stopped:
            task.cancel()
        await asyncio.gather(*stopped, return_exceptions=True)
        for place, (id_, path) in enumerate(self._paths.items()):
            if id_ not in self._running:
                self._running[id_] = (path, tasks.spawn(f"network path {id_}", self._watch(path, place)))

    async def _watch(self, path: Path, place: int) -> None:
        """Measure one path for ever; its place among the paths gives its moments on the grid."""
        offset_s, interval_s = offset(place), self._settings.interval_s
        await asyncio.sleep(offset_s % interval_s)
        part = f"network: path to {path.target.id}"
        while True:
            began = self._clock.now()
            address = path.address
            try:
                addresses = await self._resolver.resolve(
                    path.target.host, DEAD_NAME_S if path.dead else CACHE_S
                )
                address = path.choose(addresses)
                echo = await self._measure(path, address)
                self._mishaps.clear(part)
            except UnresolvedError as error:
                echo = Echo(Outcome.UNABLE, path.method, detail=str(error))
            except Exception as error:  # noqa: BLE001 - one path's trouble stays its own
                echo = Echo(Outcome.UNABLE, path.method, detail=self._mishaps.note(part, error))
            if path.take(echo, address, self._clock.now()):
                self._tell(path, echo)
            due = next_due(began, interval_s, offset_s)
            await moments.sleep(max(due - self._clock.now(), interval_s / 10))

    async def _measure(self, path: Path, address: str) -> Echo:
        probers, port, timeout_s = self._probers, path.target.port, self._settings.timeout_s
        await self._pace.turn()
        if path.return_due(self._clock.now()):
            echo = await probe_preferred(probers, address, port, timeout_s)
            if echo is not None:
                return echo
        return await probe(probers, path.method, path.dead, address, port, timeout_s)

    def _tell(self, path: Path, echo: Echo) -> None:
        bad = path.condition in (Condition.DEAD, Condition.UNABLE)
        tell = self._log.warning if bad else self._log.info
        tell(
            "path changed",
            gateway=path.target.id,
            host=path.target.host,
            address=path.address,
            condition=path.condition.value,
            method=path.method.value,
            detail=echo.detail,
        )


def offset(place: int) -> float:
    """Where on the grid of its interval the path at this place is measured, s: apart from the others,
    and when the agent is awake, as long as there is room for that."""
    lap, step = divmod(place, STEPS)
    return AWAKE_S + step * STEP_S + lap * SPACING_S


def _probers(settings: NetworkSettings, clock: Clock) -> tuple[Prober, ...]:
    icmp, tcp = IcmpProber(clock), TcpProber(clock)
    return {"auto": (icmp, tcp), "icmp": (icmp,), "tcp": (tcp,), "off": ()}[settings.method]
