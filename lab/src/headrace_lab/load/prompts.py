"""Prompt texts of a wanted length."""

from __future__ import annotations

import random

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "hello", "world")
"""Each, with a space before it, is one token of the lab's trained tokenizer and about one of others'."""


def prompt(tokens: int, seed: int) -> str:
    """About `tokens` tokens of text; differs by seed from the first word on, so no prefix is shared."""
    rng = random.Random(seed)  # noqa: S311
    return " " + " ".join(rng.choices(WORDS, k=max(1, tokens)))
