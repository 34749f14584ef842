"""Where an engine's page is: /metrics, or what another kind has instead."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, urlsplit

from headrace_agent.collectors.app.pages.kinds import AUTO

METRICS: Final = "/metrics"
_IN_PATHS: Final = "/%:@!$&'()*+,;=~"
# trtllm-serve answers /metrics with JSON.
_PATHS: Final = {AUTO: (METRICS, "/prometheus/metrics"), "tensorrt-llm": ("/prometheus/metrics",)}


class PagePaths:
    """The path to ask next. `fixed` is the only one where it is given."""

    def __init__(self, kind: str = AUTO, fixed: str = "") -> None:
        self._paths = (fixed,) if fixed else _PATHS.get(kind, (METRICS,))
        self._at = 0
        self._settled = False

    @property
    def path(self) -> str:
        """Where to ask."""
        return self._paths[self._at]

    @property
    def guessing(self) -> bool:
        """Whether the page is only looked for at `path`: that it is not there is no news."""
        return self._at > 0 and not self._settled

    def found(self) -> None:
        """The page is at `path`."""
        self._settled = True

    def missed(self) -> None:
        """The page is not at `path`: look elsewhere next time."""
        self._at = (self._at + 1) % len(self._paths)
        self._settled = False

    def go_back(self) -> None:
        """Whether the page is at `path` could not be told: ask where it belongs."""
        self._at = self._at if self._settled else 0


def page_path(metrics_url: str | None) -> str:
    """The path in the address of a page, /metrics where it has none; "" without an address."""
    if metrics_url is None:
        return ""
    return quote(urlsplit(metrics_url).path, safe=_IN_PATHS) or METRICS


def origin(metrics_url: str) -> str:
    """The address without its path."""
    parts = urlsplit(metrics_url)
    return f"{parts.scheme}://{parts.netloc}"
