"""Writes the files under deploy/ that follow from others: `make deploy-files`.

Change what they come from: the dashboards in deploy/grafana/boards, the rules in deploy/prometheus/rules,
the controller's settings in deploy/compose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from deploy.grafana.boards import cell, controller, fleet, site

from headrace_controller.settings import load
from headrace_controller.xds.bootstrap import render
from headrace_shared.net import HostPort

DEPLOY = Path(__file__).resolve().parent
BOARDS = {"fleet": fleet.build, "site": site.build, "cell": cell.build, "controller": controller.build}
XDS = "172.30.0.10:18001"
ENVOY_ADMIN_PORT = 9901


def files() -> dict[Path, str]:
    """The text of each file."""
    boards = DEPLOY / "grafana" / "dashboards"
    made = {boards / f"{name}.json": json.dumps(build(), indent=1) + "\n" for name, build in BOARDS.items()}
    made[DEPLOY / "kubernetes" / "monitoring" / "rules.yaml"] = _operator_rules()
    made[DEPLOY / "compose" / "envoy.yaml"] = _bootstrap()
    return made


def _operator_rules() -> str:
    """The rules as the Prometheus operator wants them."""
    groups: list[Any] = []
    for path in sorted((DEPLOY / "prometheus" / "rules").glob("*.yml"), reverse=True):
        groups += yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "headrace",
            "namespace": "headrace",
            "labels": {"app.kubernetes.io/part-of": "headrace"},
        },
        "spec": {"groups": groups},
    }
    head = "# Written by `make deploy-files` from deploy/prometheus/rules; do not edit.\n"
    return head + yaml.safe_dump(rule, sort_keys=False, width=110)


def _bootstrap() -> str:
    """What `headrace-controller bootstrap` prints for the Envoy of docker-compose.yml."""
    file = "deploy/compose/controller.yaml"
    (gateway,) = load(DEPLOY.parent / file).gateways
    command = f"headrace-controller bootstrap --config {file} --gateway {gateway.id} --xds-address {XDS}"
    host, _, port = XDS.rpartition(":")
    text = render(gateway.id, HostPort(host, int(port)), ENVOY_ADMIN_PORT)
    return f"# Written by `make deploy-files`: {command}\n{text}"


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
