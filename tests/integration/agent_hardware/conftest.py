"""The stub of NVML for the tests that need one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.agent_hardware.nvml_stub import Stub, built


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    """A host with one healthy GPU; every NVML process of this test sees it."""
    return Stub(tmp_path, built(), monkeypatch)
