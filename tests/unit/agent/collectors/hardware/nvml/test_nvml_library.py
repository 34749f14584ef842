"""Where an NVML library is looked for before a process is started to load it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_agent.collectors.hardware.nvml import library


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A host without the library; the path of its linker's cache."""
    cache = tmp_path / "ld.so.cache"
    monkeypatch.setattr(library, "_CACHE", cache)
    monkeypatch.setattr(library, "_USUAL", ())
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    return cache


def test_a_host_without_it() -> None:
    assert not library.is_visible()


def test_the_linkers_cache_tells(bare: Path) -> None:
    bare.write_bytes(b"glibc-ld.so.cache1.1\0libm.so.6\0")
    assert not library.is_visible()
    bare.write_bytes(b"glibc-ld.so.cache1.1\0libnvidia-ml.so.1\0/usr/lib/libnvidia-ml.so.1\0")
    assert library.is_visible()


def test_the_linkers_search_path_tells(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere::{tmp_path}")
    assert not library.is_visible()
    (tmp_path / library.NAME).touch()
    assert library.is_visible()


def test_the_usual_folders_tell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / library.NAME).touch()
    monkeypatch.setattr(library, "_USUAL", (str(tmp_path),))
    assert library.is_visible()
