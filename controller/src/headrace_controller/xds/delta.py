"""One Envoy's delta stream as a state machine: requests in, differences out; no sockets, no clock."""

from __future__ import annotations

from typing import Any

from envoy.service.discovery.v3 import discovery_pb2

from headrace_controller.xds.delta_subscription import DeltaSubscription, Difference
from headrace_controller.xds.names import CDS, EDS, RDS, TYPES
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.stream import HOLD_S, Acked, Nacked


class DeltaStream:
    """The state of one stream; the fleet bounds its size, whatever the Envoy sends.

    A resource is sent when its version differs from the one the Envoy has. Nothing is queued: a
    response is made of the newest snapshot when it can be written. With `endpoints_only` it is a
    stream of the endpoint discovery service.
    """

    def __init__(self, *, endpoints_only: bool = False) -> None:
        self.endpoints_only = endpoints_only
        self._types = (EDS,) if endpoints_only else TYPES
        self._subscriptions: dict[str, DeltaSubscription] = {}
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

    def on_request(self, request: Any, _published: Snapshot | None, now: float) -> Acked | Nacked | None:
        """Take one DeltaDiscoveryRequest; say what it confirms or refuses, if it does.

        Types that are not served here, and answers to responses that were never sent, are ignored.
        """
        url = request.type_url or (EDS if self.endpoints_only else "")
        if url not in self._types:
            return None
        subscription = self._subscriptions.get(url)
        if subscription is None:
            subscription = DeltaSubscription(url, fill=self.endpoints_only)
            subscription.begin(request.resource_names_subscribe, request.initial_resource_versions)
            self._subscriptions[url] = subscription
            return None
        # Unlike whole lists, changes of a list are true whatever response the request answers.
        subscription.subscribe(request.resource_names_subscribe)
        subscription.unsubscribe(request.resource_names_unsubscribe)
        refused = request.HasField("error_detail")
        sent = subscription.answered(request.response_nonce, refused=refused)
        if sent is None:
            return None
        if refused:
            return Nacked(url, sent.version, request.error_detail.message)
        return Acked(url, sent.version, max(0.0, now - sent.at))

    def next_response(self, snapshot: Snapshot, now: float) -> Any | None:
        """The next DeltaDiscoveryResponse, counted as sent; None while there is nothing to send.

        In the order CDS, EDS, LDS, RDS, and removals of clusters after the routes: make before break.
        """
        for url in self._types:
            subscription = self._subscriptions.get(url)
            if subscription is None:
                continue
            difference = self._sendable(url, subscription, snapshot, now)
            if not difference:
                continue
            return self._respond(subscription, difference, snapshot, now)
        return None

    def holds(self, snapshot: Snapshot) -> bool:
        """True while something is to be sent; asked when next_response gave nothing."""
        return any(self._pending(each, snapshot) for each in self._subscriptions.values())

    def _respond(
        self, subscription: DeltaSubscription, difference: Difference, snapshot: Snapshot, now: float
    ) -> Any:
        url = subscription.url
        if url == CDS:
            self._renew_endpoints(subscription, difference, snapshot)
        self._nonces += 1
        nonce, version = str(self._nonces), snapshot.version(url)
        subscription.sent(nonce, version, difference, now)
        return discovery_pb2.DeltaDiscoveryResponse(
            system_version_info=version,
            type_url=url,
            nonce=nonce,
            resources=[
                discovery_pb2.Resource(name=each.name, version=each.version, resource=each.box)
                for each in difference.resources
            ],
            removed_resources=difference.removed,
        )

    def _renew_endpoints(
        self, clusters: DeltaSubscription, difference: Difference, snapshot: Snapshot
    ) -> None:
        # A changed cluster waits for its endpoints once more, and does not ask for them.
        endpoints = self._subscriptions.get(EDS)
        if endpoints is None or endpoints.nacked == snapshot.version(EDS):
            return
        for cluster in difference.resources:
            if cluster.name in clusters.had:
                endpoints.forget(cluster.refs)

    def _pending(self, subscription: DeltaSubscription, snapshot: Snapshot) -> Difference:
        # The Envoy itself lets go of endpoints when their cluster goes.
        keep_gone = subscription.url == EDS and CDS in self._subscriptions
        return subscription.pending(snapshot.types[subscription.url], keep_gone=keep_gone)

    def _sendable(
        self, url: str, subscription: DeltaSubscription, snapshot: Snapshot, now: float
    ) -> Difference:
        difference = self._pending(subscription, snapshot)
        clusters, routes = self._subscriptions.get(CDS), self._subscriptions.get(RDS)
        if not difference or clusters is None or routes is None:
            return difference
        if url == RDS and now - clusters.sent_at < HOLD_S and self._clusters_in_the_making(snapshot):
            return Difference([], [])
        if url == CDS and self._routes_in_the_making(routes, snapshot, now):
            return Difference(difference.resources, [])
        return difference

    def _clusters_in_the_making(self, snapshot: Snapshot) -> bool:
        """True until the Envoy has taken its clusters and the endpoints of each."""
        clusters, endpoints = self._subscriptions[CDS], self._subscriptions.get(EDS)
        if clusters.outstanding or (endpoints and endpoints.outstanding):
            return True
        needed = {ref for cluster in snapshot.types[CDS].resources.values() for ref in cluster.refs}
        return not needed <= (endpoints.had.keys() if endpoints else set())

    def _routes_in_the_making(self, routes: DeltaSubscription, snapshot: Snapshot, now: float) -> bool:
        """True until the Envoy has taken the routes that do without what is to go."""
        waiting = routes.outstanding and now - routes.sent_at < HOLD_S
        return bool(waiting) or bool(routes.pending(snapshot.types[RDS]))
