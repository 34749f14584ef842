"""The program: its commands, and what all of them have in common."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace_controller import __version__
from headrace_controller.gateway_check.commands import app as gateway_app
from headrace_controller.operator_cli import acts, fleet, offline, picker, watch
from headrace_controller.operator_cli.terminal import write

app = typer.Typer(
    name="headrace",
    help="Ask a Headrace controller how its cells are and why, and tell it what to do.\n\n"
    "Every command takes --json for scripts. Exit codes: 0 done; 1 the controller said no, or what was "
    "waited for did not happen; 2 wrong usage, or a file that is no use; 3 the controller cannot be reached, "
    "or something else answers; 4 not let in: a token is missing, not known, or of a viewer.",
    epilog="""\b
Try it:
  headrace status
  headrace top
  headrace cells --json
  headrace explain CELL
  headrace drain CELL --cause "new driver" --wait && reboot
The controller is that of --url or of the variable HEADRACE_URL, the token that of
--token or of HEADRACE_TOKEN.
""",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
fleet.register(app)
watch.register(app)
acts.register(app)
offline.register(app)
picker.register(app)
app.add_typer(gateway_app, name="gateway")


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False) -> None:
    if version:
        write(f"headrace {__version__}\n")
        raise typer.Exit
