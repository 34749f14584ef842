"""One resource type on one stream: what the Envoy wants, was sent, took and refused."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace_controller.xds.names import EDS, WHOLE
from headrace_controller.xds.snapshot import Resource, TypeSnapshot, no_endpoints

MAX_OUTSTANDING = 32
MAX_NAMES = 65536


@dataclass(frozen=True, slots=True)
class Sent:
    """A response on its way: its version and when it was sent."""

    version: str
    at: float


@dataclass(slots=True)
class Subscription:
    """The state of one type; `had` is what was sent last under each name.

    A version that the Envoy refused is not sent again: only a new version of the type is, and
    then all of it, for it is not known which parts of the refused one the Envoy took. With `fill`,
    endpoints that nobody knows are answered by an assignment without any.
    """

    url: str
    fill: bool = False
    names: frozenset[str] = frozenset()
    nonce: str = ""
    had: dict[str, Resource] = field(default_factory=dict)
    had_version: str = ""
    sent_at: float = -math.inf
    acked: str = ""
    nacked: str = ""
    outstanding: dict[str, Sent] = field(default_factory=dict)
    _filled: dict[str, Resource] = field(default_factory=dict)

    def resume(self, published: TypeSnapshot) -> None:
        """Start as an Envoy that holds what is published."""
        self.had = dict(published.resources)
        self.had_version = self.acked = published.version

    def subscribe(self, names: Iterable[str]) -> None:
        """Replace the names the Envoy wants; more than a sane number is ignored."""
        wanted = frozenset(names)
        if wanted == self.names or len(wanted) > MAX_NAMES:
            return
        self.names = wanted
        if self.url not in WHOLE:
            # A name that went and comes back is a new subscription, and wants an answer.
            self.had = {name: each for name, each in self.had.items() if name in wanted}
            self._filled = {name: each for name, each in self._filled.items() if name in wanted}

    def pending(self, published: TypeSnapshot) -> list[Resource] | None:
        """What to send now: None = nothing; an empty list = 'there are none'."""
        if self.nacked and self.nacked != published.version:
            self.nacked = ""
            self.forget()
        wanted = self._wanted(published)
        if self.url not in WHOLE:
            return [each for each in wanted if self.had.get(each.name) is not each] or None
        if self.nacked or (self.had_version == published.version and len(self.had) == len(wanted)):
            return None
        return wanted

    def settled(self, published: TypeSnapshot) -> bool:
        """True when the Envoy took all of what is published and it wants."""
        if self.outstanding or self.nacked:
            return False
        if self.url in WHOLE:
            return self.had_version == published.version and len(self.had) == len(self._wanted(published))
        return all(self.had.get(each.name) is each for each in self._wanted(published))

    def unknown(self, published: TypeSnapshot) -> set[str]:
        """Names that are asked for and that nobody knows."""
        return set(self.names - published.resources.keys())

    def forget(self) -> None:
        """Take it that the Envoy holds nothing of what it was sent."""
        self.had.clear()
        self.had_version = ""

    def sent(self, nonce: str, version: str, resources: Iterable[Resource], now: float) -> None:
        """Note a response as sent."""
        if self.url in WHOLE:
            self.had = {}
        self.had.update((each.name, each) for each in resources)
        self.had_version, self.nonce, self.sent_at = version, nonce, now
        self.outstanding[nonce] = Sent(version, now)
        if len(self.outstanding) > MAX_OUTSTANDING:
            del self.outstanding[next(iter(self.outstanding))]

    def answered(self, nonce: str, *, refused: bool) -> Sent | None:
        """Take the Envoy's answer to a response; None for one that was never sent."""
        if nonce not in self.outstanding:
            return None
        # Answers come in order: one for a later response settles the earlier ones.
        for each in list(self.outstanding):
            sent = self.outstanding.pop(each)
            if each == nonce:
                break
        if not refused:
            self.acked = sent.version
        elif sent.version == self.had_version:
            self.nacked = sent.version
        else:
            # Later responses held only what changed after the refused one.
            self.forget()
        return sent

    def _wanted(self, published: TypeSnapshot) -> list[Resource]:
        if self.url in WHOLE and (not self.names or "*" in self.names):
            return list(published.resources.values())
        found = []
        for name in sorted(self.names):
            resource = published.resources.get(name)
            if resource is None and self.fill and self.url == EDS:
                resource = self._filled.setdefault(name, no_endpoints(name))
            if resource is not None:
                found.append(resource)
        return found
