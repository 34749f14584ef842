"""Benchmarks: speed shown as medians and as ratios against a baseline in the same run."""
