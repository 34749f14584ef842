"""An engine's pages, read by the table of its kind, which is configured or found out."""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.kinds import AUTO, ENGINES, detect
from headrace_agent.collectors.app.pages.mapping import Engine
from headrace_agent.collectors.app.pages.page import Page, PageReader, bare_page

_NO_KIND: Final = (
    "the page has no family of an engine that is known ("
    + ", ".join(prefix for engine in ENGINES.values() for prefix in engine.prefixes)
    + "); point metrics_url at the engine's own metrics page"
)


class EnginePages:
    """Reads the pages of one engine. `kind`: the configured one, or AUTO.

    The kind that a page was found to be stays until a page is none of it any more. `engine` is the
    table that the last page was read by, None where it fits none; `misfit` says why.
    """

    def __init__(self, kind: str = AUTO) -> None:
        self._configured = kind
        self.engine: Engine | None = None
        self.misfit = ""
        self._reader: PageReader | None = None
        self._page = Page()
        self._found = ""

    @property
    def kind(self) -> str:
        """The configured kind, else the one found last; "" while it is unknown."""
        return self._found if self._configured == AUTO else self._configured

    def read(self, raw: bytes) -> Page:
        """Read a page. Raises PageError where it is no metrics page at all."""
        if self._reader is not None and self.engine is not None:
            page = self._reader.read(raw)
            if page is self._page or fits(self.engine, page):
                self._page, self.misfit = page, ""
                return page
        return self._find(raw)

    def _find(self, raw: bytes) -> Page:
        """Read a page of which it is not known that it is of the kind of the one before."""
        self._reader, self.engine, self._page = None, None, Page()
        page = bare_page(raw)
        kinds = detect(raw)
        kind = (kinds[0] if kinds else "") if self._configured == AUTO else self._configured
        if kind not in kinds:
            self.misfit = _explain(kind, kinds)
            return page
        reader, engine = PageReader(ENGINES[kind].wanted), ENGINES[kind]
        page = reader.read(raw)
        if not fits(engine, page):
            self.misfit = f"the page has none of the families of {engine.title} that are read"
            return page
        self._reader, self.engine, self._page, self._found, self.misfit = reader, engine, page, kind, ""
        return page


def fits(engine: Engine, page: Page) -> bool:
    """Whether a page has families of this kind."""
    return any(name.startswith(engine.prefixes) for name in page.families)


def _explain(configured: str, kinds: tuple[str, ...]) -> str:
    if not configured:
        return _NO_KIND
    engine = ENGINES[configured]
    if kinds:
        found = ENGINES[kinds[0]]
        return f"the page is one of {found.title}, and kind says {configured}; set kind: {found.kind} or auto"
    prefixes = " or ".join(engine.prefixes)
    words = f"the page has no {prefixes} family; is this the metrics page of {engine.title}?"
    return f"{words} {engine.help}".rstrip()
