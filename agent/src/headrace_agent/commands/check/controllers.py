"""Whether each controller can be spoken to: the connection, TLS, and who answers.

No stream is opened and nothing is registered: HTTP/2's greeting is exchanged, and that is all.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from headrace_agent.collectors.names import Resolver, UnresolvedError
from headrace_agent.commands.check.findings import Finding, error, ok, warn
from headrace_agent.settings import ControllerSettings
from headrace_shared.clock import Clock
from headrace_shared.tls import TlsError, TlsSettings, channel_credentials

# The connection preface and an empty SETTINGS frame (RFC 9113, 3.4): a server answers with its own.
GREETING: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
FRAME_HEAD: Final = 9
_SETTINGS: Final = 4
_TLS_ALERT: Final = 0x15
SOON_S: Final = 14 * 86400.0
_PORT: Final = "give the port of its listen.telemetry (18000 by default)"
_TLS_BOTH: Final = "set tls on both sides or on neither"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def check_controller(
    settings: ControllerSettings, resolver: Resolver, timeout_s: float, clock: Clock
) -> list[Finding]:
    """The findings on one controller, within about `timeout_s` seconds."""
    about, host = f"controller {settings.address}", settings.address.host
    try:
        context = (
            None if settings.tls is None else _context(settings.tls, f"controllers ({settings.address}): tls")
        )
        async with asyncio.timeout(timeout_s):
            addresses = await resolver.resolve(host)
            async with _connected(addresses, settings.address.port, host, context) as (reader, writer):
                found = _expiry(about, writer, clock.wall_ns() / 1e9)
                writer.write(GREETING)
                await writer.drain()
                return [*found, judge_greeting(about, await reader.read(FRAME_HEAD), context is not None)]
    except TlsError as trouble:
        return [error(about, str(trouble), "mend the file that it names")]
    except UnresolvedError as trouble:
        return [error(about, str(trouble), "mend the host name, or write an IP address")]
    except TimeoutError:
        return [
            error(
                about,
                f"no answer within {timeout_s:g} s",
                f"check the address and the firewalls between; {_PORT}",
            )
        ]
    except (OSError, ssl.SSLError) as trouble:
        return [_explain(about, trouble, settings.tls is not None)]


def judge_greeting(about: str, answer: bytes, tls: bool) -> Finding:
    """Who answers with these first bytes, over TLS or not."""
    if len(answer) >= FRAME_HEAD and answer[3] == _SETTINGS:
        return ok(about, f"answers as a gRPC server does, {'over TLS' if tls else 'without TLS'}")
    if answer[:1] == bytes((_TLS_ALERT,)):
        return error(about, "it speaks TLS, and this agent's settings do not", _TLS_BOTH)
    if answer.startswith(b"HTTP/"):
        return error(about, "an HTTP server answers, not a controller's telemetry port", _PORT)
    if not answer and not tls:
        return error(
            about, "it ends the connection: it may want TLS, or be no controller", f"{_TLS_BOTH}; {_PORT}"
        )
    if not answer:
        return error(
            about,
            "it ends the connection after the handshake: it may not trust this agent's certificate",
            "give cert and key, signed by the authority that the controller's telemetry_tls.ca names",
        )
    return error(about, "what answers there is no gRPC server", _PORT)


def judge_expiry(about: str, ends_at: float, now: float) -> list[Finding]:
    """What to say of a certificate that ends at `ends_at`, seconds since the epoch."""
    left_s = ends_at - now
    if left_s > SOON_S:
        return []
    return [warn(about, f"its certificate ends in {left_s / 86400:.0f} days", "renew it")]


def _expiry(about: str, writer: asyncio.StreamWriter, now: float) -> list[Finding]:
    certificate = writer.get_extra_info("peercert")
    if not certificate or "notAfter" not in certificate:
        return []
    return judge_expiry(about, ssl.cert_time_to_seconds(certificate["notAfter"]), now)


def _context(tls: TlsSettings, field: str) -> ssl.SSLContext:
    """What a handshake needs. Raises TlsError, as the agent itself does at its start."""
    channel_credentials(tls, field)
    assert tls.ca is not None, "a client without it is refused above"
    try:
        context = ssl.create_default_context(cafile=str(tls.ca))
        # What the agent speaks TLS with does not ask for this much of an authority's certificate.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        context.set_alpn_protocols(["h2"])
        if tls.cert is not None:
            context.load_cert_chain(tls.cert, tls.key)
    except (OSError, ssl.SSLError) as trouble:
        raise TlsError(
            f"{field}: {trouble}; give PEM files, with the key that belongs to the certificate"
        ) from trouble
    return context


@asynccontextmanager
async def _connected(
    addresses: Sequence[str], port: int, name: str, context: ssl.SSLContext | None
) -> AsyncIterator[Streams]:
    """A connection to the first address that takes one. Raises the last one's error."""
    for address in addresses[:-1]:
        with suppress(OSError):
            streams = await _open(address, port, name, context)
            break
    else:
        streams = await _open(addresses[-1], port, name, context)
    try:
        yield streams
    finally:
        streams[1].transport.abort()


async def _open(address: str, port: int, name: str, context: ssl.SSLContext | None) -> Streams:
    return await asyncio.open_connection(
        address, port, ssl=context, server_hostname=None if context is None else name
    )


def _explain(about: str, trouble: OSError, tls: bool) -> Finding:
    """What a failed connection or handshake means."""
    if isinstance(trouble, ConnectionRefusedError):
        return error(about, "connection refused", f"start the controller, or mend the address; {_PORT}")
    if isinstance(trouble, ssl.SSLCertVerificationError):
        return error(
            about,
            f"its certificate is not taken: {trouble.verify_message}",
            "let ca name the authority that signed it, and address a name that stands in the certificate",
        )
    words = str(trouble)
    if isinstance(trouble, ssl.SSLError) and ("WRONG_VERSION" in words or "record layer" in words.lower()):
        return error(about, "it does not speak TLS", _TLS_BOTH)
    if tls and (isinstance(trouble, ssl.SSLError | ConnectionResetError)):
        return error(about, f"the TLS handshake fails: {words}", "check ca, cert and key on both sides")
    return error(
        about, f"no connection: {trouble.strerror or words}", "check the address and the route to it"
    )
