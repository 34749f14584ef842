"""A controller that answers what a test says, at once."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_controller.control.view import CellView
from headrace_controller.operator_cli.top.rows import Look, look
from headrace_controller.operator_cli.top.source import SourceError, Story
from tests.support import fleet_pages as pages


class FakeSource:
    """Implements top.source.Source. `fails` is why nothing answers; `acts` is what was asked."""

    url = "http://controller:18002"

    def __init__(self, cells: Sequence[CellView] = ()) -> None:
        self.cells = list(cells)
        self.fails = ""
        self.acts: list[tuple[str, str, str]] = []
        self.explanations: list[dict[str, object]] = []

    def look(self) -> Look:
        self._answers()
        return look(pages.status(*self.cells), pages.page(*self.cells)["cells"])

    def story(self, cell: str) -> Story:
        self._answers()
        (found,) = (each for each in self.cells if each.id == cell)
        return Story(pages.detail(found), self.explanations)

    def drain(self, cell: str, cause: str) -> str:
        return self._act("drain", cell, cause, "DRAINING")

    def undrain(self, cell: str, cause: str) -> str:
        return self._act("undrain", cell, cause, "READY")

    def _act(self, what: str, cell: str, cause: str, state: str) -> str:
        self._answers()
        self.acts.append((what, cell, cause))
        return state

    def _answers(self) -> None:
        if self.fails:
            raise SourceError(self.fails)
