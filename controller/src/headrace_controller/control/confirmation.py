"""Asks an engine itself whether it lives, when its agent has fallen silent.

What proves death is a port that refuses, a connection that breaks, and an engine that says of itself
that it is not well (5xx). Any other answer is that of a server which runs: that it does not know the
path, wants a key or wants a certificate says nothing against the engine behind it, and a healthy cell
must not fail for it. Nor does it prove anything that the question could not be put: no route, an
interface that is down or no free descriptor may be this machine's own fault.
"""

from __future__ import annotations

import asyncio
import errno
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

from headrace_controller.lifecycle import Answer
from headrace_controller.settings import PoolSettings, UpstreamTlsSettings
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsError

MAX_AT_ONCE = 64
HEALTH_PATH: Final = "/health"
_UNWELL: Final = 500
_REFUSED: Final = frozenset({errno.ECONNREFUSED, errno.ECONNRESET, errno.ECONNABORTED, errno.EPIPE})
"""What a connection meets where the engine's machine answers and the engine does not."""


@dataclass(frozen=True, slots=True)
class Question:
    """Where and how an engine is asked. `models` are those that it serves: their pools' TLS applies."""

    address: HostPort
    path: str = HEALTH_PATH
    tls: bool = False
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Trust:
    """The TLS of one pool's engines."""

    context: ssl.SSLContext
    server_name: str | None = None


class EngineInquiry:
    """Asks engines for their health, at most one question per cell at a time.

    An answer below 500 within the time-out is ALIVE; 5xx, a refusal or a reset is DEAD; silence, and what
    could not be asked, is NO_ANSWER. `on_answer(cell_id, answer, detail)` is called in the event loop.
    `pools` say by which TLS the engines of a model are reached; without a `ca` there nobody's certificate
    is checked, for the question is only whether something lives. Raises headrace_shared.tls.TlsError
    where their files cannot be used.
    """

    def __init__(
        self,
        on_answer: Callable[[str, Answer, str], None],
        pools: Mapping[str, PoolSettings] | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._trusts = {
            model: _trust(pool.tls, f"pools.{model}.tls") for model, pool in (pools or {}).items() if pool.tls
        }
        self._anybody = _trust(UpstreamTlsSettings())
        self._session: aiohttp.ClientSession | None = None
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    def ask(self, cell_id: str, question: Question, timeout_s: float) -> None:
        """Ask once; does nothing while the same cell's last question is open."""
        if cell_id in self._asked:
            return
        task = asyncio.create_task(self._ask(cell_id, question, timeout_s), name=f"ask engine of {cell_id}")
        self._asked[cell_id] = task

    async def close(self) -> None:
        """Drop open questions and connections."""
        tasks = list(self._asked.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _ask(self, cell_id: str, question: Question, timeout_s: float) -> None:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(force_close=True, limit=MAX_AT_ONCE)
            )
        try:
            async with self._slots:
                answer, detail = await _put(self._session, question, self._trust_of(question), timeout_s)
        finally:
            # Before the answer is told: whoever hears it may ask again at once.
            self._asked.pop(cell_id, None)
        self._on_answer(cell_id, answer, detail)

    def _trust_of(self, question: Question) -> _Trust | None:
        """None for a question in plain HTTP."""
        for model in question.models:
            if model in self._trusts:
                return self._trusts[model]
        return self._anybody if question.tls else None


async def _put(
    session: aiohttp.ClientSession, question: Question, trust: _Trust | None, timeout_s: float
) -> tuple[Answer, str]:
    path = question.path
    url = f"{'https' if trust else 'http'}://{question.address}{path}"
    encryption: ssl.SSLContext | bool = trust.context if trust else True
    name = trust.server_name if trust else None
    try:
        async with (
            asyncio.timeout(timeout_s),
            session.get(url, allow_redirects=False, ssl=encryption, server_hostname=name) as response,
        ):
            answer = Answer.ALIVE if response.status < _UNWELL else Answer.DEAD
            return answer, f"{path} answered {response.status}"
    except TimeoutError:
        return Answer.NO_ANSWER, f"{path} did not answer within {timeout_s * 1000:.0f} ms"
    except (aiohttp.ClientError, OSError) as error:
        return _judge(path, error)


def _judge(path: str, error: Exception) -> tuple[Answer, str]:
    """What it means that the question could not be put, or was not answered in HTTP."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if cause is not None and not isinstance(cause, ssl.SSLCertVerificationError | ssl.SSLEOFError):
        return Answer.ALIVE, f"the server of {path} answers, but not to this TLS: {cause}"
    if cause is None and isinstance(error, OSError) and error.errno not in _REFUSED:
        return Answer.NO_ANSWER, f"{path} could not be asked: {error}"
    return Answer.DEAD, f"{path} cannot be reached: {error}"


def check_pools(pools: Mapping[str, PoolSettings]) -> None:
    """Raise TlsError where the TLS files of a pool cannot be used; the message names file and remedy."""
    for model, pool in pools.items():
        if pool.tls is not None:
            _trust(pool.tls, f"pools.{model}.tls")


def _trust(tls: UpstreamTlsSettings, field: str = "") -> _Trust:
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise TlsError(
            f"{field}.ca: {tls.ca} holds no usable certificate ({error}); give a PEM file"
        ) from error
    # Addresses are IP addresses; whose name a certificate must carry is known only from the settings.
    context.check_hostname = tls.ca is not None and tls.server_name is not None
    context.verify_mode = ssl.CERT_NONE if tls.ca is None else ssl.CERT_REQUIRED
    if tls.cert is not None:
        try:
            # With a password at hand OpenSSL does not ask the terminal for that of an encrypted key.
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (OSError, ValueError) as error:
            raise TlsError(
                f"{field}: cert {tls.cert} and key {tls.key} do not work together ({error}); "
                "give a certificate chain and its own key, unencrypted, both PEM"
            ) from error
    return _Trust(context, tls.server_name)
