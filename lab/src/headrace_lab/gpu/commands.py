"""The command line of the simulated DCGM exporter."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headrace_lab.engine.profiles import profile as find_profile
from headrace_lab.engine.profiles import split
from headrace_lab.gpu.model import GpuParameters
from headrace_lab.gpu.service import serve
from headrace_lab.gpu.settings import ExporterSettings, parse_placement
from headrace_lab.servers import refusal, run_server
from headrace_shared import log
from headrace_shared.clock import SystemClock

Option = typer.Option


def exporter(
    gpu: Annotated[list[str], Option(help="A GPU and its cell: UUID=http://host:port. Repeatable.")],
    port: Annotated[int, Option(help="Port to serve on; 0 = the system chooses.", min=0, max=65535)] = 9400,
    host: Annotated[str, Option(help="Address to serve on.")] = "127.0.0.1",
    hostname: Annotated[str, Option(help="The Hostname label.")] = "lab-node",
    gpu_name: Annotated[str, Option(help="The modelName label.")] = "NVIDIA H100 80GB HBM3",
    profile: Annotated[
        str, Option(help="Play known GPUs, GPU/MODEL as in h100/70b-awq; replaces --gpu-name.")
    ] = "",
    collect_seconds: Annotated[float, Option(help="Seconds between two makings of the page.")] = 0.5,
    poll_seconds: Annotated[float, Option(help="Seconds between two readings of a cell's load.")] = 0.2,
    thermal_seconds: Annotated[
        float, Option(help="Time constant of the GPUs' temperature; 0 = the profile's.", min=0)
    ] = 0.0,
    health_fields: Annotated[
        bool, Option(help="Also give the fields of a GPU's health that are off by default.")
    ] = False,
    preallocate: Annotated[bool, Option(help="The whole KV cache counts as used memory.")] = True,
) -> None:
    """Run a simulated DCGM exporter whose GPUs follow the load of cells."""
    log.configure()
    try:
        played = find_profile(*split(profile)) if profile else None
        parameters = played.gpu if played else GpuParameters(name=gpu_name)
        if thermal_seconds:
            parameters = replace(parameters, thermal_time_constant_s=thermal_seconds)
        settings = ExporterSettings(
            gpus=tuple(parse_placement(text) for text in gpu),
            gpu=replace(parameters, preallocates=preallocate),
            hostname=hostname,
            collect_s=collect_seconds,
            poll_s=poll_seconds,
            health=health_fields,
            pcie_share=played.pcie_share if played else 0.0,
        )
    except ValueError as error:
        raise refusal("dcgm", error) from error
    run_server("dcgm", host, port, lambda sock, stop: serve(settings, sock, SystemClock(), stop))
