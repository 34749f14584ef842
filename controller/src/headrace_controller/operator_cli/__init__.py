"""`headrace`: what an operator asks of a controller."""

from __future__ import annotations

from headrace_controller.operator_cli.program import app, main

__all__ = ["app", "main"]
