"""The running agent: collectors, streams to every controller, and its own pages, wired together."""

from headrace_agent.service.agent import Agent, run

__all__ = ["Agent", "run"]
