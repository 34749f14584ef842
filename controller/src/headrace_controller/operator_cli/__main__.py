"""`python -m headrace_controller.operator_cli` is `headrace`."""

from __future__ import annotations

from headrace_controller.operator_cli.program import main

main()
