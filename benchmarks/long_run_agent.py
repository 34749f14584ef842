"""The agent with its time compressed: `python -m benchmarks.long_run_agent CONFIG`.

It is the program that `headrace-agent run` starts, but for the lower bounds on how often it may
read, measure and send: what a day brings then comes in minutes.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from pathlib import Path

from headrace_agent import service, settings
from headrace_agent.heartbeat import cadence
from headrace_agent.settings import AgentSettings
from headrace_shared import log
from headrace_shared.tasks import hold_hangups, on_hangup, run_program

OFTEN_S = 0.02
FACTS_S = 0.5


def compressed(path: Path) -> AgentSettings:
    """The settings of a file, with every cadence below what a file may ask for."""
    loaded = settings.load(path)
    often = {
        "engine": {
            "scrape_interval_s": OFTEN_S,
            "probe_interval_s": OFTEN_S,
            "facts_interval_s": FACTS_S,
            "ttft_window_s": 2.0,
        },
        "hardware": {"dcgm_interval_s": OFTEN_S},
        "network": {"interval_s": OFTEN_S, "timeout_s": 0.2},
    }
    # A copy is not checked again, so the bounds of the file do not hold.
    return loaded.model_copy(
        update={name: getattr(loaded, name).model_copy(update=update) for name, update in often.items()}
    )


async def main(path: Path, stop: asyncio.Event) -> None:
    """Run until `stop` is set; SIGHUP reloads."""
    reload = asyncio.Event()
    on_hangup(reload.set)
    await service.run(compressed(path), stop, reload, partial(compressed, path))


if __name__ == "__main__":
    hold_hangups()
    cadence.TELEMETRY_RANGE_S = (0.001, 60.0)  # type: ignore[misc]
    cadence.LIVENESS_RANGE_S = (0.001, 60.0)  # type: ignore[misc]
    log.configure("error")
    run_program(partial(main, Path(sys.argv[1])))
