"""What is deployed, judged by others: the compose specification, Kubernetes' own schemas, hadolint.

Each is also given something wrong, so that it is known to look.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
BIN = Path(sys.executable).parent
COMPOSE = ROOT / "docker-compose.yml"
DOCKERFILES = sorted((ROOT / "deploy" / "docker").glob("*.Dockerfile"))
MANIFESTS = [
    path for path in sorted((ROOT / "deploy" / "kubernetes").glob("*.yaml")) if path.stem != "kustomization"
]
LIMIT_S = 120

pytestmark = pytest.mark.extra


def judged(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one of requirements-extra.txt's programs."""
    path = BIN / program
    if not path.exists():
        pytest.skip(f"{program} is not installed: make test-extra installs requirements-extra.txt")
    return subprocess.run(
        [str(path), *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def by_the_specification(path: Path) -> subprocess.CompletedProcess[str]:
    return judged("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(path))


def test_the_compose_file_follows_the_specification(tmp_path: Path) -> None:
    done = by_the_specification(COMPOSE)
    assert done.returncode == 0, done.stdout
    whole = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))
    whole["services"]["controller"]["prots"] = []
    (tmp_path / "wrong.yml").write_text(yaml.safe_dump(whole), encoding="utf-8")
    assert by_the_specification(tmp_path / "wrong.yml").returncode == 1


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing_in_an_image(path: Path, tmp_path: Path) -> None:
    done = judged("hadolint", str(path))
    assert (done.returncode, done.stdout) == (0, ""), done.stdout
    wrong = tmp_path / path.name
    wrong.write_text(
        path.read_text(encoding="utf-8").replace("USER 10001:10001", "USER root"), encoding="utf-8"
    )
    assert "DL3002" in judged("hadolint", str(wrong)).stdout


@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_kubernetes_takes_a_manifest(path: Path, tmp_path: Path) -> None:
    done = judged("kubernetes-validate", "--strict", str(path))
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    kinds = [each["kind"] for each in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
    assert said.count("passed for resource") == len(kinds), f"something was not judged: {said}"
    wrong = tmp_path / path.name
    wrong.write_text(path.read_text(encoding="utf-8").replace("metadata:", "meatdata:", 1), encoding="utf-8")
    assert judged("kubernetes-validate", "--strict", str(wrong)).returncode != 0
