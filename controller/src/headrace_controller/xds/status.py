"""What the ADS server knows of each gateway, frozen for those who ask."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class NackInfo:
    """A refusal: what an Envoy said to which version; `at` is on the server's clock, in seconds."""

    type_name: str
    version: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class TypeStatus:
    """One type of one gateway.

    `version` is what is published and `acked` what an Envoy accepted last ("" = nothing yet);
    `in_force` says that every connected Envoy that takes this type accepted what is published and
    it wants. `nacked` is set while
    the published version stands refused.
    """

    version: str = ""
    acked: str = ""
    in_force: bool = False
    nacked: NackInfo | None = None


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """One gateway. `streams` counts its connected Envoys; `types` is keyed CDS, EDS, LDS, RDS.

    `unknown` are the pools that an Envoy takes endpoints of and that no cell serves.
    """

    gateway: str
    streams: int = 0
    published: bool = False
    pushes: int = 0
    nacks: int = 0
    last_nack: NackInfo | None = None
    types: Mapping[str, TypeStatus] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()

    @property
    def connected(self) -> bool:
        """True while at least one Envoy is subscribed."""
        return self.streams > 0


def _nothing(*_: object) -> None:
    return


@dataclass(frozen=True, slots=True)
class Hooks:
    """Called on the event loop as things happen; they must neither block nor raise.

    `on_push(gateway, type_name)`, `on_ack(gateway, type_name, seconds since the push)`,
    `on_nack(gateway, type_name, message)`, `on_stranger(node_id)`, `on_wrong_identity(node_id)`.
    """

    on_push: Callable[[str, str], None] = _nothing
    on_ack: Callable[[str, str, float], None] = _nothing
    on_nack: Callable[[str, str, str], None] = _nothing
    on_stranger: Callable[[str], None] = _nothing
    on_wrong_identity: Callable[[str], None] = _nothing
