"""How each program of a live run is started and when it counts as ready."""

from __future__ import annotations

from pathlib import Path

from headrace_controller.xds.bootstrap import render
from headrace_lab.demo import programs as demo_programs
from headrace_lab.demo import settings_files
from headrace_lab.demo.fleet import GATEWAY, HOST, Cell, Site
from headrace_lab.live.arms import controller_settings
from headrace_lab.live.layout import Layout
from headrace_lab.live.profiles import arguments
from headrace_lab.scenarios.settings import Arm, GatewayPlan
from headrace_lab.stack.program import ON_THE_WAY, Spec, console_script
from headrace_shared.net import HostPort


def at_site(layout: Layout, site: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """The command, in the site's network namespace where it has one. `ip` becomes the program."""
    place = layout.places.get(site)
    return ("ip", "netns", "exec", place.namespace, *command) if place else command


def cell(layout: Layout, each: Cell, loading_s: float, seed: int) -> Spec:
    """A simulated cell that loads for `loading_s` and answers 503 meanwhile."""
    plan = layout.plans[each.id]
    command = (
        *(console_script("headrace-lab"), "cell", "--host", each.host),
        *("--port", str(each.port), "--cell-id", each.id, "--model", layout.fleet.model),
        *("--loading-seconds", str(loading_s), "--seed", str(seed)),
        *arguments(plan, layout.bytes_per_token),
    )
    return Spec(f"cell {each.id}", at_site(layout, plan.site, command), (each.port,), f"{each.url}/health")


def exporter(layout: Layout, site: Site) -> Spec:
    """A node's simulated GPU exporter, whose figures follow the node's cells; its GPUs are of one kind."""
    gpus = [part for each in site.cells for part in ("--gpu", f"{each.gpu}={each.url}")]
    port = str(site.exporter_port)
    plan = layout.plans[site.cells[0].id]
    command = (
        *(console_script("headrace-lab"), "dcgm", "--host", site.host, "--port", port),
        *("--hostname", site.node, "--profile", f"{plan.gpu}/{plan.model}", *gpus),
        *("--thermal-seconds", f"{layout.thermal_s}", "--health-fields"),
    )
    url = f"http://{site.host}:{port}/health"
    return Spec(f"exporter {site.node}", at_site(layout, site.name, command), (site.exporter_port,), url)


def agent(layout: Layout, site: Site, run_dir: Path) -> Spec:
    """A node's agent."""
    settings = settings_files.agent(site, layout.fleet)
    if (place := layout.places.get(site.name)) is not None:
        settings["controllers"] = [{"address": f"{place.near}:{layout.fleet.ports.telemetry}"}]
        settings["metrics_listen"] = f"{site.host}:{site.agent_port}"
        settings["hardware"]["dcgm_url"] = f"http://{site.host}:{site.exporter_port}/metrics"
    if (uplink := layout.uplinks.get(site.name)) is not None:
        settings["controllers"] = [{"address": f"{HOST}:{uplink}"}]
    path = settings_files.write(run_dir / f"agent-{site.node}.yaml", settings)
    command = (console_script("headrace-agent"), "run", "--config", str(path))
    url = f"http://{site.host}:{site.agent_port}/healthz"
    return Spec(f"agent {site.node}", at_site(layout, site.name, command), (site.agent_port,), url)


def controller(layout: Layout, arm: Arm, gateway: GatewayPlan, run_dir: Path) -> Spec:
    """The controller of an arm."""
    fleet, state = layout.fleet, run_dir / "state"
    state.mkdir(exist_ok=True)
    data = controller_settings(layout, arm, gateway, "" if not arm.lifecycle else str(state))
    path = settings_files.write(run_dir / "controller.yaml", data)
    command = (console_script("headrace-controller"), "run", "--config", str(path))
    ports = (fleet.ports.telemetry, fleet.ports.xds, fleet.ports.api)
    return Spec("controller", command, ports, f"{fleet.api_url}/healthz", behind=ON_THE_WAY)


def envoy(layout: Layout, run_dir: Path) -> Spec:
    """Envoy with the bootstrap that `headrace-controller bootstrap` writes."""
    fleet, path = layout.fleet, run_dir / "envoy.yaml"
    made = render(GATEWAY, HostPort(HOST, fleet.ports.xds), fleet.ports.gateway_admin)
    path.write_text(made, encoding="utf-8")
    return demo_programs.envoy_of(fleet, path)
