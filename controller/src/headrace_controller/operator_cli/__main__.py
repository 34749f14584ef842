"""`python -m headrace_controller.operator_cli` is `headrace`."""

from __future__ import annotations

from headrace_controller.operator_cli.entry import main

main()
