"""What a stranger is told: where to look while a run goes on, and what to do after it."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

from headrace_lab.demo.fleet import Fleet


def beside(name: str, python: str = sys.executable, here: str = "") -> str:
    """How to call the program `name` that stands beside this Python, from this directory."""
    path = Path(python).parent / name
    near = os.path.relpath(path, here or os.getcwd())
    return shlex.quote(str(path) if near.startswith("..") else near)


def where_to_look(fleet: Fleet, seconds: float) -> list[str]:
    """The addresses of a run, and what they are good for; they live as long as its load."""
    headrace = beside("headrace")
    body = f'{{"model": "{fleet.model}", "prompt": "hello", "max_tokens": 8}}'
    request = f"{fleet.gateway_url}/v1/completions -H 'content-type: application/json' -d '{body}'"
    return [
        f"for the next {seconds:g} s:",
        f"  the page      {fleet.api_url}/",
        f"  the terminal  {headrace} top --url {fleet.api_url}",
        f"  why a weight  {headrace} explain {fleet.cells[0].id} --url {fleet.api_url}",
        f"  a request     curl {request}",
    ]


def what_next(seconds: float) -> list[str]:
    """What to do after a run that worked."""
    longer = max(600, round(seconds * 10))
    return [
        "what next:",
        f"  make demo SECONDS={longer}   leaves time to look at the page and at headrace top",
        "  docs/install.md         on your own GPU hosts",
        "  docs/gateways.md        with an Envoy that you have",
        "  docs/cli.md             what the headrace command can do",
    ]


def what_to_check(kept: str) -> list[str]:
    """What to do after a run that did not work; `kept` is where its logs are."""
    return [
        "what next:",
        f"  look into {kept}: each program's log has its name",
        "  a busy machine fails on times: make demo RPS=2 asks for less",
        "  make demo SEED=2 sends another load and kills another engine",
    ]
