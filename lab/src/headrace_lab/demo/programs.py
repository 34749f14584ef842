"""How each program of the demonstration is started and when it counts as ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

from headrace_lab.demo import settings_files
from headrace_lab.demo.fleet import GATEWAY, HOST, Cell, Fleet, Site
from headrace_lab.stack.program import ON_THE_WAY, Spec, StackError, console_script

BOOTSTRAP_S = 120.0
LOADING_S = 2.0
ENGINE = ("--prefill-tokens-per-s", "6000", "--decode-ms", "25", "--bytes-per-token", "5.1")
"""Slow enough that ten requests a second show; 5.1 bytes are one word of the lab's prompts."""


def cell(fleet: Fleet, each: Cell) -> Spec:
    """A simulated cell."""
    command = (
        *(console_script("headrace-lab"), "cell"),
        *("--port", str(each.port), "--cell-id", each.id, "--model", fleet.model),
        *("--max-model-len", str(each.max_model_len), "--speed", str(each.speed)),
        *("--loading-seconds", str(LOADING_S), "--seed", str(each.port)),
        *ENGINE,
    )
    return Spec(f"cell {each.id}", command, (each.port,), f"{each.url}/health")


def exporter(site: Site) -> Spec:
    """A simulated GPU exporter whose figures follow its site's cells."""
    gpus = [part for each in site.cells for part in ("--gpu", f"{each.gpu}={each.url}")]
    command = (console_script("headrace-lab"), "dcgm", "--port", str(site.exporter_port), *gpus)
    url = f"http://{HOST}:{site.exporter_port}/health"
    return Spec(f"exporter {site.name}", command, (site.exporter_port,), url)


def agent(fleet: Fleet, site: Site, run_dir: Path) -> Spec:
    """A site's agent."""
    path = settings_files.write(run_dir / f"agent-{site.name}.yaml", settings_files.agent(site, fleet))
    command = (console_script("headrace-agent"), "run", "--config", str(path))
    url = f"http://{HOST}:{site.agent_port}/healthz"
    return Spec(f"agent {site.name}", command, (site.agent_port,), url)


def controller(
    fleet: Fleet, run_dir: Path, baseline: str = "", classes: bool = True, picker: bool = False
) -> Spec:
    """The controller; without `classes` cells of different lengths get the same requests."""
    settings = settings_files.controller(fleet) | {"capability": {"classes": classes}}
    if picker:
        settings = settings_files.with_picker(settings)
    path = settings_files.write(run_dir / "controller.yaml", settings)
    extra = ("--baseline", baseline) if baseline else ()
    command = (console_script("headrace-controller"), "run", "--config", str(path), *extra)
    ports = (fleet.ports.telemetry, fleet.ports.xds, fleet.ports.api)
    return Spec("controller", command, ports, f"{fleet.api_url}/healthz", behind=ON_THE_WAY)


async def envoy(fleet: Fleet, run_dir: Path) -> Spec:
    """Envoy with the bootstrap that the controller writes for it. Raises StackError."""
    path = run_dir / "envoy.yaml"
    path.write_bytes(await _bootstrap(fleet, run_dir))
    return envoy_of(fleet, path)


def envoy_of(fleet: Fleet, path: Path) -> Spec:
    """Envoy with the bootstrap file at `path`."""
    # Hot restart would share memory between Envoys of the same id on this machine.
    command = (
        *(console_script("envoy"), "-c", str(path), "--disable-hot-restart"),
        *("--concurrency", "1", "--log-level", "warning"),
    )
    ports = (fleet.ports.gateway, fleet.ports.gateway_admin)
    return Spec("envoy", command, ports, f"{fleet.gateway_admin_url}/ready", behind=ON_THE_WAY)


async def _bootstrap(fleet: Fleet, run_dir: Path) -> bytes:
    config, port = str(run_dir / "controller.yaml"), str(fleet.ports.gateway_admin)
    process = await asyncio.create_subprocess_exec(
        *(console_script("headrace-controller"), "bootstrap", "--config", config),
        *("--gateway", GATEWAY, "--admin-port", port),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(BOOTSTRAP_S):
            out, err = await process.communicate()
    except TimeoutError as error:
        raise StackError(f"headrace-controller bootstrap took more than {BOOTSTRAP_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0 or not out.strip():
        said = err.decode("utf-8", "replace").strip()[-1000:]
        raise StackError(f"headrace-controller bootstrap failed with status {process.returncode}: {said}")
    return out
