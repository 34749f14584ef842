"""Real vLLM engines on this machine's CPU: their environment, their start, the run over them."""
