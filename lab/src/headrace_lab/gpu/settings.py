"""What an exporter is told at its start."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from headrace_lab.gpu.model import GpuParameters


@dataclass(frozen=True, slots=True)
class Placement:
    """A GPU and the cell that runs on it."""

    uuid: str
    cell_url: str


@dataclass(frozen=True, slots=True)
class ExporterSettings:
    """One exporter. Raises ValueError that names every figure out of range."""

    gpus: tuple[Placement, ...]
    gpu: GpuParameters = field(default_factory=GpuParameters)
    hostname: str = "lab-node"
    collect_s: float = 0.5
    """Seconds between two makings of the page; a scrape gets the last one, however old."""
    poll_s: float = 0.2
    """Seconds between two readings of a cell's load."""
    health: bool = False
    """Whether the page has the fields of a GPU's health that are off by default."""
    pcie_share: float = 0.0
    """Share of an engine's steps that goes over the host link."""

    def __post_init__(self) -> None:
        problems = []
        if not self.gpus:
            problems.append("no GPU is given; write --gpu UUID=http://host:port for each")
        uuids = [placement.uuid for placement in self.gpus]
        for uuid in sorted({uuid for uuid in uuids if uuids.count(uuid) > 1}):
            problems.append(f"GPU {uuid} is given twice; each needs a UUID of its own")
        for name in ("collect_s", "poll_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                problems.append(f"{name} is {value}; give a number above 0")
        if problems:
            raise ValueError("; ".join(problems))


def parse_placement(text: str) -> Placement:
    """Read `UUID=http://host:port`. Raises ValueError."""
    uuid, sep, address = text.partition("=")
    problem = ValueError(f"--gpu {text!r}: write UUID=http://host:port, as in GPU-1=http://127.0.0.1:8001")
    if not sep or not re.fullmatch(r"[\w.:-]+", uuid):
        raise problem
    try:
        url = urlsplit(address)
        reachable = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError as error:
        raise problem from error
    if not reachable:
        raise problem
    return Placement(uuid, address.rstrip("/"))
