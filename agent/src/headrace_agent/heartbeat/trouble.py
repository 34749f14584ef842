"""Why a controller cannot be spoken to, in words that say what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import grpc

from headrace_agent.heartbeat.conversation import NoAnswerError
from headrace_shared.tls import TlsError

_ADDRESS: Final = "is the controller running, and is the address right?"
_TLS: Final = "is TLS set on both sides or on neither, and does ca match the controller's certificate?"
# What gRPC says when a write fails before the reason of the failure has arrived.
_BROKEN: Final = "Internal error from Core"
_TLS_WORDS: Final = ("ssl", "tls", "handshake", "certificate", "peer did not", "socket closed", "http2")
_REMEDIES: Final = {
    grpc.StatusCode.UNIMPLEMENTED: "what listens there is no Headrace controller of this version",
    grpc.StatusCode.FAILED_PRECONDITION: "the controller refuses this agent",
    grpc.StatusCode.PERMISSION_DENIED: "the controller refuses this agent",
    grpc.StatusCode.UNAUTHENTICATED: "the controller refuses this agent; check its certificate",
}


@dataclass(frozen=True, slots=True)
class Trouble:
    """`key` tells kinds apart (it does not vary with ports or times), `why` and `remedy` are for people."""

    key: str
    why: str
    remedy: str


def explain(error: BaseException) -> Trouble:
    """What an attempt's error means."""
    if isinstance(error, grpc.aio.AioRpcError):
        return _explain_status(error.code(), error.details() or "")
    if isinstance(error, NoAnswerError):
        return Trouble(f"no answer: {error}", str(error), _ADDRESS)
    if isinstance(error, TlsError):
        return Trouble("tls files", str(error), "mend the file; it is read again at each attempt")
    return Trouble(type(error).__name__, str(error) or repr(error), _ADDRESS)


def _explain_status(code: grpc.StatusCode, details: str) -> Trouble:
    if details.startswith(_BROKEN):
        return Trouble("broken", "the connection broke", _ADDRESS)
    why = f"{code.name}: {details[:300]}" if details else code.name
    if code is not grpc.StatusCode.UNAVAILABLE:
        return Trouble(code.name, why, _REMEDIES.get(code, ""))
    lowered = details.lower()
    about_tls = any(word in lowered for word in _TLS_WORDS) and "refused" not in lowered
    return Trouble(
        f"{code.name} {'tls' if about_tls else 'net'}", why, f"{_ADDRESS} {_TLS}" if about_tls else _ADDRESS
    )
