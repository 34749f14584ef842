"""Carries packets between two descriptors, each at its moment."""

from __future__ import annotations

import asyncio
import heapq
import os
from itertools import count
from typing import Final

from headrace_lab.wan.delays import Counts, Delays, Direction
from headrace_shared.clock import Clock

LARGEST_PACKET: Final = 65_535
# So many packets are taken in before others get their turn.
AT_ONCE: Final = 64


class Forwarder:
    """Reads packets from both ends as they come and writes each to the other end when it is due.

    At most `limit` packets are under way; more are dropped, as a full queue does.
    """

    def __init__(self, near: int, far: int, delays: Delays, clock: Clock, limit: int) -> None:
        self._near, self._far = near, far
        self._delays = delays
        self._clock = clock
        self._limit = limit
        self._under_way: list[tuple[float, int, int, bytes]] = []
        self._number = count()
        self._timer: asyncio.TimerHandle | None = None
        self._broken: asyncio.Future[None] | None = None
        self.counts = Counts()

    async def run(self) -> None:
        """Forward until cancelled. Raises OSError when a device is gone."""
        loop = asyncio.get_running_loop()
        self._broken = loop.create_future()
        loop.add_reader(self._near, self._read, self._near, self._far, Direction.THERE)
        loop.add_reader(self._far, self._read, self._far, self._near, Direction.BACK)
        try:
            await self._broken
        finally:
            loop.remove_reader(self._near)
            loop.remove_reader(self._far)
            if self._timer is not None:
                self._timer.cancel()

    def _read(self, source: int, target: int, direction: Direction) -> None:
        for _ in range(AT_ONCE):
            try:
                packet = os.read(source, LARGEST_PACKET)
            except BlockingIOError:
                break
            except OSError as error:
                self._break(error)
                return
            self._take(packet, target, direction)
        self._deliver()

    def _break(self, error: OSError) -> None:
        """A device that is gone would be readable for ever."""
        if self._broken is not None and not self._broken.done():
            self._broken.set_exception(error)

    def _take(self, packet: bytes, target: int, direction: Direction) -> None:
        due = self._delays.due(packet, direction, self._clock.now())
        if due is None:
            self.counts.lost += 1
        elif len(self._under_way) >= self._limit:
            self.counts.overflowed += 1
        else:
            heapq.heappush(self._under_way, (due, next(self._number), target, packet))

    def _deliver(self) -> None:
        """Write what is due, and come again for what is not."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._under_way and self._under_way[0][0] <= (now := self._clock.now()):
            due, _, target, packet = heapq.heappop(self._under_way)
            self._write(target, packet, now - due)
        if self._under_way:
            wait_s = self._under_way[0][0] - self._clock.now()
            self._timer = asyncio.get_running_loop().call_later(max(0.0, wait_s), self._deliver)

    def _write(self, target: int, packet: bytes, late_s: float) -> None:
        try:
            os.write(target, packet)
        except OSError:  # the device is down, or its queue is full
            self.counts.failed += 1
            return
        self.counts.delivered += 1
        self.counts.late_s += late_s
