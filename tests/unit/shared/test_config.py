"""Settings files: every error named at once, with its line, and nothing taken from a bad file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from headrace_shared import config
from headrace_shared.config import ConfigError, Settings


class Inner(Settings):
    port: int = Field(1, ge=1, le=65535)


class Outer(Settings):
    name: str
    inner: Inner = Inner()
    items: tuple[Inner, ...] = ()
    share: float = 0.5


def problems(text: str) -> list[tuple[int, str]]:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, Outer, "a.yaml")
    return [(p.line, p.field) for p in caught.value.problems]


def test_a_good_file_is_taken_with_its_defaults() -> None:
    loaded = config.parse("name: a\nitems:\n  - port: 7\n", Outer)
    assert (loaded.name, loaded.items[0].port, loaded.inner.port) == ("a", 7, 1)


def test_all_errors_are_listed_with_their_lines() -> None:
    text = "name: 5\ninner:\n  port: 70000\nitems:\n  - port: 1\n  - prot: 2\nshare: lots\n"
    assert problems(text) == [(1, "name"), (3, "inner.port"), (6, "items[1].prot"), (7, "share")]


def test_a_list_is_not_called_too_short_for_its_bad_items() -> None:
    class Listed(Settings):
        items: tuple[Inner, ...] = Field(min_length=1)

    with pytest.raises(ConfigError) as caught:
        config.parse("items:\n  - port: 0\n", Listed)
    assert [(p.line, p.field) for p in caught.value.problems] == [(2, "items[0].port")]


def test_an_unknown_key_says_what_to_do() -> None:
    with pytest.raises(
        ConfigError, match=r"a.yaml cannot be used:\n  line 2: nmae: unknown key; check its spelling"
    ):
        config.parse("name: a\nnmae: b\n", Outer, "a.yaml")


def test_a_missing_key_is_named() -> None:
    with pytest.raises(ConfigError, match="name: this key is required"):
        config.parse("share: 0.1\n", Outer)


def test_a_key_that_stands_twice_is_an_error() -> None:
    assert problems("name: a\nname: b\n") == [(2, "name")]


def test_a_file_that_is_no_mapping_is_refused() -> None:
    assert problems("- a\n- b\n")


@pytest.mark.parametrize(
    "text", ["name: [", "name: a\n\tb: c", "a: &x [*x]", "\x00", "name: !!python/object:os.system x"]
)
def test_broken_yaml_is_one_clear_error(text: str) -> None:
    with pytest.raises(ConfigError, match="not valid YAML"):
        config.parse(text, Outer)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(ConfigError):
        config.parse("[" * 5000, Outer)


@pytest.mark.parametrize("value", [".nan", ".inf"])
def test_numbers_that_are_no_numbers_are_refused(value: str) -> None:
    assert problems(f"name: a\nshare: {value}\n") == [(2, "share")]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        config.load(tmp_path / "none.yaml", Outer)
    latin = tmp_path / "latin.yaml"
    latin.write_bytes("name: caf\xe9\n".encode("latin-1"))
    with pytest.raises(ConfigError, match="not UTF-8"):
        config.load(latin, Outer)
    big = tmp_path / "big.yaml"
    big.write_bytes(b"#" * (config.MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="bytes, more than"):
        config.load(big, Outer)


def test_settings_cannot_be_changed_after_loading() -> None:
    loaded = config.parse("name: a\n", Outer)
    with pytest.raises(ValueError, match="frozen"):
        loaded.name = "b"  # type: ignore[misc]


@given(st.text(max_size=200))
def test_any_text_is_taken_or_refused(text: str) -> None:
    try:
        config.parse(text, Outer)
    except ConfigError as error:
        named = len(error.problems)
    else:
        named = 1
    assert named
