"""A simulated cell: an HTTP server that speaks vLLM's API over the engine model."""
