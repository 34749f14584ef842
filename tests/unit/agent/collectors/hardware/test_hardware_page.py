"""A page of any kind is either read or refused in words, and never crashes the reader."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.exposition import MAX_PAGE_BYTES, PageError
from headrace_agent.collectors.hardware.dcgm import PREFIX, WANTED, read_gpus
from headrace_agent.collectors.hardware.page import MAX_SAMPLES, FieldReader

UTIL = "DCGM_FI_DEV_GPU_UTIL"


def read(text: str) -> list[tuple[str, dict[str, str], float]]:
    page = FieldReader(PREFIX, {UTIL}).read(text.encode())
    return [(each.name, dict(each.labels), each.value) for each in page.samples]


@pytest.mark.parametrize("text", ["", "\n\n", "# HELP x y\n"])
def test_a_page_without_samples_is_empty_and_no_error(text: str) -> None:
    page = FieldReader(PREFIX, WANTED).read(text.encode())
    assert (page.samples, page.matching, page.malformed) == ((), 0, 0)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"<!DOCTYPE html><html></html>\n", "HTML"),
        (b"\n  <html>\n", "HTML"),
        (b"\xef\xbb\xbf<html>\n", "HTML"),
        (b"DCGM_FI_DEV_GPU_UTIL{} \xff\n", "not UTF-8"),
        (b"DCGM_FI_DEV_GPU_UTIL 91\nDCGM_FI_DEV_GPU_U", "cut short"),
        (b"DCGM_FI_DEV_GPU_UTIL 9", "cut short"),
        (b"#" * (MAX_PAGE_BYTES + 1), "larger than 4 MiB"),
    ],
)
def test_a_page_that_cannot_be_used_is_refused_with_its_reason(raw: bytes, said: str) -> None:
    with pytest.raises(PageError, match=said):
        FieldReader(PREFIX, WANTED).read(raw)


def test_a_page_of_the_greatest_length_is_read() -> None:
    raw = b"#" * (MAX_PAGE_BYTES - 1) + b"\n"
    assert FieldReader(PREFIX, WANTED).read(raw).matching == 0


def test_only_the_wanted_families_are_kept_and_the_others_counted() -> None:
    page = FieldReader(PREFIX, {UTIL}).read(b"DCGM_FI_OTHER 1\nDCGM_FI_DEV_GPU_UTIL 2\nvllm:x 3\n")
    assert [each.value for each in page.samples] == [2.0]
    assert page.matching == 2


def test_labels_may_hold_spaces_braces_commas_and_escapes() -> None:
    line = UTIL + '{gpu="0", UUID="GPU-1",err_msg="a } b, \\"c\\" {\\\\d\\n",} 5\n'
    assert read(line) == [(UTIL, {"gpu": "0", "UUID": "GPU-1", "err_msg": 'a } b, "c" {\\d\n'}, 5.0)]


def test_repeated_help_and_type_lines_are_no_trouble() -> None:
    group = f"# HELP {UTIL} util\n# TYPE {UTIL} gauge\n"
    text = group + UTIL + '{gpu="0"} 1\n' + group + UTIL + '{gpu="1"} 2\n'
    assert [value for *_, value in read(text)] == [1.0, 2.0]


@pytest.mark.parametrize("value", ["91", " 91 1700000000000", "\t91", "+91.0", "9.1e1"])
def test_a_value_may_be_written_in_any_way_the_format_allows(value: str) -> None:
    assert read(f'{UTIL}{{gpu="0"}} {value}\n')[0][2] == 91.0


def test_nan_and_infinities_are_samples_here_and_judged_later() -> None:
    values = [value for *_, value in read(f"{UTIL} NaN\n{UTIL} +Inf\n")]
    assert math.isnan(values[0])
    assert values[1] == math.inf


@pytest.mark.parametrize(
    "line",
    [UTIL, UTIL + "{", UTIL + '{gpu="0} 1', UTIL + '{gpu="0"} x', UTIL + '{gpu="0"} 1_0', UTIL + "{} 1 2 3"],
)
def test_a_malformed_line_costs_only_itself(line: str) -> None:
    page = FieldReader(PREFIX, {UTIL}).read(f"{line}\n{UTIL} 7\n".encode())
    assert [each.value for each in page.samples] == [7.0]
    assert page.malformed <= 1


def test_a_page_of_too_many_samples_is_refused() -> None:
    raw = f"{UTIL} 1\n".encode() * (MAX_SAMPLES + 1)
    with pytest.raises(PageError, match="samples"):
        FieldReader(PREFIX, WANTED).read(raw)


LINES = st.one_of(
    st.binary(max_size=80),
    st.text(max_size=60).map(lambda text: f"{UTIL}{text}\n".encode("utf-8", "replace")),
    st.text(alphabet='{}",=\\ \tagpu01.e-NI', max_size=40).map(lambda text: f"{UTIL}{text}\n".encode()),
)


@given(st.lists(LINES, max_size=8))
def test_any_bytes_give_figures_in_range_or_a_page_error(lines: list[bytes]) -> None:
    try:
        page = FieldReader(PREFIX, WANTED).read(b"".join(lines))
    except PageError:
        return
    for gpu in read_gpus(page.samples):
        assert all(0.0 <= value <= 1.0 for value in gpu.signals.values())


XID = "DCGM_FI_DEV_XID_ERRORS"
ROW = st.tuples(
    st.sampled_from([UTIL, XID, "DCGM_FI_OTHER", "# HELP x"]),
    st.sampled_from(['{gpu="0"}', '{gpu="1",err_msg="a } b"}', ""]),
    st.sampled_from(["1", "2.5", "NaN", "x", "1 1700000000000", "9" * 20]),
)


@given(st.lists(st.lists(ROW, max_size=5, unique_by=lambda row: row[:2]), min_size=2, max_size=5))
def test_a_page_reads_the_same_whatever_was_read_before_it(pages: list[list[tuple[str, str, str]]]) -> None:
    reader, wanted = FieldReader(PREFIX, {UTIL, XID}), {UTIL, XID}
    for rows in pages:
        raw = "".join(f"{name}{labels} {value}\n" for name, labels, value in sorted(rows)).encode()
        alone = FieldReader(PREFIX, wanted).read(raw)
        page = reader.read(raw)
        assert str(page.samples) == str(alone.samples)
        assert (page.matching > 0, page.malformed) == (alone.matching > 0, alone.malformed)


def test_the_first_xid_is_seen_at_once() -> None:
    """Its family is not on the page before, and stands among others that are not read."""
    reader = FieldReader(PREFIX, {UTIL, XID})
    before = f'# TYPE {UTIL} gauge\n{UTIL}{{gpu="0"}} 5\n# TYPE DCGM_FI_OTHER gauge\nDCGM_FI_OTHER 1\n'
    for load in range(3):
        reader.read(before.replace("} 5", f"}} {load}").encode())
    page = reader.read(f'{before}# TYPE {XID} gauge\n{XID}{{gpu="0"}} 79\nDCGM_FI_LAST 1\n'.encode())
    assert [each.value for each in page.samples if each.name == XID] == [79.0]
