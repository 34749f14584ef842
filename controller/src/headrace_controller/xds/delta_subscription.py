"""One resource type on one delta stream: what the Envoy wants, was sent, took and refused."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from headrace_controller.xds.names import EDS, WHOLE
from headrace_controller.xds.snapshot import Resource, TypeSnapshot, no_endpoints
from headrace_controller.xds.subscription import MAX_NAMES, MAX_OUTSTANDING

ALL = "*"

ABSENT = ""
"""The version of what the Envoy was told does not exist."""


@dataclass(frozen=True, slots=True)
class SentNames:
    """A response on its way: the type's version, when it was sent, and the names it spoke of."""

    version: str
    at: float
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """What an Envoy lacks, and what it holds and should not."""

    resources: list[Resource]
    removed: list[str]

    def __bool__(self) -> bool:
        return bool(self.resources or self.removed)


@dataclass(slots=True)
class DeltaSubscription:
    """The state of one type; `had` is the version that was sent last under each name.

    What was refused is not sent again before the type has a new version; then all that the
    refused response spoke of is, for it is not known which parts of it the Envoy took. With
    `fill`, endpoints that nobody knows are answered by an assignment without any.
    """

    url: str
    fill: bool = False
    names: set[str] = field(default_factory=set)
    everything: bool = False
    had: dict[str, str] = field(default_factory=dict)
    sent_at: float = -math.inf
    acked: str = ""
    nacked: str = ""
    outstanding: dict[str, SentNames] = field(default_factory=dict)
    _suspects: set[str] = field(default_factory=set)
    _filled: dict[str, Resource] = field(default_factory=dict)

    def begin(self, names: Iterable[str], versions: Mapping[str, str]) -> None:
        """The first request: what is wanted, and what the Envoy holds from an earlier stream.

        Without a name it means everything, for the types that may be asked for so.
        """
        wanted = list(islice(names, MAX_NAMES))
        self.everything = not wanted and self.url in WHOLE
        self.subscribe(wanted)
        held = {name: version for name, version in versions.items() if self.everything or name in self.names}
        self.had.update(islice(held.items(), MAX_NAMES))

    def subscribe(self, names: Iterable[str]) -> None:
        """Want more; a name that is wanted already is asked for anew."""
        for name in names:
            if name == ALL:
                self.everything = self.url in WHOLE
            elif len(self.names) < MAX_NAMES:
                self.names.add(name)
                self.had.pop(name, None)

    def unsubscribe(self, names: Iterable[str]) -> None:
        """Want less; what everything covers still is answered again."""
        for name in names:
            if name == ALL:
                self.everything = False
                self.had = {each: version for each, version in self.had.items() if each in self.names}
                continue
            self.names.discard(name)
            self.had.pop(name, None)
            self._filled.pop(name, None)

    def pending(self, published: TypeSnapshot, *, keep_gone: bool = False) -> Difference:
        """What to send now; `keep_gone` leaves the Envoy what it holds and is not published any more."""
        if self.nacked and self.nacked != published.version:
            self.nacked = ""
            self.forget(self._suspects)
            self._suspects = set()
        changed = [each for each in self._wanted(published) if self.had.get(each.name) != each.version]
        return Difference(changed, self._removed(published, keep_gone))

    def settled(self, published: TypeSnapshot) -> bool:
        """True when the Envoy took all of what is published and it wants."""
        if self.outstanding or self.nacked:
            return False
        return all(self.had.get(each.name) == each.version for each in self._wanted(published))

    def forget(self, names: Iterable[str]) -> None:
        """Take it that the Envoy holds nothing under these names."""
        for name in names:
            self.had.pop(name, None)

    def sent(self, nonce: str, version: str, difference: Difference, now: float) -> None:
        """Note a response as sent."""
        for name in difference.removed:
            self.had.pop(name, None)
            if name in self.names:
                self.had[name] = ABSENT
        self.had.update((each.name, each.version) for each in difference.resources)
        self.sent_at = now
        names = (*(each.name for each in difference.resources), *difference.removed)
        self.outstanding[nonce] = SentNames(version, now, names)
        if len(self.outstanding) > MAX_OUTSTANDING:
            del self.outstanding[next(iter(self.outstanding))]

    def answered(self, nonce: str, *, refused: bool) -> SentNames | None:
        """Take the Envoy's answer to a response; None for one that was never sent."""
        if nonce not in self.outstanding:
            return None
        # Answers come in order: one for a later response settles the earlier ones.
        for each in list(self.outstanding):
            sent = self.outstanding.pop(each)
            if each == nonce:
                break
        if refused:
            self.nacked = sent.version
            self._suspects.update(sent.names)
        else:
            self.acked = sent.version
        return sent

    def unknown(self, published: TypeSnapshot) -> set[str]:
        """Names that are asked for and that nobody knows."""
        return self.names - published.resources.keys()

    def _wanted(self, published: TypeSnapshot) -> list[Resource]:
        if self.everything:
            return list(published.resources.values())
        found = []
        for name in sorted(self.names):
            resource = published.resources.get(name)
            if resource is None and self.fill and self.url == EDS:
                resource = self._filled.setdefault(name, no_endpoints(name))
            if resource is not None:
                found.append(resource)
        return found

    def _removed(self, published: TypeSnapshot, keep_gone: bool) -> list[str]:
        gone = [
            name
            for name, version in self.had.items()
            if version != ABSENT and name not in published.resources and name not in self._filled
        ]
        # An Envoy waits for what it asked for: that there is none is an answer, too.
        absent = [
            name
            for name in sorted(self.names)
            if name not in published.resources and name not in self.had and name not in self._filled
        ]
        return absent if keep_gone else gone + absent
