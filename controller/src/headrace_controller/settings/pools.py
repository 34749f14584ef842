"""`pools`: what is special to the cells of one model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, model_validator

from headrace_shared.config import Settings
from headrace_shared.tls import TlsSettings

ModelId = Annotated[str, Field(min_length=1, max_length=1024)]


class UpstreamTlsSettings(TlsSettings):
    """How gateways, and the controller's own questions, speak TLS with a pool's engines.

    The files are read by the controller. With `ca` an engine's certificate must be signed by it; without
    it the connection is encrypted and nobody's identity is checked. `server_name` is asked for (SNI), and
    with `ca` it must stand in the certificate. `cert` and `key` are shown to engines that ask for them.
    """

    server_name: str | None = Field(
        None, pattern=r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$", max_length=253
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.cert is None) != (self.key is None):
            raise ValueError("give both cert and key, or neither")
        return self


class PoolSettings(Settings):
    """What is special to the cells of one model.

    With `tls` all of them are reached by TLS, whatever their agents say; without it those whose agents
    say so, and their certificates are not checked. `api_key_file` holds the key that gateways add to
    requests and health checks (`Authorization: Bearer`), in place of what the client sent.
    `ttft_slo_s` is the time to first token at which its cells count as full; without it, it is learned.
    """

    tls: UpstreamTlsSettings | None = None
    api_key_file: Path | None = None
    ttft_slo_s: float | None = Field(None, gt=0, le=3600)
