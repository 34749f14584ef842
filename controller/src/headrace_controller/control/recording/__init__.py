"""Beats and decisions on disk, and what other parameters would have made of them."""
