"""Inference engines: their health, their metrics pages and their models.

`engine.EngineCollector` is what the rest of the agent uses. Under it: `http` asks, `pages` turns
metrics pages into signals, `health` gathers evidence and decides the state, `facts` reads models
and versions.
"""

from headrace_agent.collectors.app.engine import EngineCollector

__all__ = ["EngineCollector"]
