"""Any bytes become samples or one clear error."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headrace_agent.collectors.app.page import MAX_LINES, Page, Wanted, parse
from headrace_agent.collectors.app.vllm import WANTED, read
from headrace_agent.collectors.exposition import MAX_LINE_CHARS, MAX_PAGE_BYTES, PageError, Sample
from tests.unit.agent.collectors.app.engine_pages import VLLM_0_32_0, capture

QUEUE = Wanted({"queue": "queue", "wait_bucket": "wait"})


def test_only_wanted_samples_are_kept() -> None:
    """A name that merely begins like a wanted one is another family."""
    page = parse(b'queue_by_reason{reason="x"} 7\nqueue{engine="0"} 3\nqueue 4\nother 5\n', QUEUE)
    assert page.samples == (Sample("queue", {"engine": "0"}, 3.0), Sample("queue", {}, 4.0))
    assert page.problems == ()


def test_family_without_series_is_there() -> None:
    page = parse(b"# TYPE wait histogram\n", QUEUE)
    assert page.families == {"wait"}
    assert page.samples == ()
    assert not page.empty


def test_sample_names_its_family() -> None:
    assert parse(b'wait_bucket{le="1.0"} 3\n', QUEUE).families == {"wait"}


@pytest.mark.parametrize("text", ["3", "3 1700000000000", " 3.0", "3\r"])
def test_value_forms(text: str) -> None:
    page = parse(f'queue{{a="b"}} {text}\n'.encode(), QUEUE)
    assert [sample.value for sample in page.samples] == [3.0]


def test_special_values_are_kept() -> None:
    page = parse(b'queue{a="1"} NaN\nqueue{a="2"} +Inf\n', QUEUE)
    assert math.isnan(page.samples[0].value)
    assert page.samples[1].value == math.inf


def test_labels_are_unescaped() -> None:
    page = parse(rb'queue{a="x\"y}\\",b="\n"} 1' + b"\n", QUEUE)
    assert page.samples[0].labels == {"a": 'x"y}\\', "b": "\n"}


@pytest.mark.parametrize(
    "bad", ["queue{a=1} 2", 'queue{a="1"} x', 'queue{a="1"} 1_0', "queue", "queue{", 'queue{a="1"}']
)
def test_bad_line_spoils_no_other(bad: str) -> None:
    page = parse(f"queue 1\n{bad}\nqueue 2\n".encode(), Wanted({"queue": "queue"}))
    assert [sample.value for sample in page.samples] == [1.0, 2.0]
    assert page.problems == (() if bad == "queue" else ("a line of queue cannot be read",))


@pytest.mark.parametrize("raw", [b"", b"\n\n", b"  \n"])
def test_empty_page(raw: bytes) -> None:
    assert parse(raw, QUEUE).empty


def test_cut_line_is_dropped_and_said() -> None:
    """`queue 41` of a page cut after its second last byte would read `queue 4`."""
    page = parse(b'queue{a="1"} 3\nqueue{a="2"} 4', QUEUE)
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
        (b"#" * (MAX_PAGE_BYTES + 1), "larger than 8 MiB"),
    ],
    ids=["html", "html after space", "not utf-8", "too many lines", "too large"],
)
def test_no_metrics_page(raw: bytes, words: str) -> None:
    with pytest.raises(PageError, match=words):
        parse(raw, QUEUE)


def test_endless_line_is_not_parsed() -> None:
    page = parse(b'queue{a="' + b'\\"' * MAX_LINE_CHARS + b'"} 1\nqueue 2\n', QUEUE)
    assert [sample.value for sample in page.samples] == [2.0]
    assert "longer than" in page.problems[0]


def _is_contained(raw: bytes) -> None:
    try:
        page = parse(raw, WANTED)
    except PageError:
        return
    assert isinstance(page, Page)
    figures = read(page)
    for value in (figures.queue_depth, figures.running, figures.kv_fill):
        assert value is None or (math.isfinite(value) and value >= 0)


@given(st.binary(max_size=400))
def test_any_bytes(raw: bytes) -> None:
    _is_contained(raw)


LINE = st.builds(
    lambda name, labels, value: f"{name}{labels} {value}",
    st.sampled_from([*WANTED.samples, "# TYPE vllm:num_requests_waiting", "# TYPE "]),
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
    whole = set(map(str, parse(raw, WANTED).samples))
    assert set(map(str, parse(raw[:length], WANTED).samples)) <= whole
