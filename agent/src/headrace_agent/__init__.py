"""The agent: reads one host's engines, GPUs and network paths, and streams heartbeats."""

__version__ = "0.1.0"
