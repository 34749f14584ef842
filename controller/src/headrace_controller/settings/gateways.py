"""`gateways` and `gateway_reports`: the Envoys, and what they tell of the requests they carried."""

from __future__ import annotations

import ipaddress
from typing import Self

from pydantic import Field, model_validator

from headrace_controller.settings.sites import NodePattern
from headrace_shared.config import Name, Settings
from headrace_shared.net import HostPort, HostPortField


class GatewaySettings(Settings):
    """One Envoy, or several at one place. `id` is their node id, and so is what the patterns of
    `nodes` (with * and ?) match; agents measure the path to `host`, by ICMP, or by TCP connects
    to `port` where ICMP is not allowed. `listen` is where the Envoy takes requests."""

    id: Name
    nodes: tuple[NodePattern, ...] = Field((), max_length=256)
    host: str = Field(min_length=1, max_length=253)
    port: int = Field(0, ge=0, le=65535)
    listen: HostPortField = HostPort("0.0.0.0", 10000)

    @model_validator(mode="after")
    def _bindable(self) -> Self:
        try:
            ipaddress.ip_address(self.listen.host)
        except ValueError as error:
            raise ValueError(
                f"listen: {self.listen.host!r} is no IP address, and an Envoy binds only to one; "
                "write 127.0.0.1, 0.0.0.0 or [::]"
            ) from error
        return self


class GatewayReportsSettings(Settings):
    """What Envoys report back of the requests they carried; seconds and bytes.

    With `enabled` the generated Envoy config sends the controller's xDS port a record of each request,
    every `flush_s`, and the load of each endpoint, every `load_interval_s`. An Envoy that cannot send
    keeps up to `buffer_bytes` a worker and drops the rest. Above `max_records_per_s` the controller
    reads a sample. A cell's errors are judged by what gateways saw as long as they have carried a
    request to it within `trust_s`, else by what its agent says. An answer that a gateway had from a
    cell of a silent agent within `alive_s` shows that it lives.
    """

    enabled: bool = True
    flush_s: float = Field(0.2, ge=0.1, le=1)
    buffer_bytes: int = Field(65536, ge=4096, le=2097152)
    max_records_per_s: float = Field(2000.0, ge=1, le=1000000)
    load_interval_s: float = Field(1.0, ge=0.1, le=60)
    trust_s: float = Field(60.0, ge=1, le=3600)
    alive_s: float = Field(0.5, ge=0.1, le=10)

    @model_validator(mode="after")
    def _told_in_time(self) -> Self:
        # A record may have waited for one flush when it comes, and the next comes a flush later.
        if self.alive_s < 2 * self.flush_s:
            raise ValueError(
                f"alive_s is {self.alive_s:g} and flush_s {self.flush_s:g}: an answer would be too old when "
                "it is told; alive_s must be at least twice flush_s"
            )
        return self
