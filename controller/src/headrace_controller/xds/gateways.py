"""What the xDS server keeps of each gateway: its newest snapshot, its Envoys, what they said."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from headrace_controller.xds.conversation import Client
from headrace_controller.xds.names import EDS, SHORT, TYPES
from headrace_controller.xds.snapshot import Snapshot
from headrace_controller.xds.status import GatewayStatus, Hooks, NackInfo, TypeStatus
from headrace_controller.xds.stream import Acked, Nacked
from headrace_shared import log

MAX_STRANGERS = 64
HEAD_CHARS = 200
TAIL_CHARS = 800
MAX_UNKNOWN_NAMES = 65536
MAX_LOGGED_NAMES = 32


@dataclass(slots=True)
class Gateway:
    """One gateway: the newest snapshot only, and its connected Envoys."""

    id: str
    hooks: Hooks
    clock: Callable[[], float]
    snapshot: Snapshot | None = None
    clients: set[Client] = field(default_factory=set)
    pushes: int = 0
    nacks: int = 0
    last_nack: NackInfo | None = None
    acked: dict[str, str] = field(default_factory=dict)
    nacked: dict[str, NackInfo] = field(default_factory=dict)
    said_unknown: set[str] = field(default_factory=set)

    def publish(self, snapshot: Snapshot) -> None:
        """Put `snapshot` in force and wake the Envoys."""
        if self.snapshot is snapshot:
            return
        self.snapshot = snapshot
        self.nacked = {
            url: nack for url, nack in self.nacked.items() if nack.version == snapshot.version(url)
        }
        self.said_unknown -= snapshot.types[EDS].resources.keys()
        for client in self.clients:
            client.wake.set()

    def take(self, client: Client, request: Any) -> None:
        """Take what an Envoy says."""
        answer = client.stream.on_request(request, self.snapshot, self.clock())
        if isinstance(answer, Acked):
            self.acked[answer.type_url] = answer.version
            self.hooks.on_ack(self.id, SHORT[answer.type_url], answer.seconds)
        elif isinstance(answer, Nacked):
            self._refused(answer)

    def next_response(self, client: Client) -> Any | None:
        """What an Envoy is to be sent now; None while there is nothing."""
        if self.snapshot is None:
            return None
        if client.stream.endpoints_only:
            self._note_unknown(client, self.snapshot)
        response = client.stream.next_response(self.snapshot, self.clock())
        if response is not None:
            self.pushes += 1
            self.hooks.on_push(self.id, SHORT[response.type_url])
        return response

    def holds(self, client: Client) -> bool:
        """True while an Envoy is to be sent what has to wait for something else."""
        return self.snapshot is not None and client.stream.holds(self.snapshot)

    def status(self) -> GatewayStatus:
        """The state, frozen."""
        return GatewayStatus(
            gateway=self.id,
            streams=len(self.clients),
            published=self.snapshot is not None,
            pushes=self.pushes,
            nacks=self.nacks,
            last_nack=self.last_nack,
            types={SHORT[url]: self._type_status(url) for url in TYPES},
            unknown=self._unknown(),
        )

    def _type_status(self, url: str) -> TypeStatus:
        subscribed = [client.stream for client in self.clients if client.stream.wants(url)]
        snapshot = self.snapshot
        return TypeStatus(
            version=snapshot.version(url) if snapshot else "",
            acked=self.acked.get(url, ""),
            in_force=snapshot is not None
            and bool(subscribed)
            and all(each.settled(url, snapshot) for each in subscribed),
            nacked=self.nacked.get(url),
        )

    def _refused(self, answer: Nacked) -> None:
        name, message = SHORT[answer.type_url], shortened(answer.message)
        info = NackInfo(name, answer.version, message, self.clock())
        self.nacks += 1
        self.last_nack = info
        if self.snapshot and self.snapshot.version(answer.type_url) == answer.version:
            self.nacked[answer.type_url] = info
        log.get("xds").error(
            "an Envoy refused a configuration and keeps the one before",
            gateway=self.id,
            type=name,
            version=answer.version,
            message=message,
        )
        self.hooks.on_nack(self.id, name, message)

    def _note_unknown(self, client: Client, snapshot: Snapshot) -> None:
        """Say once which pools are asked for that do not exist."""
        new = client.stream.unknown(snapshot) - self.said_unknown
        if not new or len(self.said_unknown) >= MAX_UNKNOWN_NAMES:
            return
        self.said_unknown |= new
        log.get("xds").warning(
            "an Envoy asks for the endpoints of a pool that no cell serves, and is given none; "
            "service_name is pool/MODEL",
            gateway=self.id,
            asked=[name[:256] for name in sorted(new)[:MAX_LOGGED_NAMES]],
            pools=sorted(snapshot.types[EDS].resources)[:MAX_LOGGED_NAMES],
        )

    def _unknown(self) -> tuple[str, ...]:
        if self.snapshot is None:
            return ()
        streams = [client.stream for client in self.clients if client.stream.endpoints_only]
        names = {name[:256] for stream in streams for name in stream.unknown(self.snapshot)}
        return tuple(sorted(names)[:MAX_LOGGED_NAMES])


def shortened(message: str) -> str:
    """A refusal on one line: how it begins, and its end, where Envoy puts the reason after the resource."""
    line = " ".join(message.split())
    if len(line) <= HEAD_CHARS + TAIL_CHARS:
        return line
    return f"{line[:HEAD_CHARS]} … {line[-TAIL_CHARS:]}"


class Gateways:
    """The fixed set of gateways, and which one an Envoy belongs to.

    `nodes` gives patterns of node ids (`*`, `?`) by gateway, for Envoys that are not named after
    their gateway.
    """

    def __init__(
        self,
        ids: Sequence[str],
        nodes: Mapping[str, Sequence[str]],
        hooks: Hooks,
        clock: Callable[[], float],
    ) -> None:
        self._all = {each: Gateway(each, hooks, clock) for each in ids}
        self._patterns = [(pattern, gateway) for gateway in ids for pattern in nodes.get(gateway, ())]
        self._hooks = hooks
        self.strangers: dict[str, int] = {}

    def __getitem__(self, gateway_id: str) -> Gateway:
        return self._all[gateway_id]

    def status(self) -> dict[str, GatewayStatus]:
        """Each gateway's state, by id."""
        return {each.id: each.status() for each in self._all.values()}

    def of_node(self, node_id: str) -> Gateway | None:
        """The gateway of the Envoy with this node id: by its name, else by the first pattern."""
        if (gateway := self._all.get(node_id)) is not None:
            return gateway
        matching = (gateway for pattern, gateway in self._patterns if fnmatchcase(node_id, pattern))
        named = next(matching, None)
        return None if named is None else self._all[named]

    def known(self) -> str:
        """What node ids there may be, for people."""
        return ", ".join([*sorted(self._all), *(pattern for pattern, _ in self._patterns)])

    def refuse(self, node_id: str, peer: str) -> None:
        """Note an Envoy that belongs to no gateway."""
        if self._is_new(node_id):
            # Said once: an Envoy that is refused comes back for ever.
            log.get("xds").warning(
                "an Envoy with an unknown node id was refused; add a gateway with this id, let a gateway's "
                "nodes name it, or correct node.id in its bootstrap",
                node=node_id[:128],
                peer=peer,
                gateways=self.known(),
            )
        self._hooks.on_stranger(node_id[:128])

    def refuse_identity(self, node_id: str, gateway: str, peer: str) -> None:
        """Note an Envoy whose certificate does not name the gateway that its node id belongs to."""
        if self._is_new(node_id):
            log.get("xds").warning(
                "an Envoy whose certificate does not name its gateway was refused; issue one with the "
                "gateway's id, or with what its nodes match, as its name",
                node=node_id[:128],
                peer=peer,
                gateway=gateway,
            )
        self._hooks.on_wrong_identity(node_id[:128])

    def _is_new(self, node_id: str) -> bool:
        """Count a refusal; whether it is the first."""
        key = node_id[:128]
        new = key not in self.strangers
        if new and len(self.strangers) >= MAX_STRANGERS:
            del self.strangers[next(iter(self.strangers))]
        self.strangers[key] = self.strangers.get(key, 0) + 1
        return new
