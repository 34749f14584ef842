"""What the agent measures: engines, GPUs and network paths, each in its own package."""
