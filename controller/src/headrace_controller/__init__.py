"""The controller: one per region; states, pressure, weights and xDS."""

__version__ = "0.1.0"
