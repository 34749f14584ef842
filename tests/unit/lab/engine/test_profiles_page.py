"""The page on the lab's engines says what the profiles are."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_lab.engine.profiles import GPUS, MODELS, profile

PAGE = (Path(__file__).parents[4] / "docs" / "lab-profiles.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", GPUS)
def test_the_stated_figures_are_those_of_the_sheet(name: str) -> None:
    sheet = GPUS[name]
    figures = f"{sheet.memory_gb:g} GB | {sheet.bandwidth / 1e12:g} TB/s | {sheet.flops / 1e12:g} TFLOPS"
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}`: ")]
    assert row.endswith(f"| {figures} | {sheet.power_w:g} W |")


@pytest.mark.parametrize("name", MODELS)
def test_the_stated_shapes_are_those_of_the_card(name: str) -> None:
    card = MODELS[name]
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{name}`: ")]
    assert f"| {card.parameters / 1e9:g} x 10^9 | {card.weight_bytes / 1e9:g} GB |" in row
    assert row.endswith(f"{card.kv_heads} x {card.head_dim} | {card.kv_bytes_per_token:,} |")


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", MODELS)
def test_what_follows_is_what_the_profiles_give(gpu: str, model: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{gpu}`, `{model}` |")]
    try:
        engine = profile(gpu, model).engine
    except ValueError:
        assert "does not fit" in row
        return
    assert [cell.strip() for cell in row.split("|")[2:-1]] == [
        f"{engine.prefill_tokens_per_s:,.0f}",
        f"{1e3 * engine.decode_base_s:.1f} ms",
        f"{1e6 * engine.decode_per_context_token_s:.3f} ms",
        f"{engine.kv_capacity_tokens:,}",
    ]
