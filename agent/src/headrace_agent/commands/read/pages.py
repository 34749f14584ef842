"""Pages by where they come from: a file, stdin, or a URL, in bounded time and size."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import quote, urlsplit

from headrace_agent.collectors.app.http.client import EngineClient
from headrace_agent.collectors.app.http.dial import Dialer
from headrace_agent.collectors.app.http.errors import CallError
from headrace_agent.collectors.exposition import MAX_PAGE_BYTES, PageError, decode_page, oversize
from headrace_agent.collectors.hardware.exporter import Exporter, FetchError
from headrace_agent.commands.errors import CommandError
from headrace_agent.commands.loop import run
from headrace_shared.clock import Clock

STDIN: Final = "-"
# The second is trtllm-serve's, whose /metrics is JSON.
PLACES: Final = ("/metrics", "/prometheus/metrics")
_IN_PATHS: Final = "/%:@!$&'()*+,;=~?"
# A line of the format: a comment that names a metric, or a figure. Each line is looked at once.
_LINE: Final = re.compile(
    r"^(?:# (?:HELP|TYPE) [a-zA-Z_:]|[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{|[ \t]+[-+.0-9NI]))", re.M
)


def is_url(source: str) -> bool:
    """Whether a page is named by its address."""
    return source.startswith(("http://", "https://"))


def fetch_engine_page(source: str, timeout_s: float, clock: Clock) -> bytes:
    """An engine's page. Raises CommandError where it cannot be had."""
    if not is_url(source):
        return _read_local(source)
    return run(_get(_checked(source), timeout_s, clock))


def fetch_exporter_page(source: str, timeout_s: float, clock: Clock) -> bytes:
    """A DCGM exporter's page. Raises CommandError where it cannot be had."""
    if not is_url(source):
        return _read_local(source)
    exporter = Exporter(_checked(source), timeout_s, clock)
    try:
        return exporter.fetch()
    except FetchError as error:
        raise CommandError(str(error)) from error
    finally:
        exporter.close()


def require_metrics(raw: bytes, source: str) -> None:
    """Raise CommandError where the bytes are no page of metrics; one without a line passes."""
    try:
        text = decode_page(raw)
    except PageError as error:
        raise CommandError(f"{source}: {error}") from error
    if text.strip() and _LINE.search(text) is None:
        raise CommandError(
            f"{source}: not one line of this is a metric; give an engine's or an exporter's metrics page"
        )


async def _get(url: str, timeout_s: float, clock: Clock) -> bytes:
    """The page at `url`; of an engine's bare address, the first of the places where engines show it."""
    parts = urlsplit(url)
    bare = parts.path in ("", "/") and not parts.query
    asked = quote(parts.path, safe=_IN_PATHS) + (
        f"?{quote(parts.query, safe=_IN_PATHS)}" if parts.query else ""
    )
    client = EngineClient(Dialer(url, clock), f"{parts.scheme}://{parts.netloc}")
    try:
        for path in PLACES if bare else (asked,):
            answer = await client.get(path, timeout_s, MAX_PAGE_BYTES)
            if answer.status == 200 and (not bare or _is_page(answer.body)):
                return answer.body
    except CallError as error:
        raise CommandError(f"{url}: {error}") from error
    finally:
        client.close()
    where = " or ".join(PLACES)
    said = f"no metrics page at {where}" if bare else f"HTTP {answer.status}"
    raise CommandError(f"{url}: {said}; check the address, and that the engine's metrics are on")


def _is_page(body: bytes) -> bool:
    """Whether this is text with a metric on it, or nothing yet."""
    try:
        text = decode_page(body)
    except PageError:
        return False
    return not text.strip() or _LINE.search(text) is not None


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CommandError(f"{url} is no address; write http://HOST:PORT/metrics")
    return url


def _read_local(source: str) -> bytes:
    if source == STDIN:
        return _bounded(sys.stdin.buffer, "stdin")
    try:
        with Path(source).open("rb") as file:
            return _bounded(file, source)
    except OSError as error:
        raise CommandError(
            f"{source}: {error.strerror or error}; give a readable file, an http(s) URL, or - for stdin"
        ) from error


def _bounded(file: BinaryIO, name: str) -> bytes:
    raw = file.read(MAX_PAGE_BYTES + 1)
    if len(raw) > MAX_PAGE_BYTES:
        raise CommandError(f"{name}: {oversize(MAX_PAGE_BYTES)}")
    return raw
