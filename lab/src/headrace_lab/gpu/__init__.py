"""Simulated GPUs that follow the load of cells, and the DCGM exporter that tells of them."""
