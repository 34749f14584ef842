"""Writes docs/lifecycle.md from the transition table: `python -m headrace_controller.lifecycle`."""

import sys

from headrace_controller.lifecycle import render_table

sys.stdout.write(render_table())
