"""The compose file's commands, files, addresses and health checks work together."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.e2e.compose.stack import SERVICES, Compose, running

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]

SITES = ("a", "b", "c")
MISSING = {"grafana"} | (set() if shutil.which("prometheus") else {"prometheus"})
"""What is in no package here."""
ASK = """
import json, sys, urllib.request
body = json.dumps({"model": "demo", "prompt": "hi", "max_tokens": 4}).encode()
request = urllib.request.Request(sys.argv[1], body, {"content-type": "application/json"})
print(urllib.request.urlopen(request, timeout=10).status)
"""
PAGE = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())"


def cells(compose: Compose) -> dict[str, dict[str, object]]:
    """What the operators' command says inside the controller's container, with the token made there."""
    token = (compose.folder / "state" / "operator.token").read_text(encoding="utf-8").strip()
    done = compose.run("controller", "headrace", "cells", "--json", HEADRACE_TOKEN=token)
    return {each["id"]: each for each in json.loads(done.stdout)["cells"]} if done.returncode == 0 else {}


def scraped(compose: Compose) -> bool:
    """Whether a recorded series of the controller's is there, with its region."""
    url = "http://127.0.0.1:9090/api/v1/query?query=region_site:headrace_cells_ready:count"
    said = compose.run("prometheus", sys.executable, "-c", PAGE, url).stdout
    found = json.loads(said)["data"]["result"] if said else []
    return {(each["metric"]["region"], each["value"][1]) for each in found} == {("compose", "1")}


def test_the_demo_profile_comes_up_serves_and_is_healthy(tmp_path: Path) -> None:
    names = sorted(SERVICES.keys() - MISSING, key=lambda name: (name == "load", name.startswith("agent")))
    with running(tmp_path, names) as compose:
        for name in names:
            if name != "load":
                compose.until(lambda name=name: compose.check(name), f"{name} is healthy")

        def all_ready() -> bool:
            found = cells(compose)
            ready = {cell for cell, each in found.items() if each["state"] == "READY"}
            return ready == {f"site-{site}-1" for site in SITES}

        compose.until(all_ready, "all cells are READY")
        asked = compose.run("cell-a", sys.executable, "-c", ASK, "http://172.30.0.20:10000/v1/completions")
        assert asked.stdout.strip() == "200", asked.stderr

        def carried() -> bool:
            url = "http://172.30.0.10:18002/metrics"
            page = compose.run("cell-b", sys.executable, "-c", PAGE, url).stdout
            lines = [line for line in page.splitlines() if line.startswith("headrace_gateway_requests_total")]
            served = {site for site in SITES for line in lines if f'"site-{site}-1",class="ok"' in line}
            hardware = 'headrace_cell_fallback{cell="site-a-1",kind="dcgm_fallback",site="site-a"} 0.0'
            return served == set(SITES) and hardware in page

        # From another container and without a token, as Prometheus reads it.
        compose.until(carried, "the load reaches every cell, and its GPUs are seen")
        if "prometheus" in names:
            compose.until(lambda: scraped(compose), "Prometheus scrapes the controller")
        refused = compose.run("cell-b", "headrace", "cells", "--url", "http://172.30.0.10:18002")
        assert refused.returncode == 4, "operators need the token"
        mode = (tmp_path / "state" / "operator.token").stat().st_mode
        assert mode & 0o077 == 0
