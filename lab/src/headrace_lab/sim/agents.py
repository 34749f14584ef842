"""A simulated agent: what the real one would say of the cells of its node, from the same figures."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from headrace_agent.collectors.app.pages.counters import SlidingWindow
from headrace_agent.settings import EngineSettings
from headrace_lab.cell.buckets import TTFT
from headrace_lab.gpu.model import GpuFigures
from headrace_lab.sim.cells import Condition, SimCell
from headrace_lab.sim.paths import SitePath
from headrace_pb.v1 import telemetry_pb2 as pb

GATEWAY: Final = "gw"
SERVED_MS: Final = 3_600_000
"""How long engines are said to have served when the simulation begins: the fleet is adopted as it is."""
BOUNDS: Final = (*TTFT, math.inf)
TTFT_WINDOW_S: Final = float(EngineSettings().ttft_window_s)

_STATES: Final = {
    Condition.SERVING: pb.ENGINE_STATE_SERVING,
    Condition.DOWN: pb.ENGINE_STATE_DOWN,
    Condition.HUNG: pb.ENGINE_STATE_HUNG,
    Condition.LOADING: pb.ENGINE_STATE_LOADING,
}


def quantile(q: float, counts: Sequence[float]) -> float | None:
    """What the agent's own `quantile` gives for cumulative `counts` by BOUNDS, which are in order and
    rise here: there is no time for a general one in each beat. None without samples."""
    if not counts or counts[-1] <= 0:
        return None
    rank = q * counts[-1]
    at = bisect_left(counts, rank)
    if at == len(BOUNDS) - 1:
        return BOUNDS[-2]
    low, below = (BOUNDS[at - 1], counts[at - 1]) if at else (0.0, 0.0)
    return low + (BOUNDS[at] - low) * ((rank - below) / (counts[at] - below))


class _Cell:
    """What the agent keeps of one cell."""

    def __init__(self, cell: SimCell) -> None:
        self.cell = cell
        self.said = cell.condition
        """The condition that the agent has noticed."""
        self.since: float | None = None
        """Since when it serves; None = since before the simulation."""
        self.exporter = True
        self._ttft = SlidingWindow(TTFT_WINDOW_S)
        self._requests = SlidingWindow(TTFT_WINDOW_S)

    def restart(self, now: float) -> None:
        """The engine is a new process: its counters begin anew."""
        self._ttft.restart()
        self._requests.restart()
        self.since = now

    def beat(self, now: float) -> pb.CellBeat:
        """Its part of a beat."""
        cell, totals = self.cell, self.cell.totals
        serving = self.said is Condition.SERVING
        beat = pb.CellBeat(
            cell_id=cell.plan.id,
            engine_state=_STATES[self.said],
            serving_ms=(SERVED_MS if self.since is None else int((now - self.since) * 1e3)) if serving else 0,
            requests=pb.RequestTotals(
                ok=totals["ok"],
                client_errors=totals["client_errors"],
                throttled=totals["throttled"],
                server_errors=totals["server_errors"],
            ),
        )
        stats = cell.engine.stats(now)
        gpu = cell.look(now, stats)
        signals = beat.signals
        if serving:
            signals.queue_depth, signals.kv_fill = stats.waiting, stats.kv_fill
            beat.in_flight = stats.running + stats.waiting
            beat.work.prompt_tokens, beat.work.generated_tokens = stats.prompt_tokens, stats.generation_tokens
            beat.work.cached_tokens = stats.prefix_hits
            self._ttft.push(cell.ttft_cumulative, now)
            p95 = quantile(0.95, self._ttft.delta())
            if p95 is not None:
                signals.ttft_p95_s = p95
            failed = totals["client_errors"] + totals["server_errors"]
            self._requests.push((failed, failed + totals["ok"]), now)
            delta = self._requests.delta()
            if delta and delta[1] > 0:
                signals.error_rate = delta[0] / delta[1]
        if self.exporter:
            _hardware(beat, gpu, cell)
        else:
            beat.hardware_source = pb.HARDWARE_SOURCE_NONE
        return beat


def _hardware(beat: pb.CellBeat, gpu: GpuFigures, cell: SimCell) -> None:
    signals = beat.signals
    signals.gpu_util = gpu.gpu_util / 100
    signals.vram_util = gpu.used_mib / (gpu.used_mib + gpu.free_mib)
    signals.compute_active, signals.memory_bw_util = gpu.tensor_active, gpu.dram_active
    beat.hardware_source = pb.HARDWARE_SOURCE_DCGM
    beat.compute_measure = pb.COMPUTE_MEASURE_TENSOR
    beat.hardware.temperature_c = gpu.temperature_c
    beat.hardware.thermal_margin_c = gpu.thermal_margin_c
    beat.hardware.power_w = gpu.power_w
    beat.hardware.power_limit_w = cell.profile.gpu.limit_w
    beat.hardware.clock_event_reasons = gpu.clock_event_reasons
    beat.hardware.pcie_replays = gpu.pcie_replays
    beat.hardware.ecc_correctable = gpu.ecc_correctable
    if gpu.last_xid:
        beat.hardware.last_xid = gpu.last_xid


class SimAgent:
    """The agent of one node, which is a whole site's. Figures are read at the moment of a beat."""

    def __init__(self, site: str, cells: Sequence[SimCell], path: SitePath) -> None:
        self.site = site
        self.node = f"{site}-node"
        self.path = path
        self.dark = False
        self._cells = {cell.plan.id: _Cell(cell) for cell in cells}

    @property
    def cell_ids(self) -> tuple[str, ...]:
        return tuple(self._cells)

    def hello(self, incarnation: int, addresses: dict[str, tuple[str, int]], model: str) -> pb.Hello:
        """Who it is, and the static facts of its cells."""
        return pb.Hello(
            node=self.node,
            site=self.site,
            agent_version="sim",
            incarnation=incarnation,
            cells=[
                pb.CellFacts(
                    cell_id=name,
                    address=pb.Address(host=addresses[name][0], port=addresses[name][1]),
                    engine_kind="vllm",
                    health_path="/health",
                    models=[pb.ModelFacts(id=model, max_model_len=each.cell.plan.max_model_len)],
                )
                for name, each in self._cells.items()
            ],
        )

    def telemetry(self, now: float) -> pb.Telemetry:
        """A full beat; `seq` is left to the sender."""
        estimate = self.path.echo(now)
        path = pb.PathBeat(gateway=GATEWAY, method=pb.PATH_METHOD_ICMP, age_ms=0)
        if estimate.rtt_ms is not None:
            path.rtt_ms = estimate.rtt_ms
        if estimate.jitter_ms is not None:
            path.jitter_ms = estimate.jitter_ms
        if estimate.loss is not None:
            path.loss = estimate.loss
        return pb.Telemetry(cells=[each.beat(now) for each in self._cells.values()], paths=[path])

    def notice(self, cell_id: str, condition: Condition, now: float) -> None:
        """The agent sees that a cell's engine is in another condition."""
        each = self._cells[cell_id]
        if condition is Condition.SERVING and each.said is not Condition.SERVING:
            each.restart(now)
        each.said = condition

    def silence_exporter(self, cell_id: str, silent: bool) -> None:
        """A cell's GPU figures are lost, or come again."""
        self._cells[cell_id].exporter = not silent
