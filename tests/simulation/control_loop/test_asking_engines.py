"""Where the controller asks the engine of a silent agent, from its facts on, also after a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_controller.control.confirmation import Question
from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleet, KeptFleetStore
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import config
from headrace_shared.net import HostPort
from tests.support.clock import FakeClock

SETTINGS = """
gateways: [{id: g, host: 127.0.0.1}]
lifecycle: {barrier_s: 0.2}
"""


class Asked:
    """A control loop whose questions are noted."""

    def __init__(self, kept: KeptFleet | None = None) -> None:
        self.questions: list[Question] = []
        self.plan = Plan()
        self.clock = FakeClock()
        settings = config.parse(SETTINGS, ControllerSettings)
        self.loop = ControlLoop(settings, self.clock, Metrics(), self, kept)

    def publish(self, plan: Plan) -> None:
        self.plan = plan

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        self.questions.append(question)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return True

    def hello(self, **facts: object) -> None:
        cell = pb.CellFacts(
            cell_id="c1",
            address=pb.Address(host="10.0.0.1", port=8000),
            models=[pb.ModelFacts(id="m"), pb.ModelFacts(id="lora", base_model="m")],
            **facts,  # type: ignore[arg-type]
        )
        self.loop.hello(pb.Hello(node="n1", site="s", incarnation=1, cells=[cell]), self.clock.now())
        beat = pb.CellBeat(
            cell_id="c1",
            engine_state=pb.ENGINE_STATE_SERVING,
            serving_ms=600_000,
            signals=pb.Signals(kv_fill=0),
        )
        self.loop.telemetry("n1", pb.Telemetry(cells=[beat]), self.clock.now())

    def tick(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.loop.tick(self.clock.advance(0.05))


@pytest.mark.parametrize(
    ("facts", "path", "tls"),
    [
        ({}, "/health", False),
        ({"health_path": "/v2/health/ready"}, "/v2/health/ready", False),
        ({"health_path": "/v1/models", "tls": True}, "/v1/models", True),
    ],
)
def test_a_silent_agents_engine_is_asked_as_its_kind_wants_it(
    facts: dict[str, object], path: str, tls: bool, tmp_path: Path
) -> None:
    asked = Asked()
    asked.hello(**facts)
    asked.tick(1.5)
    expected = Question(HostPort("10.0.0.1", 8000), path, tls, ("m", "lora"))
    assert asked.questions[0] == expected
    kept = Keeper(KeptFleetStore(tmp_path, "default"), asked.loop, "default").snapshot()
    assert kept is not None
    # The one that starts after it knows as much before any agent is heard.
    again = Asked(KeptFleet.model_validate_json(kept.model_dump_json()))
    again.tick(1.5)
    assert again.questions[0] == expected


def test_an_agent_that_does_not_know_yet_takes_back_no_path() -> None:
    asked = Asked()
    asked.hello(health_path="/v1/models")
    asked.tick(0.3)
    asked.hello()
    asked.tick(1.5)
    assert asked.questions[0].path == "/v1/models"
    assert asked.plan.shape("m").health_path == "/v1/models"
