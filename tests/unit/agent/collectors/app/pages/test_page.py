"""Any bytes become samples or one clear error."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_agent.collectors.app.pages.engines.vllm import VLLM
from headrace_agent.collectors.app.pages.figures import read
from headrace_agent.collectors.app.pages.page import MAX_LINES, Page, PageReader, Wanted
from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    MAX_NEW_BYTES,
    MAX_PAGE_BYTES,
    Labels,
    PageError,
    Sample,
)
from tests.unit.agent.collectors.app.engine_pages import VLLM_0_6_6, VLLM_0_10_2, VLLM_0_32_0, capture

QUEUE = Wanted({"queue": "queue", "wait_bucket": "wait"})


def test_only_wanted_samples_are_kept() -> None:
    """A name that merely begins like a wanted one is another family."""
    page = PageReader(QUEUE).read(b'queue_by_reason{reason="x"} 7\nqueue{engine="0"} 3\nqueue 4\nother 5\n')
    assert page.samples == (Sample("queue", Labels({"engine": "0"}), 3.0), Sample("queue", Labels({}), 4.0))
    assert page.problems == ()


def test_family_without_series_is_there() -> None:
    page = PageReader(QUEUE).read(b"# TYPE wait histogram\n")
    assert page.families == {"wait"}
    assert page.samples == ()
    assert not page.empty


def test_sample_names_its_family() -> None:
    assert PageReader(QUEUE).read(b'wait_bucket{le="1.0"} 3\n').families == {"wait"}


@pytest.mark.parametrize("text", ["3", "3 1700000000000", " 3.0", "3\r"])
def test_value_forms(text: str) -> None:
    page = PageReader(QUEUE).read(f'queue{{a="b"}} {text}\n'.encode())
    assert [sample.value for sample in page.samples] == [3.0]


def test_special_values_are_kept() -> None:
    page = PageReader(QUEUE).read(b'queue{a="1"} NaN\nqueue{a="2"} +Inf\n')
    assert math.isnan(page.samples[0].value)
    assert page.samples[1].value == math.inf


def test_labels_are_unescaped() -> None:
    page = PageReader(QUEUE).read(rb'queue{a="x\"y}\\",b="\n"} 1' + b"\n")
    assert page.samples[0].labels == {"a": 'x"y}\\', "b": "\n"}


@pytest.mark.parametrize(
    "bad", ["queue{a=1} 2", 'queue{a="1"} x', 'queue{a="1"} 1_0', "queue", "queue{", 'queue{a="1"}']
)
def test_bad_line_spoils_no_other(bad: str) -> None:
    page = PageReader(Wanted({"queue": "queue"})).read(f"queue 1\n{bad}\nqueue 2\n".encode())
    assert [sample.value for sample in page.samples] == [1.0, 2.0]
    assert page.problems == (() if bad == "queue" else ("a line of queue cannot be read",))


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"  \n"])
def test_empty_page(raw: bytes) -> None:
    assert PageReader(QUEUE).read(raw).empty


def test_cut_line_is_dropped_and_said() -> None:
    """`queue 41` of a page cut after its second last byte would read `queue 4`."""
    page = PageReader(QUEUE).read(b'queue{a="1"} 3\nqueue{a="2"} 4')
    assert [sample.value for sample in page.samples] == [3.0]
    assert page.cut
    assert "cut short" in page.problems[0]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (b"<!DOCTYPE html><html></html>\n", "HTML"),
        (b"\n <html>\n", "HTML"),
        (b"queue 1\n\xff\xfe\n", "not UTF-8"),
        (b"queue 1\n" * (MAX_LINES + 1), "more than"),
        (b"#" * (MAX_PAGE_BYTES + 1), "larger than 4 MiB"),
    ],
    ids=["html", "html after space", "not utf-8", "too many lines", "too large"],
)
def test_no_metrics_page(raw: bytes, words: str) -> None:
    with pytest.raises(PageError, match=words):
        PageReader(QUEUE).read(raw)


def test_endless_line_is_not_parsed() -> None:
    page = PageReader(QUEUE).read(b'queue{a="' + b'\\"' * MAX_LINE_CHARS + b'"} 1\nqueue 2\n')
    assert [sample.value for sample in page.samples] == [2.0]
    assert "longer than" in page.problems[0]


def test_a_page_made_to_take_long_is_refused() -> None:
    lines = [f'queue{{l{number}="{"," * 1900}"}} 1\n' for number in range(200)]
    with pytest.raises(PageError, match="256 KiB of series"):
        PageReader(QUEUE).read("".join(lines).encode())


@pytest.mark.parametrize("name", [VLLM_0_6_6, VLLM_0_10_2, VLLM_0_32_0])
def test_real_pages_stay_far_within_the_limits(name: str) -> None:
    """What is new on the first page of a real engine is a tenth of what may be."""
    samples = PageReader(VLLM.wanted).read(capture(name)).samples
    assert sum(len(sample.name) + len(str(sample.labels)) for sample in samples) < MAX_NEW_BYTES / 10


def test_an_unchanged_page_is_read_once() -> None:
    """What an idle engine says again and again costs nothing but a look; what differs elsewhere too."""
    reader = PageReader(QUEUE)
    first = reader.read(b'queue{a="1"} 3\nother 1\n')
    assert reader.read(b'queue{a="1"} 3\nother 2\n') is first
    assert reader.read(b'queue{a="1"} 4\nother 2\n').samples[0].value == 4.0
    assert reader.read(b'queue{a="1"} 4\nother 2').cut


def test_a_page_after_one_that_was_refused_is_read_anew() -> None:
    reader = PageReader(QUEUE)
    good = b"queue 1\n"
    first = reader.read(good)
    with pytest.raises(PageError):
        reader.read(b"<html>\n")
    assert reader.read(good) == first


def _is_contained(raw: bytes) -> None:
    try:
        page = PageReader(VLLM.wanted).read(raw)
    except PageError:
        return
    assert isinstance(page, Page)
    figures = read(VLLM, page)
    for value in (figures.queue_depth, figures.running, figures.kv_fill):
        assert value is None or (math.isfinite(value) and value >= 0)


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    _is_contained(raw)


LINE = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}",
    st.sampled_from([*VLLM.wanted.samples, "# TYPE vllm:num_requests_waiting", "# TYPE "]),
    st.text(alphabet='{}=",\\ \tabel#_\u0000é', max_size=25),
    st.one_of(st.floats().map(repr), st.integers().map(str), st.text(max_size=8), st.just("9" * 400)),
)


@given(st.lists(LINE, max_size=6).map(lambda lines: "\n".join(lines).encode("utf-8", "surrogatepass")))
@example(b'vllm:num_requests_waiting{engine="0"} ' + b"9" * 400 + b"\n")
@example(b"vllm:num_requests_waiting " + b"9" * 400 + b"\n")
@example(b"# TYPE vllm:num_requests_waiting \n")
def test_any_nonsense_under_real_names(raw: bytes) -> None:
    _is_contained(raw + b"\n")


@settings(max_examples=40)
@given(st.integers(min_value=0, max_value=41_000))
def test_capture_cut_anywhere_gives_no_wrong_figure(length: int) -> None:
    """What a cut page still says is what the whole page says."""
    raw = capture(VLLM_0_32_0)
    whole = set(map(str, PageReader(VLLM.wanted).read(raw).samples))
    assert set(map(str, PageReader(VLLM.wanted).read(raw[:length]).samples)) <= whole
