"""Fleets: which GPUs stand at which site, what they serve, and how single cells differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import Field, model_validator

from headrace_shared.config import Name, Settings

GpuKind = Literal["h100", "h200", "rtx-pro-6000", "edge"]
ModelKind = Literal["70b-awq", "8b", "1b"]


class Difference(Settings):
    """How one cell differs from its fleet.

    `speed` scales every step (0.6 = each takes 1/0.6 as long). `pcie_contention` is the share of
    the host link's bandwidth that a neighbour takes, [0, 1). `refuse_share` is the share of
    requests, whatever their length, that the cell answers with 400.
    """

    speed: float = Field(1.0, gt=0, le=10)
    pcie_contention: float = Field(0.0, ge=0, lt=1)
    max_model_len: int | None = Field(None, ge=2, le=10_000_000)
    refuse_share: float = Field(0.0, ge=0, le=1)


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell as a scenario wants it. `number` counts over the fleet from 0."""

    id: str
    number: int
    site: str
    gpu: GpuKind
    model: ModelKind
    max_model_len: int
    speed: float
    pcie_contention: float
    refuse_share: float


class FleetPlan(Settings):
    """A fleet. `sites` lists the GPU of each cell; cells are called SITE-NUMBER, from 1.

    `bytes_per_token` is the size of prompt text that makes one token.
    """

    note: str = ""
    model: ModelKind
    max_model_len: int = Field(ge=2, le=10_000_000)
    bytes_per_token: float = Field(4.0, gt=0, le=100)
    sites: dict[Name, tuple[GpuKind, ...]] = Field(min_length=1, max_length=64)
    cells: dict[Name, Difference] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _known_cells(self) -> Self:
        known = {f"{site}-{i}" for site, gpus in self.sites.items() for i in range(1, len(gpus) + 1)}
        strangers = sorted(set(self.cells) - known)
        if strangers:
            raise ValueError(
                f"cells: {strangers[0]} stands at no site; the cells are {', '.join(sorted(known))}"
            )
        return self

    @property
    def plans(self) -> tuple[CellPlan, ...]:
        """Every cell, site by site."""
        found: list[CellPlan] = []
        for site, gpus in self.sites.items():
            for i, gpu in enumerate(gpus, 1):
                own = self.cells.get(f"{site}-{i}", Difference())
                found.append(
                    CellPlan(
                        id=f"{site}-{i}",
                        number=len(found),
                        site=site,
                        gpu=gpu,
                        model=self.model,
                        max_model_len=own.max_model_len or self.max_model_len,
                        speed=own.speed,
                        pcie_contention=own.pcie_contention,
                        refuse_share=own.refuse_share,
                    )
                )
        return tuple(found)
