"""Inference engines: their health, their metrics pages and their models.

`engine.EngineCollector` is what the rest of the agent uses; the modules under it each do one
thing: bytes to samples (page), samples to figures (vllm), figures to signals (counters,
histogram, metrics), evidence to a state (state), what HTTP is made of (dial, connection, line,
answer, errors, client), and what gathers evidence (rounds, probe, watch, warmup, start, facts).
"""

from headrace_agent.collectors.app.engine import EngineCollector

__all__ = ["EngineCollector"]
