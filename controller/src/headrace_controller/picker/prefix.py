"""Names for the beginnings of prompts: equal blocks in equal order have equal names."""

from __future__ import annotations

import hashlib
from typing import Final

MAX_BLOCKS: Final = 64
"""Later blocks tell little more of who shares a prompt, and each costs."""
_KEYS: Final = (b'"messages"', b'"prompt"', b'"input"')
_NAME_BYTES: Final = 8


def block_names(body: bytes, model: str, block_bytes: int, most: int = MAX_BLOCKS) -> tuple[int, ...]:
    """The names of the whole blocks of `block_bytes` that a body's prompt begins with, each of which
    stands for all before it too; () where the body names no prompt.

    The bytes are taken as they are, from the prompt's key on: what the same client sends again is spelt
    the same, and reading JSON would cost more than it finds.
    """
    starts = [at for key in _KEYS if (at := body.find(key)) >= 0]
    if not starts:
        return ()
    begin, names = min(starts), []
    chain = hashlib.blake2b(model.encode("utf-8", "replace"), digest_size=_NAME_BYTES)
    count = min(most, (len(body) - begin) // block_bytes)
    for number in range(count):
        first = begin + number * block_bytes
        chain.update(body[first : first + block_bytes])
        names.append(int.from_bytes(chain.digest(), "big"))
    return tuple(names)
