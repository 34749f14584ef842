"""Fetches a DCGM exporter's page over HTTP, in bounded time and size."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

import requests

from headrace_agent.collectors.exposition import MAX_PAGE_BYTES, oversize
from headrace_agent.collectors.hardware.transport import PlainAdapter
from headrace_agent.settings import without_secrets
from headrace_shared.clock import Clock

CHUNK = 64 * 1024


class FetchError(Exception):
    """A page that could not be fetched; the message is the same for the same cause."""


class Exporter:
    """One exporter, over one session. Its methods block: call them from a worker's thread."""

    def __init__(self, url: str, timeout_s: float, clock: Clock) -> None:
        page = url if urlsplit(url).path else f"{url}/metrics"
        # What failures name goes into logs and beats.
        self.url = without_secrets(page)
        self._page = page
        self._timeout_s = timeout_s
        self._clock = clock
        self._session = requests.Session()
        self._plain = PlainAdapter()
        self._session.mount("http://", self._plain)
        # Proxies and .netrc from the environment are for the outer world, not for this host.
        self._session.trust_env = False
        self._session.headers["Accept"] = "text/plain"
        self._session.headers["Accept-Encoding"] = "identity"
        self._request: requests.PreparedRequest | None = None

    def fetch(self) -> bytes:
        """The page as bytes, at most MAX_PAGE_BYTES + one chunk. Raises FetchError."""
        deadline = self._clock.now() + self._timeout_s
        try:
            if self._request is None:  # made once: the same is asked several times a second
                self._request = self._session.prepare_request(requests.Request("GET", self._page))
            with self._session.send(
                self._request, timeout=self._timeout_s, stream=True, allow_redirects=False
            ) as response:
                if response.status_code != 200:
                    raise FetchError(f"{self.url} answered HTTP {response.status_code}")
                return self._body(response, deadline)
        except requests.RequestException as error:
            raise FetchError(f"{self.url}: {_cause(error, self._timeout_s)}") from error

    @property
    def idle(self) -> socket.socket | None:
        """The connection kept for the next fetch, None without one or over TLS. It ends with the exporter.

        Not while a fetch is under way in another thread.
        """
        return self._plain.idle

    def close(self) -> None:
        """Close the session's connections."""
        self._session.close()

    def _body(self, response: requests.Response, deadline: float) -> bytes:
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding.lower() not in ("identity", ""):
            # A small body may unfold to anything; nothing is unfolded where no encoding is named.
            raise FetchError(f"{self.url}: the page is compressed ({encoding[:64]}), which was not asked for")
        body = bytearray()
        for chunk in response.iter_content(CHUNK):
            body += chunk
            if len(body) > MAX_PAGE_BYTES:
                raise FetchError(f"{self.url}: {oversize(MAX_PAGE_BYTES)}")
            if self._clock.now() > deadline:
                raise FetchError(f"{self.url}: the page did not end within {self._timeout_s:g} s")
        return bytes(body)


def _cause(error: requests.RequestException, timeout_s: float) -> str:
    """Why, in words without addresses or numbers that differ each time."""
    if isinstance(error, requests.Timeout):
        return f"no answer within {timeout_s:g} s"
    text = str(error)
    # A stalled body is reported as a connection error that wraps the time-out.
    if "timed out" in text.lower():
        return f"no answer within {timeout_s:g} s"
    if "refused" in text:
        return "connection refused; is the exporter running?"
    if "resolve" in text or "getaddrinfo" in text:
        return "the host name cannot be resolved"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the page was cut short"
    return f"the connection failed ({type(error).__name__})"
