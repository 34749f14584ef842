"""One reader for every page: strict, remembered, and bounded in what it costs."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from headrace_agent.collectors.exposition import (
    MAX_LINE_CHARS,
    MAX_NEW_BYTES,
    MAX_PAGE_LINES,
    PageError,
    SampleReader,
    any_of,
    count_lines,
    decode_page,
)
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED
from headrace_agent.collectors.hardware.page import FieldReader


def _long_lines(page: int) -> list[bytes]:
    """More than may be new on a page, and no line of it too long."""
    line = 'a{l%d_%d="' + "x" * (MAX_LINE_CHARS - 100) + '"} 1'
    return [(line % (page, number)).encode() for number in range(MAX_NEW_BYTES // (MAX_LINE_CHARS - 100) + 1)]


def _read_all(reader: SampleReader, lines: list[bytes]) -> int:
    reader.begin()
    return len([reader.read(line) for line in lines])


def test_a_page_of_too_much_that_is_new_is_refused_and_the_limit_named() -> None:
    """Such a page would keep the event loop of all engines busy, again at every read."""
    reader = SampleReader()
    for page in range(3):
        with pytest.raises(PageError, match="more than 256 KiB of series that were not there before"):
            _read_all(reader, _long_lines(page))


def test_a_large_page_that_keeps_its_series_is_read_after_a_few_tries() -> None:
    """A host of many GPU instances writes much, once: it must not be shut out for ever."""
    reader, lines = SampleReader(), _long_lines(0)
    with pytest.raises(PageError):
        _read_all(reader, lines)
    assert _read_all(reader, lines) == len(lines)


def test_what_is_remembered_is_bounded() -> None:
    reader = SampleReader()
    for page in range(20):
        with pytest.raises(PageError):
            _read_all(reader, _long_lines(page))
    assert sum(map(len, reader._heads)) <= 1024 * 1024


def test_a_line_too_long_is_not_read() -> None:
    with pytest.raises(ValueError, match="longer than"):
        SampleReader().read(b'a{b="' + b"x" * MAX_LINE_CHARS + b'"} 1')


def test_a_page_of_very_many_lines_is_refused() -> None:
    with pytest.raises(PageError, match="more than 50000 lines"):
        decode_page(b"\n" * (MAX_PAGE_LINES + 1))


def test_eight_gpus_with_pod_labels_stay_within_every_limit() -> None:
    """What the limits must never touch: a full page of a full host, read at the first try."""
    pod = ",".join(f'label_app_kubernetes_io_{n}="some-value-{n}"' for n in range(8))
    lines = [
        f'{field}{{gpu="{gpu}",UUID="GPU-00000000-0000-4000-8000-{gpu:012d}",pci_bus_id="00000000:3B:00.0",'
        f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-host-17",container="vllm",'
        f'namespace="inference-production",pod="llama-3-70b-7d9f8b6c5-x2x4z",{pod}}} 5\n'
        for field in sorted(WANTED)
        for gpu in range(8)
    ]
    page = FieldReader(PREFIX, WANTED).read("".join(lines).encode())
    assert (len(page.samples), page.malformed) == (len(lines), 0)


def test_an_exemplar_is_not_taken_for_the_value() -> None:
    with pytest.raises(ValueError):
        SampleReader().read(b'a_bucket{le="1"} 3 # {trace="x"} 0.5')


@pytest.mark.parametrize(
    "head",
    [
        'a{b="1"',
        "a{b=1}",
        'a{b="1",b="2"}',
        'a{b="1"c="2"}',
        'a{b="1"}}',
        'a{"b"="1"}',
        '{b="1"}',
        'a b{c="1"}',
    ],
)
def test_a_malformed_head_is_no_sample(head: str) -> None:
    with pytest.raises(ValueError):
        SampleReader().read(f"{head} 1".encode())


NAME = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True)
LABEL = st.from_regex(r"l[a-zA-Z0-9_]{0,8}", fullmatch=True)
TEXT = st.text(
    st.one_of(st.sampled_from('\\"n{},= \t'), st.characters(exclude_characters="\r", codec="utf-8")),
    max_size=12,
)
SPACE = st.sampled_from(["", " ", "\t"])


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@given(NAME, st.dictionaries(LABEL, TEXT, max_size=4), SPACE, st.booleans())
def test_what_is_written_is_read_back(name: str, labels: dict[str, str], space: str, comma: bool) -> None:
    """For any labels, and as the library's parser reads it."""
    inside = f",{space}".join(f'{key}{space}={space}"{_escape(value)}"' for key, value in labels.items())
    line = f"{name}{{{space}{inside}{',' if comma and labels else ''}}} 1"
    sample = SampleReader().read(line.encode())
    assert (sample.name, sample.labels, sample.value) == (name, labels, 1.0)
    (family,) = text_string_to_metric_families(line)
    assert family.samples[0].labels == sample.labels


@given(st.text(alphabet='ab{}",=\\ 1#\t', max_size=30))
def test_any_text_is_a_sample_or_a_value_error(text: str) -> None:
    try:
        sample = SampleReader().read(f"a{text}".encode())
    except ValueError:
        return
    assert sample.name.startswith("a")


NAMES = st.text(alphabet="ab:_.", max_size=5)


@given(st.sets(NAMES, min_size=1, max_size=8), NAMES)
def test_a_pattern_for_some_names_fits_them_and_no_other(names: set[str], other: str) -> None:
    pattern = re.compile(any_of(names))
    assert all(pattern.fullmatch(name) for name in names)
    assert (pattern.fullmatch(other) is not None) == (other in names)


def test_series_with_the_same_labels_share_them() -> None:
    """A host of many GPUs has a thousand series, and a few dozen different labels."""
    reader = SampleReader()
    first, second = (reader.read(name + b'{gpu="0",UUID="x"} 1') for name in (b"a", b"b"))
    assert first.labels is second.labels


@given(st.binary(max_size=200).map(lambda raw: raw.replace(b"x", b"\n")))
def test_lines_are_counted_as_bytes_count_does(raw: bytes) -> None:
    assert count_lines(raw) == raw.count(b"\n")
