"""The prefix cache: which leading blocks of prompts need no computing."""

from __future__ import annotations

from collections import OrderedDict


class PrefixCache:
    """Blocks of prompts by their ids, least recently used first.

    A block's id stands for its tokens and all before it. Blocks of running sequences are pinned;
    others lie in KV blocks that nobody holds, and go when these are needed.
    """

    def __init__(self, kv_blocks_each: int) -> None:
        self._kv_blocks_each = max(1, kv_blocks_each)
        self._pins: dict[int, int] = {}
        self._free: OrderedDict[int, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pins) + len(self._free)

    def hits(self, ids: tuple[int, ...]) -> int:
        """How many leading blocks are held."""
        for count, block in enumerate(ids):
            if block not in self._pins and block not in self._free:
                return count
        return len(ids)

    def pin(self, ids: tuple[int, ...]) -> None:
        """Hold blocks for a sequence that has them computed."""
        for block in ids:
            self._pins[block] = self._pins.get(block, 0) + 1
            self._free.pop(block, None)

    def unpin(self, ids: tuple[int, ...], free_kv_blocks: int) -> None:
        """A sequence is gone; its blocks stay for as long as there is room."""
        for block in reversed(ids):
            left = self._pins[block] - 1
            if left:
                self._pins[block] = left
            else:
                del self._pins[block]
                self._free[block] = None
        self.shrink(free_kv_blocks)

    def shrink(self, free_kv_blocks: int) -> None:
        """Keep no more of what nobody holds than fits into so many KV blocks."""
        most = free_kv_blocks // self._kv_blocks_each
        while len(self._free) > most:
            self._free.popitem(last=False)
