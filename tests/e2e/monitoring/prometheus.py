"""A real Prometheus over a region, with the rules that the repository ships."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml

from headrace_lab.stack.ports import free_ports
from headrace_lab.stack.program import Spec
from tests.e2e.whole_path.region import GRACE_S, Plan, Region, running_region
from tests.e2e.whole_path.traffic import load
from tests.support.monitoring import PROMETHEUS

BINARY = shutil.which("prometheus")
SCRAPE = "1s"
PLAN = Plan(settings={"picker": {"enabled": True}})


class Prometheus:
    """Its HTTP API; `region` is what it scrapes."""

    def __init__(self, region: Region, url: str) -> None:
        self.region = region
        self._url = url

    async def get(self, path: str, params: Mapping[str, str] | list[tuple[str, str]] = ()) -> Any:
        """The data of an answer, which must be a good one."""
        async with self.region.session.get(f"{self._url}/api/v1/{path}", params=params) as response:
            answer = await response.json()
        assert answer["status"] == "success", f"{path} {params}: {answer.get('error')}"
        return answer["data"]

    async def ask(self, expr: str) -> list[dict[str, Any]]:
        """An instant query's samples."""
        data = await self.get("query", {"query": expr})
        assert data["resultType"] in ("vector", "scalar"), expr
        return list(data["result"]) if data["resultType"] == "vector" else [data["result"]]

    async def firing(self) -> set[tuple[str, str]]:
        """(alert, its cell or "") of all that fire."""
        alerts = (await self.get("alerts"))["alerts"]
        return {
            (each["labels"]["alertname"], each["labels"].get("cell", ""))
            for each in alerts
            if each["state"] == "firing"
        }


def config(region: Region) -> dict[str, Any]:
    """The example that is shipped, with this region's addresses and at a test's pace."""
    made: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    made["global"] = {"scrape_interval": SCRAPE, "evaluation_interval": SCRAPE, "scrape_timeout": SCRAPE}
    made["rule_files"] = [str(PROMETHEUS / pattern) for pattern in made["rule_files"]]
    controller, agent = made["scrape_configs"]
    controller["static_configs"][0]["targets"] = [region.fleet.api_url.removeprefix("http://")]
    agents = [f"127.0.0.1:{site.agent_port}" for site in region.fleet.sites]
    agent["static_configs"][0]["targets"] = agents
    return made


@asynccontextmanager
async def watched(directory: Path) -> AsyncIterator[Prometheus]:
    """A region under a light load and a Prometheus that has scraped all of it at least twice."""
    assert BINARY is not None
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    async with running_region(directory, PLAN) as region:
        path = directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config(region)), encoding="utf-8")
        command = (
            *(BINARY, f"--config.file={path}", f"--storage.tsdb.path={directory / 'tsdb'}"),
            *(f"--web.listen-address=127.0.0.1:{port}", "--log.level=warn"),
        )
        spec = Spec("prometheus", command, (port,), f"{url}/-/ready", ours=False, grace_s=GRACE_S)
        await region.start(spec)
        await region.stack.wait_ready(["prometheus"])
        prometheus = Prometheus(region, url)

        async def scraped() -> bool:
            samples = await prometheus.ask("count_over_time(up[1m]) >= 3")
            up = await prometheus.ask("up == 1")
            return len(samples) == len(up) == 1 + len(region.fleet.sites)

        async with load(region):
            await region.until(scraped, "everything is scraped", 30.0)
            yield prometheus
