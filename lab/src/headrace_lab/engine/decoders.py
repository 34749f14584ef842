"""All sequences that decode: each step gives every one of them a token, so they are counted together.

What a pass costs, when the next answer ends and how many KV blocks are needed follow from sums, and a
hundred passes with one batch cost no more than one.
"""

from __future__ import annotations

import heapq
from itertools import count

from headrace_lab.engine.sequences import NOT_DECODING, Sequence


class Decoders:
    """The decoding sequences of one engine.

    `passes` counts the engine's steps. A sequence of `known` tokens needs a KV block with the pass in
    which `known` goes one beyond whole blocks; as all grow alike, `_phases` counts sequences by when
    that is, modulo the block size.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._phases = [0] * block_size
        self._ends: list[tuple[int, int, Sequence]] = []
        self._order = count()
        self.passes = 0
        self.size = 0
        self._known = 0
        """Sum of the tokens known of each, as of `passes`."""

    @property
    def context(self) -> int:
        """Tokens in the caches of all."""
        return self._known

    def generated(self, sequence: Sequence) -> int:
        """Tokens that a sequence has generated so far."""
        if sequence.joined == NOT_DECODING:
            return sequence.generated
        return sequence.generated + self.passes - sequence.joined

    def known(self, sequence: Sequence) -> int:
        """Its prompt and what it has generated."""
        return sequence.request.prompt_tokens + self.generated(sequence)

    def join(self, sequence: Sequence) -> None:
        """A sequence has its first token, or has its cache again after it was pre-empted."""
        known = sequence.request.prompt_tokens + sequence.generated
        sequence.joined = self.passes
        sequence.ends = self.passes + sequence.output_tokens - sequence.generated
        self._phases[(known - self.passes) % self._block_size] += 1
        self.size += 1
        self._known += known
        heapq.heappush(self._ends, (sequence.ends, next(self._order), sequence))

    def leave(self, sequence: Sequence) -> None:
        """A sequence ends or is pre-empted; its `generated` is settled."""
        known = self.known(sequence)
        self._phases[(known - self.passes) % self._block_size] -= 1
        self.size -= 1
        self._known -= known
        sequence.generated = self.generated(sequence)
        sequence.joined = sequence.ends = NOT_DECODING

    def growth(self, first: int, passes: int) -> int:
        """KV blocks that the passes from the `first` one on need, 0 = the next."""
        whole, rest = divmod(passes, self._block_size)
        needed = whole * self.size
        for number in range(rest):
            needed += self._phases[(1 - self.passes - first - number) % self._block_size]
        return needed

    def room_for(self, most: int, blocks: int) -> int:
        """How many passes after the next one, at most `most`, find room in so many free blocks."""
        if not self.size or self.growth(1, most) <= blocks:
            return most
        low = blocks // self.size * self._block_size
        left = blocks - self.growth(1, low) if low else blocks
        while low < most:
            left -= self.growth(1 + low, 1)
            if left < 0:
                break
            low += 1
        return low

    def until_end(self) -> int:
        """Passes until the next answer is whole; 0 where nobody decodes."""
        while self._ends and self._is_past(*self._ends[0]):
            heapq.heappop(self._ends)
        return self._ends[0][0] - self.passes if self._ends else 0

    def advance(self, passes: int) -> None:
        """So many passes are done."""
        self.passes += passes
        self._known += passes * self.size

    def ended(self) -> list[Sequence]:
        """The sequences whose last token came with the last pass."""
        found = []
        while self._ends and (self._ends[0][0] <= self.passes or self._is_past(*self._ends[0])):
            entry = heapq.heappop(self._ends)
            if not self._is_past(*entry):
                found.append(entry[2])
        return found

    def ends(self) -> list[tuple[int, Sequence]]:
        """(passes left, sequence) of all, the first to end first."""
        live = sorted(entry for entry in self._ends if not self._is_past(*entry))
        return [(ends - self.passes, sequence) for ends, _, sequence in live]

    @staticmethod
    def _is_past(ends: int, _: int, sequence: Sequence) -> bool:
        return sequence.ends != ends
