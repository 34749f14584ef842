"""Which gateway a stream of reports speaks for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

import grpc

from headrace_shared import log

MAX_REMEMBERED: Final = 256

GatewayOf = Callable[[str], str | None]
"""The gateway that a node id, or a name in a certificate, belongs to."""


class Doorkeeper:
    """Lets an Envoy report for its own gateway alone.

    It is the one that its node id belongs to; with `check_identity` also its certificate must name
    that gateway, because who may report for another one decides where traffic goes.
    """

    def __init__(
        self, gateway_of: GatewayOf, on_refusal: Callable[[str], None], check_identity: bool = False
    ) -> None:
        self._gateway_of = gateway_of
        self._on_refusal = on_refusal
        self._check_identity = check_identity
        self._refused: dict[tuple[str, str], None] = {}

    async def admit(self, node_id: str, context: Any) -> str:
        """The gateway; the stream is aborted where it is none's."""
        gateway = self._gateway_of(node_id)
        if gateway is None:
            await self._refuse(
                context,
                node_id,
                "unknown_gateway",
                f"no gateway has the id {node_id[:128]!r}; add a gateway with it or correct node.id",
            )
        if self._check_identity and not is_named(gateway, self._gateway_of, context):
            await self._refuse(
                context,
                node_id,
                "wrong_identity",
                f"the certificate does not name gateway {gateway!r}; issue one with it as its name",
            )
        assert gateway is not None
        return gateway

    async def _refuse(self, context: Any, node_id: str, reason: str, detail: str) -> None:
        self._on_refusal(reason)
        key = (node_id[:128], reason)
        if key not in self._refused:
            # Said once: an Envoy tries again with every flush.
            log.get("gateway").warning(
                "reports of an Envoy refused", reason=reason, detail=detail, peer=context.peer()
            )
            while len(self._refused) >= MAX_REMEMBERED:
                del self._refused[next(iter(self._refused))]
        self._refused[key] = None
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, detail)


def is_named(gateway: str | None, gateway_of: GatewayOf, context: Any) -> bool:
    """Whether the peer's certificate names a gateway, or an Envoy that belongs to it."""
    return gateway in map(gateway_of, _names(context))


def _names(context: Any) -> Iterable[str]:
    auth = context.auth_context()
    for field in ("x509_common_name", "x509_subject_alternative_name"):
        for name in auth.get(field, []):
            yield name.decode("utf-8", "replace")
