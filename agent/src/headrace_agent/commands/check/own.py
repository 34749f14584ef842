"""The config itself, and the agent's own port."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.commands.check.findings import Finding, error, ok, warn
from headrace_agent.commands.placeholders import LEFT, REMEDY, unfilled
from headrace_agent.settings import AgentSettings
from headrace_shared.clock import Clock
from headrace_shared.net import CannotListenError, HostPort, PortInUseError, require_free

ABOUT: Final = "config"
LISTEN: Final = "metrics_listen"
HEALTH_S: Final = 1.0


def judge_config(settings: AgentSettings, proposed: bool = False) -> Iterator[Finding]:
    """What can be loaded and is likely not meant; a proposal may hold words to fill in."""
    for field in () if proposed else unfilled(settings):
        yield error(ABOUT, f"{field} {LEFT}", REMEDY)
    for words in settings.warnings():
        what, _, remedy = words.partition("; ")
        yield warn(ABOUT, what, remedy)
    for cell in settings.cells:
        if cell.api_key_file is not None and _open_to_others(cell.api_key_file):
            path = cell.api_key_file
            yield warn(ABOUT, f"others may read the engine's key in {path}", f"chmod o= {path}")


def _open_to_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & stat.S_IROTH)
    except OSError:
        return False  # the engine's own finding says that it cannot be read


async def check_listen(settings: AgentSettings, clock: Clock) -> list[Finding]:
    """Whether the agent's own pages can be served, or an agent serves them already."""
    address = settings.metrics_listen
    if address is None:
        return [warn(LISTEN, "not set: nothing can watch the agent itself", "set it, as in 127.0.0.1:9464")]
    try:
        require_free(LISTEN, address)
    except PortInUseError as taken:
        node = await _node_at(address, clock)
        return [_judge_holder(settings.node, node, str(address), str(taken))]
    except CannotListenError as trouble:
        return [error(LISTEN, *_split(str(trouble)))]
    return [ok(LISTEN, f"{address} is free")]


def _judge_holder(own: str, node: str | None, address: str, taken: str) -> Finding:
    if node is None:
        return error(LISTEN, *_split(taken))
    if node != own:
        return warn(
            LISTEN, f"the agent of node {node} listens on {address}", "one agent a host is enough: end it"
        )
    return ok(LISTEN, f"the agent of {node} runs already, and listens on {address}")


def _split(words: str) -> tuple[str, str]:
    what, _, remedy = words.removeprefix(f"{LISTEN}: ").partition("; ")
    return what, remedy


async def _node_at(address: HostPort, clock: Clock) -> str | None:
    """The node of the agent that serves /healthz there; None where none does."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)
    url = f"http://{HostPort(host, address.port)}"
    client = EngineClient(Dialer(url, clock), url)
    try:
        answer = await client.get("/healthz", HEALTH_S)
        said: Any = json.loads(answer.body)
    except (CallError, ValueError, RecursionError):
        return None
    finally:
        client.close()
    node = said.get("node") if isinstance(said, dict) else None
    return node if isinstance(node, str) and "incarnation" in said else None
