"""What threads tell `top`: each is an event of its own, handled as `on_top_...`."""

from __future__ import annotations

from textual.message import Message

from headrace_controller.operator_cli.top.rows import Look
from headrace_controller.operator_cli.top.source import SourceError, Story


class Told(Message, namespace="top"):
    """A look, or why there is none."""

    def __init__(self, found: Look | SourceError) -> None:
        super().__init__()
        self.found = found


class Heard(Message, namespace="top"):
    """A cell's story, or why there is none."""

    def __init__(self, cell: str, found: Story | SourceError) -> None:
        super().__init__()
        self.cell, self.found = cell, found


class Done(Message, namespace="top"):
    """How an act went."""

    def __init__(self, said: str) -> None:
        super().__init__()
        self.said = said
