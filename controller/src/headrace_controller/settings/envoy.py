"""`envoy`: the config that Envoys are given."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from headrace_shared.config import Settings

GENERATION_PATHS = (
    "/v1/completions",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/rerank",
    "/v1/score",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/rerank",
    "/v2/rerank",
    "/score",
    "/pooling",
    "/classify",
    "/tokenize",
    "/detokenize",
)
HttpPath = Annotated[str, Field(pattern=r"^/[A-Za-z0-9._~/-]*$", max_length=256)]


class EnvoySettings(Settings):
    """What the generated Envoy config carries; seconds and bytes.

    Only `paths` reach the engines: an engine's other paths put it to sleep or load adapters. A streamed
    request whose answer has not begun `hedge_after_s` after it was sent is asked of another endpoint as
    well, and the answer that begins first is passed on; 0 = never.
    A client whose answer was cut off is told so, over HTTP/1.1, after `delayed_close_s`: by itself Envoy
    takes a second to close its connection. 0 = at once, which may cost who still sends a body the reason
    of a refusal.
    `expose_upstream` adds the serving endpoint's address to each response, for tests and labs.
    `baseline_retries` gives the gateways of a `baseline` the same retries as ours, which a plain Envoy
    has not.
    """

    paths: tuple[HttpPath, ...] = Field(GENERATION_PATHS, min_length=1, max_length=64)

    connect_timeout_s: float = Field(0.25, gt=0, le=10)
    retries: int = Field(2, ge=0, le=10)
    hedge_after_s: float = Field(1.0, ge=0, le=60)
    delayed_close_s: float = Field(0.1, ge=0, le=60)
    stream_idle_timeout_s: float = Field(900.0, ge=1, le=86400)
    upstream_idle_timeout_s: float = Field(4.0, gt=0, le=3600)
    max_request_bytes: int = Field(33554432, ge=65536, le=1073741824)
    health_checks: bool = True
    health_check_interval_s: float = Field(1.0, ge=0.1, le=60)
    health_check_timeout_s: float = Field(1.0, ge=0.1, le=60)
    retry_after_s: int = Field(1, ge=1, le=3600)
    expose_upstream: bool = False
    baseline_retries: bool = False
