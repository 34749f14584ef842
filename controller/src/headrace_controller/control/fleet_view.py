"""Makes the operator's snapshots from the control loop's state."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.view import CellView, EventView, FleetView, GatewayView, MemberView
from headrace_controller.inventory import CellView as InventoryCell
from headrace_controller.inventory import MemberView as InventoryMember
from headrace_controller.inventory import view_cells
from headrace_controller.lifecycle import CellState
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.server import XdsServer
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared.clock import Clock
from headrace_shared.net import HostPort
from headrace_shared.signals import NAMES

MIN_AGE_S: Final = 0.1
_FALLBACKS: Final[Mapping[int, str]] = {
    pb.HARDWARE_SOURCE_NVML: "nvml",
    pb.HARDWARE_SOURCE_NONE: "dcgm_fallback",
}
_SOURCES: Final[Mapping[int, str]] = {
    pb.HARDWARE_SOURCE_DCGM: "dcgm",
    pb.HARDWARE_SOURCE_NVML: "nvml",
    pb.HARDWARE_SOURCE_NONE: "none",
}


class Views:
    """Snapshots for the API and the metrics; one is reused for `MIN_AGE_S`, however many ask."""

    def __init__(self, settings: ControllerSettings, clock: Clock, loop: ControlLoop, xds: XdsServer) -> None:
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._xds = xds
        self._made_at = float("-inf")
        self._fleet: FleetView | None = None

    def fleet(self) -> FleetView:
        """The region now."""
        now = self._clock.now()
        if self._fleet is None or now - self._made_at >= MIN_AGE_S:
            self._fleet = self._make(now)
            self._made_at = now
        return self._fleet

    def forget(self) -> None:
        """Make the next snapshot anew: whoever changed something sees it done."""
        self._fleet = None

    def events(self, limit: int) -> tuple[EventView, ...]:
        """The newest changes of state, newest last."""
        wall = self._clock.wall_ns() / 1e9 - self._clock.now()
        return tuple(
            EventView(
                at=datetime.fromtimestamp(wall + entry.transition.at, UTC).isoformat(timespec="milliseconds"),
                cell=entry.cell_id,
                from_state=entry.transition.before.name if entry.transition.before else "",
                to_state=entry.transition.to.name,
                event=entry.transition.event.value,
                cause=entry.transition.cause,
            )
            for entry in list(self._loop.book.transitions)[-limit:]
        )

    def _make(self, now: float) -> FleetView:
        published = self._loop.published is not None
        return FleetView(
            region=self._settings.region,
            baseline=self._settings.baseline or "",
            published=published,
            warm_start="weights are published"
            if published
            else "waiting for agents; Envoys keep what they hold",
            self_preservation=self._loop.self_preservation,
            gateways=tuple(self._gateway(gateway.id) for gateway in self._settings.gateways),
            cells=tuple(self._cell(cell) for cell in view_cells(self._loop.fleet, now)),
        )

    def _gateway(self, gateway_id: str) -> GatewayView:
        status = self._xds.status()[gateway_id]
        return GatewayView(
            id=gateway_id,
            connected=status.connected,
            streams=status.streams,
            pushes=status.pushes,
            nacks=status.nacks,
            last_nack=status.last_nack.message if status.last_nack else "",
            versions={name: each.version for name, each in status.types.items()},
        )

    def _cell(self, cell: InventoryCell) -> CellView:
        facts = cell.facts
        pressures, contributions, signals = self._scores(facts.cell_id)
        life = self._loop.book.life(facts.cell_id)
        return CellView(
            id=facts.cell_id,
            node=facts.node,
            site=facts.site,
            address=str(HostPort(facts.host, facts.port)),
            engine=f"{facts.engine_kind} {facts.engine_version}".strip(),
            models=facts.model_ids,
            state=CellState(cell.state).name,
            state_number=cell.state,
            state_since_s=cell.state_age_s or 0.0,
            cause=life.cause,
            pressure=max(pressures.values(), default=None),
            pressures=pressures,
            weights=self._loop.weights_of(facts.cell_id),
            signals=signals if signals else _raw(cell),
            contributions=contributions,
            fallback=_fallback(cell),
            telemetry_lost=cell.telemetry_lost,
            heartbeat_age_s=cell.heard_age_s,
            in_flight=cell.in_flight,
            error_rate=self._error_rate(facts.cell_id),
            requests={kind: int(count) for kind, count in cell.evidence.items()},
            members=tuple(_member(member) for member in cell.members),
            member_lost=cell.member_lost,
        )

    def _scores(
        self, cell_id: str
    ) -> tuple[dict[str, float], dict[str, float | None], dict[str, float | None]]:
        """Pressure by gateway, and each signal's raw value and contribution at the first gateway."""
        scored = self._loop.pressures
        row = self._loop.fleet.get(cell_id)
        if scored is None or row is None or row >= scored.pressure.shape[1]:
            return {}, {}, {}
        by_gateway = {
            gateway: float(scored.pressure[number, row])
            for number, gateway in enumerate(self._loop.fleet.gateways)
            if scored.pressure[number, row] == scored.pressure[number, row]
        }
        shares = scored.explain(0, row)
        return (
            by_gateway,
            {share.name: _known(share.contribution) for share in shares},
            {share.name: _known(share.raw) for share in shares},
        )

    def _error_rate(self, cell_id: str) -> float | None:
        scored = self._loop.pressures
        row = self._loop.fleet.get(cell_id)
        if scored is None or row is None or row >= len(scored.error_estimate):
            return None
        return _known(float(scored.error_estimate[row]))


def _fallback(cell: InventoryCell) -> str:
    """What is missing of the cell's hardware figures; the graver where two things are."""
    if cell.hardware_partial:
        return "partial"
    return _FALLBACKS.get(cell.hardware_source, "")


def _member(member: InventoryMember) -> MemberView:
    return MemberView(
        node=member.node,
        lost=member.lost,
        heard_age_s=member.heard_age_s,
        hardware_source=_SOURCES.get(member.hardware_source, ""),
        gpus=tuple(gpu.uuid for gpu in member.gpus),
    )


def _known(value: float | None) -> float | None:
    return None if value is None or value != value else value


def _raw(cell: InventoryCell) -> dict[str, float | None]:
    """Signals of a cell that no tick has scored yet."""
    values: Mapping[str, float] = cell.signals
    path = next(iter(cell.paths.values()), None)
    network = {"rtt_ms": path.rtt_ms, "jitter_ms": path.jitter_ms} if path else {}
    return {name: values.get(name, network.get(name)) for name in NAMES}
