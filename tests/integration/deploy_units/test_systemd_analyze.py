"""systemd's own judgement of the units."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.deploy.test_units import APPS, SYSTEMD

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs the package systemd"),
]

# 10 is a root service without any restriction; the agent has to see GPUs, processes and networks.
EXPOSURE = {"headrace-agent": 2.5, "headrace-controller": 1.8}


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("program", APPS)
def test_a_unit_is_understood_whole(tmp_path: Path, program: str) -> None:
    """With the program where it is here, nothing is left to remark: no unknown key, no bad value."""
    unit = tmp_path / f"{program}.service"
    here = Path(sys.executable).parent / program
    text = (SYSTEMD / f"{program}.service").read_text(encoding="utf-8")
    unit.write_text(text.replace(f"/opt/headrace/bin/{program}", str(here)), encoding="utf-8")
    done = analyze("verify", "--man=no", str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text(encoding="utf-8").replace("UMask=", "Umask="), encoding="utf-8")
    assert "'Umask'" in analyze("verify", "--man=no", str(unit)).stderr


@pytest.mark.parametrize("program", APPS)
def test_a_unit_is_not_exposed_more_than_it_must_be(program: str) -> None:
    limit = EXPOSURE[program]
    unit = str(SYSTEMD / f"{program}.service")
    done = analyze("security", "--offline=yes", f"--threshold={limit * 10:.0f}", unit)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
    assert found is not None, done.stderr
    print(f"{program}: exposure {found[1]} of at most {limit}")
    assert done.returncode == 0, done.stdout
