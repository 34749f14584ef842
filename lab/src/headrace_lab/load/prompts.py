"""Prompt texts of a wanted length."""

from __future__ import annotations

import random
from functools import cache, lru_cache

WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "hello", "world")
"""Each, with a space before it, is one token of the lab's trained tokenizer and about one of others'."""
POOL_WORDS = 65_536
KEPT_BLOCKS = 4096


def prompt(tokens: int, seed: int) -> str:
    """About `tokens` tokens of text; differs by seed from the first word on, so no prefix is shared."""
    rng = random.Random(seed)  # noqa: S311
    return " " + " ".join(rng.choices(WORDS, k=max(1, tokens)))


def sized(tokens: int, seed: int, bytes_per_token: float) -> str:
    """`tokens * bytes_per_token` bytes of ASCII text that differs by seed from its first word on.

    Cheap at any length: cut from one text made in advance, after a few words of the seed's own.
    """
    size = max(1, round(tokens * bytes_per_token))
    head = f" {seed:x} "
    pool = _pool()
    start = random.Random(seed).randrange(len(pool))  # noqa: S311
    text = head + pool[start:]
    while len(text) < size:
        text += pool
    return text[:size]


def prefixed(
    prefix: tuple[int, ...], block: int, tokens: int, seed: int, bytes_per_token: float = 0.0
) -> str:
    """Text that begins with the texts of the blocks `prefix`, of `block` tokens each, and ends with its own.

    Without `bytes_per_token` a token is a word, as `prompt` makes them; with it all has that size.
    Prompts with the same leading blocks begin with the same bytes.
    """
    whole = prefix[: tokens // block] if block else ()
    rest = tokens - len(whole) * block
    parts = [_block(each, block, bytes_per_token) for each in whole]
    if rest or not parts:
        parts.append(sized(rest, seed, bytes_per_token) if bytes_per_token else prompt(rest, seed))
    return "".join(parts)


@lru_cache(maxsize=KEPT_BLOCKS)
def _block(block: int, tokens: int, bytes_per_token: float) -> str:
    return sized(tokens, block, bytes_per_token) if bytes_per_token else prompt(tokens, block)


@cache
def _pool() -> str:
    return prompt(POOL_WORDS, 0)
