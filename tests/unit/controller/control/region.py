"""A control loop with a few cells, under a clock that the test owns."""

from __future__ import annotations

from headrace_controller.admin.desk import Desk, Memory
from headrace_controller.control.confirmation import Question
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.server import XdsServer
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from tests.support.clock import FakeClock

SETTINGS = """\
region: r
gateways: [{id: gw-1, host: 127.0.0.1}, {id: gw-2, host: 127.0.0.2}]
lifecycle: {barrier_s: 0, ramp_s: 0}
"""


class Region:
    """One controller's inside; implements control.loop.Outside and does nothing there."""

    def __init__(self, more: str = "", clock: FakeClock | None = None) -> None:
        self.settings = config.parse(SETTINGS + more, ControllerSettings)
        self.clock = clock or FakeClock()
        self.metrics = Metrics()
        self.loop = ControlLoop(self.settings, self.clock, self.metrics, self, None)
        self.xds = XdsServer(self.clock, [gateway.id for gateway in self.settings.gateways])
        memory = Memory(self.settings, self.metrics)
        self.desk = Desk(self.settings, self.clock, self.loop, self.xds, self.metrics, memory)
        self.views, self.operators = self.desk.views, self.desk.operators

    def publish(self, plan: Plan) -> None:
        """Nobody is told."""

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        """Nobody is asked."""

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return False

    def close(self) -> None:
        """Write what is waiting, as a controller that ends does."""
        self.desk.close()

    def connect(self, *cells: str, node: str = "n1", site: str = "berlin") -> None:
        """A node says Hello."""
        facts = [
            pb.CellFacts(
                cell_id=cell,
                address=pb.Address(host="127.0.0.1", port=8000),
                engine_kind="vllm",
                engine_version="0.32.0",
                models=[pb.ModelFacts(id="m", max_model_len=4096)],
            )
            for cell in cells
        ]
        self.loop.hello(pb.Hello(node=node, site=site, incarnation=1, cells=facts), self.clock.now())

    def beat(self, cell: str, node: str = "n1", **more: object) -> None:
        """A beat of one serving cell; `more` are fields of CellBeat."""
        beat = pb.CellBeat(cell_id=cell, engine_state=pb.ENGINE_STATE_SERVING, serving_ms=600_000, **more)  # type: ignore[arg-type]
        path = pb.PathBeat(gateway="gw-1", rtt_ms=5.0, jitter_ms=0.5, age_ms=0)
        now = self.clock.now()
        self.loop.telemetry(node, pb.Telemetry(cells=[beat], paths=[path]), now)
        self.loop.alive(node, now)

    def tick(self, seconds: float = 0.2) -> None:
        """Let time pass, and tick."""
        self.loop.tick(self.clock.advance(seconds))
