"""Who descends from whom, and which process a pid means."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_agent.collectors.app.processes.table import Process, ProcessTable


def table(*pairs: tuple[int, int]) -> ProcessTable:
    """A table of (pid, parent)."""
    return ProcessTable(Process(pid, parent, started=100 + pid) for pid, parent in pairs)


FAMILY = table((1, 0), (10, 1), (11, 10), (12, 10), (13, 11), (20, 1), (30, 99))


def pids(processes: list[Process]) -> list[int]:
    return [each.pid for each in processes]


def test_descendants_come_nearest_first() -> None:
    assert pids(FAMILY.descendants(10)) == [11, 12, 13]
    assert pids(FAMILY.descendants(13)) == []
    assert pids(FAMILY.descendants(77)) == []


def test_ancestors_end_where_nobody_is_to_be_seen() -> None:
    assert pids(FAMILY.ancestors(13)) == [11, 10, 1]
    assert pids(FAMILY.ancestors(30)) == []


def test_topmost() -> None:
    assert pids(FAMILY.topmost([13, 11, 20])) == [11, 20]
    assert pids(FAMILY.topmost([13, 10, 12])) == [10]
    assert pids(FAMILY.topmost([77])) == []


def test_a_pid_that_is_used_again_is_another_process() -> None:
    before = Process(10, 1, started=110, name="vllm")
    assert FAMILY.has(before)
    assert not FAMILY.has(Process(10, 1, started=111))
    assert before == Process(10, 2, started=110, name="VLLM::EngineCore"), (
        "adopted and renamed, it is the same"
    )
    assert not FAMILY.has(Process(77, 1, started=177))


@given(st.dictionaries(st.integers(0, 12), st.integers(0, 12), max_size=13))
def test_no_family_is_too_tangled(parents: dict[int, int]) -> None:
    """Even loops, which a table read while processes come and go may show."""
    tangled = table(*parents.items())
    for pid in parents:
        below, above = pids(tangled.descendants(pid)), pids(tangled.ancestors(pid))
        assert pid not in below
        assert len(set(below)) == len(below)
        assert len(set(above)) == len(above)
        if pid not in above:
            assert all(pid in pids(tangled.ancestors(child)) for child in below)
