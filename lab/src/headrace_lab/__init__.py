"""The lab: simulated cells, load and scenarios that run the real programs."""

__version__ = "0.1.0"
