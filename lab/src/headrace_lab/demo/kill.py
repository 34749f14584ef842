"""Kill one busy engine and time how long Envoy still holds its endpoint."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headrace_lab.demo.observe import TROUBLES, Host, Observer
from headrace_shared.clock import Clock

FAST_POLL_S = 0.005
SLOW_POLL_S = 0.05
FAST_FOR_S = 2.0
GIVE_UP_S = 15.0
BUSY_WAIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Kill:
    """What happened; times in seconds on the lab's clock, None where it did not happen.

    `gone_at`: the endpoint had left Envoy's list. `shunned_at`: Envoy held it but had marked it
    unhealthy by itself, which is all that a plain Envoy can do. `active`: requests that Envoy had
    open on it just before.
    """

    cell: str
    at: float
    active: int
    gone_at: float | None
    shunned_at: float | None

    @property
    def detect_ms(self) -> float | None:
        """From the kill to the endpoint gone."""
        return None if self.gone_at is None else (self.gone_at - self.at) * 1e3

    @property
    def out_of_use_ms(self) -> float | None:
        """From the kill to the endpoint gone or marked unhealthy, whichever was first."""
        ends = [end for end in (self.gone_at, self.shunned_at) if end is not None]
        return (min(ends) - self.at) * 1e3 if ends else None


def choose(order: Sequence[str], addresses: Mapping[str, str], hosts: Mapping[str, Host]) -> str | None:
    """The first cell of `order` on which Envoy has a request open."""
    for cell in order:
        host = hosts.get(addresses[cell])
        if host is not None and host.active > 0:
            return cell
    return None


@dataclass(frozen=True, slots=True)
class Order:
    """What to do: `addresses` are host:port by cell, `kill(cell)` sends the signal.

    `removal` = wait for the endpoint to leave Envoy's list; a plain Envoy never removes it, so
    there the watch ends when Envoy marks it unhealthy.
    """

    addresses: Mapping[str, str]
    seed: int
    kill: Callable[[str], None]
    removal: bool = True


async def kill_busy(observer: Observer, ask: Order, clock: Clock) -> Kill:
    """Wait for a busy READY cell (the order of preference comes from the seed), kill it, and watch.

    When no cell gets busy in 5 s, an idle one is taken.
    """
    addresses = ask.addresses
    order = sorted(addresses)
    random.Random(ask.seed).shuffle(order)  # noqa: S311
    deadline = clock.now() + BUSY_WAIT_S
    while True:
        hosts = await _hosts(observer)
        last = observer.history.last
        ready = [cell for cell in order if last is None or cell in last.ready()] or order
        cell = choose(ready, addresses, hosts)
        if cell is None and clock.now() > deadline:
            cell = ready[0]
        if cell is not None:
            break
        await asyncio.sleep(FAST_POLL_S)
    host = hosts.get(addresses[cell])
    at = clock.now()
    ask.kill(cell)
    gone_at, shunned_at = await _watch(observer, addresses[cell], at, clock, removal=ask.removal)
    return Kill(cell, at, host.active if host else 0, gone_at, shunned_at)


async def _watch(
    observer: Observer, address: str, at: float, clock: Clock, *, removal: bool
) -> tuple[float | None, float | None]:
    shunned: float | None = None
    while (now := clock.now()) < at + GIVE_UP_S:
        try:
            hosts = await observer.hosts()
        except TROUBLES:
            hosts = None
        seen = clock.now()
        if hosts is not None and address not in hosts:
            return seen, shunned
        if hosts is not None and shunned is None and not hosts[address].healthy:
            shunned = seen
            if not removal:
                return None, shunned
        await asyncio.sleep(FAST_POLL_S if now < at + FAST_FOR_S else SLOW_POLL_S)
    return None, shunned


async def _hosts(observer: Observer) -> dict[str, Host]:
    try:
        return await observer.hosts()
    except TROUBLES:
        return {}
