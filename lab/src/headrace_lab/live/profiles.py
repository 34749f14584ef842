"""The command line of a simulated cell that plays a cell of the scenario file."""

from __future__ import annotations

from headrace_lab.scenarios import CellPlan


def arguments(plan: CellPlan, bytes_per_token: float) -> tuple[str, ...]:
    """What a cell is, as options of `headrace-lab cell`."""
    options = {
        "--profile": f"{plan.gpu}/{plan.model}",
        "--max-model-len": plan.max_model_len,
        "--speed": plan.speed,
        "--pcie-contention": plan.pcie_contention,
        "--refuse-share": plan.refuse_share,
        "--bytes-per-token": bytes_per_token,
    }
    return tuple(part for name, value in options.items() for part in (name, f"{value}"))
