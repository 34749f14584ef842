"""The settings files of the programs under test. They are JSON, which is YAML too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headrace_lab.demo.fleet import GATEWAY, HOST, Fleet, Site


def agent(site: Site, fleet: Fleet) -> dict[str, Any]:
    """The settings of a site's agent."""
    data: dict[str, Any] = {
        "node": site.node,
        "site": site.name,
        "controllers": [{"address": f"{HOST}:{fleet.ports.telemetry}"}],
        "cells": [
            {
                "id": cell.id,
                "url": cell.url,
                "gpus": [cell.gpu] if cell.gpu else [],
                **({"advertise": cell.address} if cell.front else {}),
            }
            for cell in site.cells
        ],
        # The cells' GPUs are simulated, or there are none: the machine's own must not be mixed in.
        "hardware": {"nvml": "off"},
        "metrics_listen": f"{HOST}:{site.agent_port}",
        "log": {"format": "json"},
    }
    if site.exporter_port:
        data["hardware"]["dcgm_url"] = f"http://{HOST}:{site.exporter_port}/metrics"
    return data


def controller(fleet: Fleet) -> dict[str, Any]:
    """The settings of the controller."""
    ports = fleet.ports
    listen = f"{HOST}:{ports.gateway}"
    return {
        "region": "lab",
        "listen": {
            "telemetry": f"{HOST}:{ports.telemetry}",
            "xds": f"{HOST}:{ports.xds}",
            "admin": f"{HOST}:{ports.api}",
        },
        "gateways": [{"id": GATEWAY, "host": HOST, "port": ports.gateway, "listen": listen}],
        "envoy": {"expose_upstream": True},
        "log": {"format": "json"},
    }


def with_picker(settings: dict[str, Any]) -> dict[str, Any]:
    """The same controller with the fast loop as well."""
    return settings | {"picker": {"enabled": True}}


def write(path: Path, data: dict[str, Any]) -> Path:
    """Write one settings file; returns its path. Raises OSError."""
    path.write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    return path
