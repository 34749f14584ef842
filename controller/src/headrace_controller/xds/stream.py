"""One Envoy's ADS stream as a state machine: requests in, responses out; no sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2

from headrace_controller.xds.names import CDS, EDS, RDS, TYPES
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.subscription import Subscription

HOLD_S = 1.0
"""How long routes wait for the Envoy to take their clusters, or a removal for the routes to go."""


@dataclass(frozen=True, slots=True)
class Acked:
    """The Envoy took `version`, `seconds` after it was sent."""

    type_url: str
    version: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Nacked:
    """The Envoy refused `version`, and why."""

    type_url: str
    version: str
    message: str


class Stream:
    """The state of one stream; the fleet bounds its size, whatever the Envoy sends.

    A type is sent when what the Envoy should have differs from what it was sent. Nothing is
    queued: a response is made of the newest snapshot when it can be written.
    """

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}
        self._nonces = 0

    def acked(self, type_url: str) -> str:
        """The version that this Envoy accepted last; "" = none."""
        subscription = self._subscriptions.get(type_url)
        return subscription.acked if subscription else ""

    def refuses(self, type_url: str) -> str:
        """The version of a type that stands refused; "" = none."""
        subscription = self._subscriptions.get(type_url)
        return subscription.nacked if subscription else ""

    def on_request(self, request: Any, published: Snapshot | None, now: float) -> Acked | Nacked | None:
        """Take one DiscoveryRequest; say what it confirms or refuses, if it does.

        Types that are not served here, and answers to responses that were never sent, are ignored.
        """
        url = request.type_url
        if url not in TYPES:
            return None
        subscription = self._subscriptions.get(url)
        if subscription is None:
            self._subscriptions[url] = self._first(request, published)
            return None
        # Names in a request that answers an older response are stale: newer ones are on their way.
        if request.response_nonce == subscription.nonce:
            subscription.subscribe(request.resource_names)
        refused = request.HasField("error_detail")
        sent = subscription.answered(request.response_nonce, refused=refused)
        if sent is None:
            return None
        if refused:
            return Nacked(url, sent.version, request.error_detail.message)
        return Acked(url, sent.version, max(0.0, now - sent.at))

    def _first(self, request: Any, published: Snapshot | None) -> Subscription:
        """The subscription of an Envoy that may hold something from before.

        One that holds what is published needs it not again, but for endpoints: it may have met a
        new cluster just before the stream broke.
        """
        subscription = Subscription(request.type_url)
        subscription.subscribe(request.resource_names)
        if published is not None and request.type_url != EDS:
            current = published.types[request.type_url]
            if request.version_info == current.version:
                subscription.resume(current)
        return subscription

    def next_response(self, snapshot: Snapshot, now: float) -> Any | None:
        """The next DiscoveryResponse, counted as sent; None while there is nothing to send.

        In the order CDS, EDS, LDS, RDS: make before break.
        """
        for url in TYPES:
            subscription = self._subscriptions.get(url)
            if subscription is None:
                continue
            published = snapshot.types[url]
            resources = subscription.pending(published)
            if resources is None or self._held(url, snapshot, now):
                continue
            self._nonces += 1
            subscription.sent(str(self._nonces), published.version, resources, now)
            if url == CDS:
                self._renew_endpoints(snapshot)
            return discovery_pb2.DiscoveryResponse(
                version_info=published.version,
                type_url=url,
                nonce=subscription.nonce,
                resources=[each.box for each in resources],
            )
        return None

    def holds(self, snapshot: Snapshot) -> bool:
        """True while something is to be sent; asked when next_response gave nothing."""
        return any(each.pending(snapshot.types[url]) is not None for url, each in self._subscriptions.items())

    def _renew_endpoints(self, snapshot: Snapshot) -> None:
        # A changed cluster waits for its endpoints once more, and asks for them in a request that
        # looks like any other.
        endpoints = self._subscriptions.get(EDS)
        if endpoints is not None and endpoints.nacked != snapshot.version(EDS):
            endpoints.forget()

    def _held(self, url: str, snapshot: Snapshot, now: float) -> bool:
        clusters, routes = self._subscriptions.get(CDS), self._subscriptions.get(RDS)
        if clusters is None or routes is None:
            return False
        if url == RDS:
            return now - clusters.sent_at < HOLD_S and self._clusters_in_the_making(clusters)
        if url == CDS and _only_removes(clusters, snapshot):
            waiting = routes.outstanding and now - routes.sent_at < HOLD_S
            return bool(waiting) or routes.pending(snapshot.types[RDS]) is not None
        return False

    def _clusters_in_the_making(self, clusters: Subscription) -> bool:
        """True until the Envoy has taken its clusters and the endpoints of each."""
        endpoints = self._subscriptions.get(EDS)
        if clusters.outstanding or (endpoints and endpoints.outstanding):
            return True
        needed = {ref for cluster in clusters.had.values() for ref in cluster.refs}
        return not needed <= (endpoints.had.keys() if endpoints else set())


def _only_removes(clusters: Subscription, snapshot: Snapshot) -> bool:
    new = snapshot.types[CDS].resources
    return len(new) < len(clusters.had) and all(clusters.had.get(name) is each for name, each in new.items())
