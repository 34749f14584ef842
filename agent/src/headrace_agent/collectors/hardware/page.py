"""A metrics page as bytes to samples: bounded, strict, and quick on a page seen before."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType

from prometheus_client.parser import text_string_to_metric_families

MAX_BYTES = 8 * 1024 * 1024
MAX_SAMPLES = 20_000


class PageError(Exception):
    """A page that cannot be used; the message says what was found and what was expected."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of a page. `value` may be any float, NaN and infinities included."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Page:
    """The wanted samples. `matching` counts the lines with the prefix, wanted or not; `malformed`
    counts wanted lines that could not be read and were left out."""

    samples: tuple[Sample, ...]
    matching: int
    malformed: int


def read_page(raw: bytes, prefix: str, wanted: Collection[str]) -> Page:
    """The samples of the families in `wanted`, all of which start with `prefix`.

    An empty page is a Page without samples. Raises PageError where the bytes are too many, not
    UTF-8, HTML, or cut short.
    """
    samples: list[Sample] = []
    matching = malformed = 0
    for line in _text(raw).split("\n"):
        line = line.strip()
        if not line.startswith(prefix):
            continue
        matching += 1
        if _name(line) not in wanted:
            continue
        sample = _sample(line)
        if sample is None:
            malformed += 1
        else:
            samples.append(sample)
        if len(samples) > MAX_SAMPLES:
            raise PageError(f"the page has more than {MAX_SAMPLES} samples; is this an exporter of one host?")
    return Page(tuple(samples), matching, malformed)


def _text(raw: bytes) -> str:
    if len(raw) > MAX_BYTES:
        raise PageError(f"the page is longer than {MAX_BYTES} bytes; expected a metrics page")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PageError(
            f"the page is not UTF-8 text (byte {error.start}); expected a metrics page"
        ) from error
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        raise PageError("the page is HTML; expected a metrics page, check the URL's port and path")
    # The format ends each line, the last one too, so a missing end means missing figures.
    if text.strip() and not text.endswith("\n"):
        raise PageError("the page is cut short: its last line has no end")
    return text


def _name(line: str) -> str:
    return line.partition("{")[0].split(None, 1)[0]


def _sample(line: str) -> Sample | None:
    """Read one line; None where it is malformed.

    Labels stay the same from page to page and cost most of the reading, so the part before the
    value is read once and remembered.
    """
    head, brace, tail = line.rpartition("}")
    if not brace:
        head = _name(line)
        tail = line[len(head) :]
    words = tail.split()
    series = _series(head + brace)
    if series is None or not 1 <= len(words) <= 2 or "_" in words[0]:
        return None
    try:
        return Sample(series[0], series[1], float(words[0]))
    except ValueError:
        return None


@lru_cache(maxsize=8192)
def _series(head: str) -> tuple[str, Mapping[str, str]] | None:
    try:
        families = list(text_string_to_metric_families(f"{head} 0\n"))
        sample = families[0].samples[0]
    except (ValueError, IndexError, KeyError):
        return None
    return sample.name, MappingProxyType(dict(sample.labels))
