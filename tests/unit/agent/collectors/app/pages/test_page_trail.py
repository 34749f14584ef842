"""A page whose wanted lines are looked for where they stood reads as if it was searched."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.engines.vllm import VLLM
from headrace_agent.collectors.app.pages.page import Page, PageReader, Wanted
from headrace_agent.collectors.trail import SEARCH_EVERY, Trail
from tests.unit.agent.collectors.app.engine_pages import VLLM_0_32_0, capture

WANTED = Wanted({"queue": "queue", "wait_bucket": "wait", "done": "done"})


@dataclass(frozen=True)
class Family:
    """One family of a page: its comments, and its series with their values."""

    name: str
    comments: tuple[str, ...]
    series: dict[str, str] = field(hash=False)

    def lines(self) -> list[str]:
        comments = [f"# {comment} {self.name} x" for comment in self.comments]
        sample = f"{self.name}_bucket" if self.name == "wait" else self.name
        return comments + [f"{sample}{labels} {value}" for labels, value in self.series.items()]


LABELS = st.sampled_from(
    ["", *(f'{{a="{letter}",le="{le}"}}' for letter in "xy }" for le in ("1.0", "+Inf"))]
)
VALUE = st.one_of(
    st.integers(0, 10**9).map(lambda number: f"{number}.0"),
    st.sampled_from(["0.5", "NaN", "+Inf", "1e3", "5 1700000000000", "1_0", "", "x", '3 # {t="u"} 1']),
)
NAME = st.sampled_from(["queue", "wait", "done", "other", "queue_by_reason"])
FAMILY = st.builds(
    Family,
    NAME,
    st.sampled_from([(), ("TYPE",), ("HELP", "TYPE")]),
    st.dictionaries(LABELS, VALUE, max_size=4),
)
PAGE = st.lists(FAMILY, max_size=6, unique_by=lambda family: family.name)


def _text(page: list[Family]) -> bytes:
    return "".join(f"{line}\n" for family in page for line in family.lines()).encode()


@st.composite
def _changed(draw: st.DrawFn, page: list[Family]) -> list[Family]:
    """The same families with other values, and with series that came and went."""
    changed = []
    for family in page:
        series = {labels: draw(VALUE) for labels in family.series if draw(st.integers(0, 9))}
        # A family that was not on the page at all may come a few pages late; that has its own test.
        grows = family.lines() and not draw(st.integers(0, 4))
        new = draw(st.dictionaries(LABELS, VALUE, max_size=1)) if grows else {}
        both = {**new, **series} if draw(st.booleans()) else {**series, **new}
        changed.append(replace(family, series=both))
    return changed if draw(st.integers(0, 9)) else changed[1:]


def _same(page: Page, other: Page) -> bool:
    # NaN is not equal to itself.
    return replace(page, values=()) == replace(other, values=()) and str(page.values) == str(other.values)


@given(st.data(), PAGE)
def test_a_page_reads_the_same_whatever_was_read_before_it(data: st.DataObject, page: list[Family]) -> None:
    reader = PageReader(WANTED)
    for _ in range(4):
        raw = _text(page)
        raw = raw[: data.draw(st.sampled_from([len(raw), len(raw), len(raw) - 1, len(raw) // 2]))]
        assert _same(reader.read(raw), PageReader(WANTED).read(raw))
        page = data.draw(_changed(page))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (b'done{s="2"} 1\n', b'done{s="2"} 1\ndone{s="4"} 1\n'),
        (b'done{s="2"} 1\nother 1\n', b'done{s="2"} 1\ndone{s="4"} 1\nother 1\n'),
        (b'other 1\ndone{s="2"} 1\n', b'other 1\ndone{s="1"} 1\ndone{s="2"} 1\n'),
        (b"# TYPE done counter\n# TYPE x y\n", b'# TYPE done counter\ndone{s="2"} 1\n# TYPE x y\n'),
        (b'done{s="2"} 1\ndone{s="4"} 1\n', b'done{s="4"} 1\n'),
        (b"done 1\nqueue 2\n", b"queue 2\ndone 1\n"),
        (b"# TYPE done counter\ndone 1\n", b"# TYPE done counters\ndone 1\n"),
        (b"done 1\n", b"done 1 1700000000000\n"),
        (b"done 1\n", b"done 1_0\n"),
        (b"done 1\n", b"done " + b"1" * 3000 + b"\n"),
        (b"done 1\n", b"done 1\ndone 2"),
        (b"done 1\n", b""),
    ],
    ids=str,
)
def test_what_came_or_went_is_seen_at_once(first: bytes, second: bytes) -> None:
    reader = PageReader(WANTED)
    reader.read(first)
    assert reader.read(second) == PageReader(WANTED).read(second)


def test_a_family_that_appears_among_others_is_seen_a_few_pages_later() -> None:
    reader = PageReader(WANTED)
    reader.read(b"# HELP a b\na 1\n# HELP c d\nc 1\n# TYPE queue gauge\nqueue 1\n")
    later = b"# HELP a b\na 1\n# TYPE done counter\ndone 1\n# HELP c d\nc 1\n# TYPE queue gauge\nqueue 2\n"
    pages = [reader.read(later) for _ in range(SEARCH_EVERY)]
    assert pages[-1].families == {"queue", "done"}
    assert all(page.samples[-1].value == 2.0 for page in pages)


def test_pages_of_the_same_lines_are_seldom_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search goes through all of a page, which is most of what reading it costs."""
    searched = []
    find = Wanted.find
    monkeypatch.setattr(Wanted, "find", lambda self, raw: searched.append(raw) or find(self, raw))
    reader, raw = PageReader(VLLM.wanted), capture(VLLM_0_32_0)
    for number in range(3 * SEARCH_EVERY + 1):
        reader.read(raw.replace(b"117.0", f"{117 + 10 * number}.0".encode()))
    assert len(searched) == 4


def test_a_figure_far_from_where_it_stood_is_searched_for() -> None:
    """Lines in between may have grown, but a page of other lines is not gone through in vain."""
    first, second = (b"queue 1\n" + b"other 1\n" * count + b"done 2\n" for count in (10, 40))
    reader = PageReader(WANTED)
    reader.read(first)
    assert Trail(first, WANTED.find(first)).follow(second) is None
    assert reader.read(second) == PageReader(WANTED).read(second)
