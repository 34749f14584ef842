"""Carries out what the lifecycle asks for, by what the loop may do to the world."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Protocol

from headrace_controller.control.confirmation import HEALTH_PATH, Question
from headrace_controller.inventory import Fleet
from headrace_controller.lifecycle import (
    AskEngine,
    Forget,
    Instruction,
    NotifyDrained,
    Publish,
    TellAgentDrain,
    TellAgentUndrain,
)
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.net import HostPort

RTT_FACTOR: Final = 4.0


class Outside(Protocol):
    """What the loop may do to the world; every call returns at once."""

    def publish(self, plan: Plan) -> None:
        """Give every gateway the plan."""
        ...

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        """Ask an engine whether it lives; the answer comes back through `answered`."""
        ...

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        """Send a message to an agent; False when it is not connected."""
        ...


class Hands:
    """Carries instructions out. `on_publish(cell_id, cause)` hears that a cell comes into service or goes out
    of it, `on_forget(cell_id)` that one is gone for good."""

    def __init__(
        self,
        settings: ControllerSettings,
        fleet: Fleet,
        outside: Outside,
        on_publish: Callable[[str, str], None],
        on_forget: Callable[[str], None],
    ) -> None:
        self.settings = settings
        self._fleet = fleet
        self._outside = outside
        self._on_publish = on_publish
        self._on_forget = on_forget
        self._log = log.get("control")

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        """Carry all of them out, in their order."""
        for instruction in instructions:
            match instruction:
                case Publish(cell_id, cause):
                    self._on_publish(cell_id, cause)
                case AskEngine(cell_id):
                    self._ask(cell_id)
                case TellAgentDrain(cell_id, cause, deadline_s):
                    drain = pb.Drain(
                        cell_id=cell_id, cause=cause, deadline_ms=int((deadline_s or 0.0) * 1000)
                    )
                    self._direct(cell_id, pb.Directive(drain=drain))
                case TellAgentUndrain(cell_id):
                    self._direct(cell_id, pb.Directive(undrain=pb.Undrain(cell_id=cell_id)))
                case NotifyDrained(cell_id, requested_by, _, outcome):
                    self._log.info("drained", cell=cell_id, asked_by=requested_by, outcome=outcome)
                case Forget(cell_id):
                    self._log.info("forgotten", cell=cell_id)
                    self._on_forget(cell_id)

    def _ask(self, cell_id: str) -> None:
        row = self._fleet.row(cell_id)
        facts = self._fleet.facts_of(row)
        rtts = [rtt for rtt in self._fleet.last_rtt_ms[row].tolist() if rtt == rtt]
        least = self.settings.lifecycle.confirm_timeout_s
        self._outside.ask_engine(
            cell_id,
            Question(
                HostPort(facts.host, facts.port), facts.health_path or HEALTH_PATH, facts.tls, facts.model_ids
            ),
            max(least, RTT_FACTOR * max(rtts, default=0.0) / 1000.0),
        )

    def _direct(self, cell_id: str, directive: pb.Directive) -> None:
        node = self._fleet.facts_of(self._fleet.row(cell_id)).node
        if not self._outside.send(node, pb.ControllerMessage(directive=directive)):
            self._log.warning("agent is not connected; it is not told", node=node, cell=cell_id)
