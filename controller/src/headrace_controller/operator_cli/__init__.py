"""`headrace`: what an operator asks of a controller."""

from __future__ import annotations

from headrace_controller.operator_cli.entry import main

__all__ = ["main"]
