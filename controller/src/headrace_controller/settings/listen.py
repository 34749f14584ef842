"""`listen`: where agents, Envoys and operators reach the controller."""

from __future__ import annotations

from typing import Self

from pydantic import model_validator

from headrace_shared.config import Settings
from headrace_shared.net import HostPort, HostPortField
from headrace_shared.tls import TlsSettings


class ListenSettings(Settings):
    """Where the controller listens: agents, Envoys, operators."""

    telemetry: HostPortField = HostPort("127.0.0.1", 18000)
    xds: HostPortField = HostPort("127.0.0.1", 18001)
    admin: HostPortField = HostPort("127.0.0.1", 18002)
    telemetry_tls: TlsSettings | None = None
    xds_tls: TlsSettings | None = None
    admin_tls: TlsSettings | None = None

    @model_validator(mode="after")
    def _apart(self) -> Self:
        seen: dict[HostPort, str] = {}
        for field in ("telemetry", "xds", "admin"):
            address: HostPort = getattr(self, field)
            if address.port and address in seen:
                raise ValueError(
                    f"listen.{field}: {address} is that of listen.{seen[address]} too; give each its own port"
                )
            seen[address] = field
        return self
