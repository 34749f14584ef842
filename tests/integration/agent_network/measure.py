"""A program that measures paths in its own namespace: `measure.py PLAN`, a JSON object with
`method`, `gateways` (id -> host), `port`, `warm_s` and `seconds`. Prints the mean of the readings."""

from __future__ import annotations

import asyncio
import json
import sys
from statistics import fmean
from typing import Any

from headrace_agent.collectors.network.collector import GatewayTarget
from headrace_agent.collectors.network.rights import find_right
from headrace_agent.collectors.readings import PathReading
from headrace_shared import log
from tests.integration.agent_network.support import measuring

EVERY_S = 0.25


async def main(plan: dict[str, Any]) -> None:
    targets = [GatewayTarget(id_, host, plan["port"]) for id_, host in plan["gateways"].items()]
    readings: dict[str, list[PathReading]] = {target.id: [] for target in targets}
    async with measuring(plan["method"], *targets) as paths:
        await asyncio.sleep(plan["warm_s"])
        for _ in range(round(plan["seconds"] / EVERY_S)):
            await asyncio.sleep(EVERY_S)
            for target in targets:
                readings[target.id].append(paths.reading(target.id))
    print(json.dumps({"way": find_right().way, "paths": {id_: mean(each) for id_, each in readings.items()}}))


def mean(readings: list[PathReading]) -> dict[str, Any]:
    """The means of one path's figures; the method must not have changed under way."""
    (method,) = {each.method.value for each in readings}
    figures = {
        name: [getattr(each, name) for each in readings if getattr(each, name) is not None]
        for name in ("rtt_ms", "jitter_ms", "loss")
    }
    means = {name: fmean(values) if values else None for name, values in figures.items()}
    return means | {"method": method, "detail": readings[-1].detail}


if __name__ == "__main__":
    log.configure()  # stdout is for the result
    asyncio.run(main(json.loads(sys.argv[1])))
