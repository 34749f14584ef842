"""Members that come and go without end leave no memory behind."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from headrace_controller.projection import Endpoints
from headrace_controller.projection.plan import Endpoint
from headrace_controller.xds.resources.endpoints import Assignment

MEMBERS = 400
CHANGES = 400
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_mib() -> float:
    gc.collect()
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * PAGE / 2**20


def test_a_pool_whose_members_change_for_ever_grows_no_memory() -> None:
    all_members = [Endpoint(f"c{n}", f"10.0.{n // 250}.{n % 250}", 8000, 50) for n in range(MEMBERS)]
    whole, less = Endpoints.of(all_members), Endpoints.of(all_members[1:])
    assignment = Assignment("m", "pool/m")
    for each in (whole, less) * 10:
        assert assignment.update(each)
    before = resident_mib()
    for _ in range(CHANGES // 2):
        assignment.update(whole)
        assignment.update(less)
    assert resident_mib() - before < 10
