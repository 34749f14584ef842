"""One Envoy's ADS stream as a state machine: requests in, responses out; no sockets, no clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from envoy.service.discovery.v3 import discovery_pb2

from headrace_controller.xds.names import CDS, EDS, RDS, TYPES
from headrace_controller.xds.snapshot import Resource, Snapshot
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
    queued: a response is made of the newest snapshot when it can be written. With
    `endpoints_only` it is a stream of the endpoint discovery service.
    """

    def __init__(self, *, endpoints_only: bool = False) -> None:
        self.endpoints_only = endpoints_only
        self._types = (EDS,) if endpoints_only else TYPES
        self._subscriptions: dict[str, Subscription] = {}
        self._nonces = 0

    def wants(self, type_url: str) -> bool:
        """True once the Envoy asked for a type."""
        return type_url in self._subscriptions

    def settled(self, type_url: str, snapshot: Snapshot) -> bool:
        """True when the Envoy took all of a type that is published and it wants."""
        subscription = self._subscriptions.get(type_url)
        return subscription is not None and subscription.settled(snapshot.types[type_url])

    def unknown(self, snapshot: Snapshot) -> set[str]:
        """Names of endpoints that are asked for and that nobody knows."""
        endpoints = self._subscriptions.get(EDS)
        return endpoints.unknown(snapshot.types[EDS]) if endpoints else set()

    def refuses(self, type_url: str) -> str:
        """The version of a type that stands refused; "" = none."""
        subscription = self._subscriptions.get(type_url)
        return subscription.nacked if subscription else ""

    def on_request(self, request: Any, published: Snapshot | None, now: float) -> Acked | Nacked | None:
        """Take one DiscoveryRequest; say what it confirms or refuses, if it does.

        Types that are not served here, and answers to responses that were never sent, are ignored.
        """
        url = request.type_url or (EDS if self.endpoints_only else "")
        if url not in self._types:
            return None
        subscription = self._subscriptions.get(url)
        if subscription is None:
            self._subscriptions[url] = self._first(url, request, published)
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

    def _first(self, url: str, request: Any, published: Snapshot | None) -> Subscription:
        """The subscription of an Envoy that may hold something from before.

        One that holds what is published needs it not again, but for endpoints: it may have met a
        new cluster just before the stream broke.
        """
        subscription = Subscription(url, fill=self.endpoints_only)
        subscription.subscribe(request.resource_names)
        if published is not None and url != EDS:
            current = published.types[url]
            if request.version_info == current.version:
                subscription.resume(current)
        return subscription

    def next_response(self, snapshot: Snapshot, now: float) -> Any | None:
        """The next DiscoveryResponse, counted as sent; None while there is nothing to send.

        In the order CDS, EDS, LDS, RDS: make before break.
        """
        for url in self._types:
            subscription = self._subscriptions.get(url)
            if subscription is None:
                continue
            published = snapshot.types[url]
            resources = subscription.pending(published)
            if resources is None or self._held(url, snapshot, now):
                continue
            kept = self._still_routed(subscription, snapshot, now)
            self._nonces += 1
            subscription.sent(str(self._nonces), published.version, [*resources, *kept], now)
            if url == CDS:
                self._renew_endpoints(snapshot)
            return discovery_pb2.DiscoveryResponse(
                # With more than what is published it is not that version, should the stream break now.
                version_info=published.version + "+" if kept else published.version,
                type_url=url,
                nonce=subscription.nonce,
                resources=[each.box for each in (*resources, *kept)],
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
            return now - clusters.sent_at < HOLD_S and self._clusters_in_the_making(snapshot)
        if url == CDS and _only_removes(clusters, snapshot):
            return self._routes_in_the_making(routes, snapshot, now)
        return False

    def _still_routed(self, subscription: Subscription, snapshot: Snapshot, now: float) -> list[Resource]:
        """Clusters that go while others come: they stay until the Envoy has routes without them."""
        routes = self._subscriptions.get(RDS)
        if subscription.url != CDS or routes is None or not self._routes_in_the_making(routes, snapshot, now):
            return []
        published = snapshot.types[CDS].resources
        return [each for name, each in subscription.had.items() if name not in published]

    def _routes_in_the_making(self, routes: Subscription, snapshot: Snapshot, now: float) -> bool:
        """True until the Envoy has taken the routes that do without what is to go."""
        waiting = routes.outstanding and now - routes.sent_at < HOLD_S
        return bool(waiting) or routes.pending(snapshot.types[RDS]) is not None

    def _clusters_in_the_making(self, snapshot: Snapshot) -> bool:
        """True until the Envoy has taken its clusters and the endpoints of each."""
        clusters, endpoints = self._subscriptions[CDS], self._subscriptions.get(EDS)
        if clusters.outstanding or (endpoints and endpoints.outstanding):
            return True
        needed = {ref for cluster in snapshot.types[CDS].resources.values() for ref in cluster.refs}
        return not needed <= (endpoints.had.keys() if endpoints else set())


def _only_removes(clusters: Subscription, snapshot: Snapshot) -> bool:
    new = snapshot.types[CDS].resources
    return len(new) < len(clusters.had) and all(clusters.had.get(name) is each for name, each in new.items())
