"""A port that Envoys connect to, as the controller has one."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from headrace_controller.wire.call import Method
from headrace_controller.wire.handlers import Handlers
from headrace_controller.wire.limits import FOR_GATEWAYS
from headrace_controller.wire.server import WireServer
from headrace_shared.clock import SystemClock
from headrace_shared.net import HostPort
from headrace_shared.tls import ServerIdentity, TlsSettings

NO_METHODS: Final[Mapping[str, Method]] = MappingProxyType({})


class GatewayPort(Handlers):
    """Services are added before it starts; it starts once."""

    def __init__(self, tls: TlsSettings | None = None, more: Mapping[str, Method] = NO_METHODS) -> None:
        super().__init__()
        self._tls = tls
        self._more = more
        self._server: WireServer | None = None

    async def start(self, address: HostPort | None = None) -> int:
        context = None if self._tls is None else ServerIdentity(self._tls, "listen.xds_tls").context
        methods = {**self.methods(), **self._more}
        self._server = WireServer(methods, SystemClock(), context, FOR_GATEWAYS)
        return await self._server.start(address or HostPort("127.0.0.1", 0))

    async def stop(self, grace_s: float = 0.2) -> None:
        if self._server is not None:
            await self._server.stop(grace_s)
        await self.close()
