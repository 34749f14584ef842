"""A config for what was found, with comments for its operator. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Final

from headrace_agent.commands.discover.found import GpuSeen, Host, Placed
from headrace_agent.commands.discover.given import Given
from headrace_agent.commands.placeholders import CONTROLLER, SITE
from headrace_agent.settings import AgentSettings
from headrace_shared.config import parse
from headrace_shared.net import HostPort

METRICS_LISTEN: Final = "127.0.0.1:9464"
TO_FILL_IN: Final = "FILL IN"
_PLAIN: Final = re.compile(r"^[A-Za-z][A-Za-z0-9._/-]*$")
_WORDS: Final = ("yes", "no", "on", "off", "true", "false", "null", "y", "n")


def propose(host: Host, given: Given | None = None) -> str:
    """The config as YAML. Raises headrace_shared.config.ConfigError where it would not load."""
    lines = list(_lines(host, given or Given()))
    text = "\n".join([*_head(any(TO_FILL_IN in line for line in lines)), *lines]) + "\n"
    parse(text, AgentSettings, "the proposed config")
    return text


def node_name(hostname: str) -> str:
    """A host's name as a config takes it."""
    return re.sub(r"[^A-Za-z0-9._/-]", "-", hostname).lstrip("._/-")[:128] or "node-1"


def _head(to_fill_in: bool) -> Iterator[str]:
    first = f"Fill in what says {TO_FILL_IN}, then try it" if to_fill_in else "Try it"
    yield f"# What `headrace-agent discover` found on this host. {first}:"
    yield "#   headrace-agent check --config THIS_FILE"


def _lines(host: Host, given: Given) -> Iterator[str]:
    yield f"node: {_scalar(host.node)}   # unique in the fleet; with mutual TLS, the name in the certificate"
    yield from _site(given)
    yield from _controllers(given)
    yield "cells:"
    shared = _shared(host.engines)
    for placed in host.engines:
        yield from _cell(host, placed, shared)
    yield from _unused(host)
    yield from _hardware(host)
    yield f"metrics_listen: {METRICS_LISTEN}   # the agent's own /metrics and /healthz"
    for note in host.notes:
        yield f"# Not taken: {_comment(note)}"


def _site(given: Given) -> Iterator[str]:
    about = "the place with its own network path"
    if given.site:
        yield f"site: {_scalar(given.site)}   # {about}"
    else:
        yield f"site: {SITE}   # {TO_FILL_IN}: {about}"


def _controllers(given: Given) -> Iterator[str]:
    about, tls = "a controller's listen.telemetry", "/etc/headrace/tls"
    yield "controllers:"
    for address in given.controllers or (CONTROLLER,):
        to_fill_in = "" if given.controllers else f"{TO_FILL_IN}: "
        yield f"  - address: {_scalar(str(address))}   # {to_fill_in}{about}; one entry each"
        yield f"    # tls: {{ca: {tls}/ca.pem, cert: {tls}/node.pem, key: {tls}/node.key}}"


def _cell(host: Host, placed: Placed, shared: frozenset[str]) -> Iterator[str]:
    engine, port = placed.engine, placed.engine.candidate.port
    yield f"  # {_comment(_title(placed))}"
    yield f"  - id: {_scalar(f'{host.node[:120]}-{port}')}"
    yield f"    url: {_scalar(engine.candidate.url)}   # where this agent reaches it"
    yield from _advertise(host, placed)
    if engine.metrics_url:
        yield f"    metrics_url: {_scalar(engine.metrics_url)}"
    if not engine.shows_metrics:
        yield f"    kind: {engine.kind}   # it shows no metrics: switch them on, or its signals stay absent"
    if engine.wants_key:
        yield "    # api_key_file: /etc/headrace/engine.key   # FILL IN: its API wants a key"
    if not placed.gpus:
        yield "    # gpus: []   # FILL IN: nothing tells which are under it; those of this host stand below"
        return
    note = placed.basis
    if shared & set(placed.gpus):
        note += "; another engine runs there too"
    yield f"    gpus: [{', '.join(map(_scalar, placed.gpus))}]   # {note}"


def _title(placed: Placed) -> str:
    engine = placed.engine
    models = ", ".join(
        f"{each.id} ({each.max_model_len} tokens)" if each.max_model_len else each.id
        for each in engine.models[:4]
    )
    more = f" and {len(engine.models) - 4} more" if len(engine.models) > 4 else ""
    serves = f" serves {models}{more}" if models else ""
    return " ".join(filter(None, [engine.kind, engine.version])) + serves


def _advertise(host: Host, placed: Placed) -> Iterator[str]:
    """Where gateways reach it: its own address where it is bound to one, else this host's."""
    candidate = placed.engine.candidate
    bound = [each for each in candidate.listens if each not in ("0.0.0.0", "::")]
    everywhere = len(bound) < len(candidate.listens) or not candidate.listens
    outward = [each for each in bound if not HostPort(each, 0).is_loopback]
    address = host.address if everywhere else next(iter(outward), "")
    if address:
        yield f"    advertise: {_scalar(str(HostPort(address, candidate.port)))}   # where gateways reach it"
    elif everywhere:
        yield "    # advertise:   # FILL IN: this host's address as gateways see it"
    else:
        yield "    # It listens on loopback only, where no gateway of another host reaches it: start it with"
        yield "    # --host 0.0.0.0, and set advertise to this host's address."


def _shared(engines: Sequence[Placed]) -> frozenset[str]:
    every = [gpu for placed in engines for gpu in placed.gpus]
    return frozenset(gpu for gpu in every if every.count(gpu) > 1)


def _unused(host: Host) -> Iterator[str]:
    used = {gpu for placed in host.engines for gpu in placed.gpus}
    for gpu in host.gpus:
        names = [f"{gpu.uuid}:{each.instance}" for each in gpu.instances] or [gpu.uuid]
        free = [name for name in names if name not in used]
        if free:
            yield f"# GPU not placed: {', '.join(free)} ({_comment(_describe(gpu))})"


def _describe(gpu: GpuSeen) -> str:
    memory = f", {gpu.memory_mib} MiB" if gpu.memory_mib else ""
    index = "" if gpu.index is None else f"index {gpu.index}, "
    return f"{index}{gpu.name or 'name unknown'}{memory}"


def _hardware(host: Host) -> Iterator[str]:
    if host.dcgm_url:
        yield "hardware:"
        yield f"  dcgm_url: {_scalar(host.dcgm_url)}   # run it with -c 500: its default is 30 s"
        return
    yield "# No DCGM exporter was found, so NVML gives the GPU figures. Better: run one with -c 500, and set"
    yield "# hardware:"
    yield "#   dcgm_url: http://127.0.0.1:9400/metrics"


def _scalar(text: str) -> str:
    """A YAML scalar that is read back as this very text."""
    bare = _PLAIN.match(text) and text.lower() not in _WORDS
    return text if bare or re.match(r"^https?://[A-Za-z0-9.:/-]+$", text) else json.dumps(text)


def _comment(text: str) -> str:
    """Other programs' words, fit for a comment."""
    return "".join(sign if sign.isprintable() else " " for sign in text)[:200]
