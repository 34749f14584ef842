"""Who may look on as the control loop works."""

from __future__ import annotations

from headrace_controller.lifecycle import LoggedTransition
from headrace_controller.pressure import Alert, Pressures
from headrace_controller.projection import Intents, Projected
from headrace_pb.v1 import telemetry_pb2 as pb


class Witness:
    """Told of everything by the control loop, in order, on its event loop; what is not overridden is
    ignored. A witness returns at once, raises nothing, and changes nothing of what it is shown.
    Times are on the controller's monotonic clock, s.
    """

    def greeted(self, hello: pb.Hello, now: float) -> None:
        """A node said Hello; it is in the inventory now."""

    def told(self, node: str, telemetry: pb.Telemetry, now: float) -> None:
        """A beat is in the inventory now."""

    def changed(self, entry: LoggedTransition) -> None:
        """A cell's life has changed, its state or what goes with it."""

    def forgotten(self, cell_id: str, now: float) -> None:
        """A cell is gone for good."""

    def scored(self, pressures: Pressures, projected: Projected, now: float) -> None:
        """A tick has scored and projected."""

    def alerted(self, alert: Alert) -> None:
        """An early warning began or ended."""

    def withheld(self, on: bool) -> None:
        """Self-preservation began or ended."""

    def intended(self, intents: Intents, now: float) -> None:
        """Operators want something else of the weights."""
