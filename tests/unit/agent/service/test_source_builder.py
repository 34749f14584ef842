"""The real collectors of several builds: what they share, so that reloads cost nothing lasting."""

from __future__ import annotations

from headrace_agent.collectors.app.engine import EngineCollector
from headrace_agent.collectors.containment import Mishaps
from headrace_agent.service.sources import SourceBuilder, Sources
from headrace_agent.settings import EngineSettings
from tests.support.clock import FakeClock
from tests.unit.agent.service.test_watch import SETTINGS


def engines(sources: Sources) -> list[EngineCollector]:
    return [engine for engine in sources.engines.values() if isinstance(engine, EngineCollector)]


async def test_engines_of_all_builds_keep_to_one_round_while_the_interval_is_the_same() -> None:
    """Rounds of their own would wake the agent once more for every reload that it has seen."""
    build = SourceBuilder()
    other = SETTINGS.model_copy(update={"engine": EngineSettings(probe_interval_s=0.2)})
    first, second, third = (
        engines(build(settings, FakeClock(), lambda event: None, lambda uuid, xid: None, Mishaps()))
        for settings in (SETTINGS, SETTINGS, other)
    )
    assert len(first) == len(second) == len(third) == 2
    assert len({id(engine._rounds) for engine in first + second}) == 1
    assert third[0]._rounds is third[1]._rounds
    assert third[0]._rounds is not first[0]._rounds
    assert len({id(engine._scanner) for engine in first + second + third}) == 1


async def test_a_retuned_engine_joins_the_round_of_its_new_interval() -> None:
    build = SourceBuilder()
    other = SETTINGS.model_copy(
        update={"engine": EngineSettings(probe_interval_s=0.2, scrape_interval_s=2.0, ttft_window_s=60.0)}
    )
    old, new = (
        engines(build(settings, FakeClock(), lambda event: None, lambda uuid, xid: None, Mishaps()))[0]
        for settings in (SETTINGS, other)
    )
    metrics = old._metrics
    old.retune(new)
    assert old._rounds is new._rounds
    assert old._settings == other.engine
    assert old._metrics is metrics, "what was counted stays"
    assert metrics._interval_s == 2.0
