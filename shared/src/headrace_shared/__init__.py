"""What the agent, the controller and the lab share: words, settings, clocks, tasks and logs."""

__version__ = "0.1.0"
