"""GPU figures of this host: a DCGM exporter first, NVML second, each contained on its own."""
