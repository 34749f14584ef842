"""What stands in the way of a first `make` is said with the next step. No package is installed here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
NEEDED = (
    "Makefile",
    "constraints.txt",
    "requirements-dev.txt",
    *(f"{p}/pyproject.toml" for p in ("shared", "agent", "controller", "lab")),
)
OLD = "#!/bin/sh\nexit 1\n"
NO_VENV = '#!/bin/sh\n[ "$1" = -m ] && { echo "ensurepip is not available" >&2; exit 1; }\nexit 0\n'
NO_INDEX = """#!/bin/sh
[ "$1" = -m ] || exit 0
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho "Could not find a version" >&2\\nexit 1\\n' > "$3/bin/python"
chmod +x "$3/bin/python"
"""

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="needs make")


@pytest.mark.parametrize(
    ("python", "step"),
    [
        (OLD, "Headrace needs Python 3.11 or later; run make PYTHON="),
        (NO_VENV, "apt install python3-venv, then make again"),
        (NO_INDEX, "is a package index reachable (HTTPS_PROXY, PIP_INDEX_URL)? then make again"),
        (None, "Headrace needs Python 3.11 or later; run make PYTHON="),
    ],
    ids=["old Python", "no python3-venv", "no package index", "no Python"],
)
def test_the_next_step_is_said(python: str | None, step: str, tmp_path: Path) -> None:
    for name in NEEDED:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    stands_in = tmp_path / "python"
    if python is not None:
        stands_in.write_text(python, encoding="utf-8")
        stands_in.chmod(0o755)
    done = subprocess.run(
        ["make", "demo", f"PYTHON={stands_in}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 2
    assert step in done.stdout
    assert not (tmp_path / ".venv" / ".ready").exists(), "the next make tries again"
