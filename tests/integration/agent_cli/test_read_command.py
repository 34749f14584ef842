"""`headrace-agent read`: from files, stdin and URLs, and what cannot be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace_shared.signals import NAMES
from tests.integration.agent_cli.program import Ended, http_server, invoke, run, silent_server
from tests.unit.agent.collectors.app.engine_pages import VLLM_0_10_2, capture, vllm_page

DATA = Path(__file__).parents[2] / "data"
ENGINE_PAGE = DATA / "engine_pages" / VLLM_0_10_2
DCGM_PAGE = DATA / "dcgm_pages" / "dcgm_t4.prom"
MIG_PAGE = DATA / "dcgm_pages" / "dcgm_a100_mig.prom"


def assert_unreadable(ended: Ended, *words: str) -> None:
    """Exit code 2, the reason in words on stderr, and nothing on stdout."""
    assert ended.code == 2, ended.err
    assert ended.out == ""
    assert ended.err.startswith("headrace-agent: ")
    for each in words:
        assert each in ended.err


async def test_an_engine_page_as_json_has_the_four_keys_and_all_ten_signals() -> None:
    ended = await run("read", "engine", ENGINE_PAGE, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert list(ended.data) == ["kind", "signals", "source", "warnings"]
    assert list(ended.data["signals"]) == list(NAMES)
    assert ended.data["signals"]["kv_fill"] == pytest.approx(0.4271)
    assert ended.data["signals"]["gpu_util"] is None


async def test_a_page_may_come_by_stdin_and_in_two() -> None:
    alone = await run("read", "engine", "-", "--json", stdin=capture(VLLM_0_10_2))
    assert alone.data == (await invoke("read", "engine", ENGINE_PAGE, "--json")).data
    difference = await invoke("read", "engine", ENGINE_PAGE, "-", "--json", stdin=capture(VLLM_0_10_2))
    assert difference.data["signals"]["error_rate"] is None, "nothing happened between a page and itself"


async def test_a_table_for_people() -> None:
    ended = await invoke("read", "dcgm", MIG_PAGE)
    assert ended.code == 0
    assert "kind: dcgm" in ended.out
    row = next(line for line in ended.out.splitlines() if "compute_active" in line)
    assert "92.9 %" in row
    assert "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE" in row
    assert "warning: " in ended.out


async def test_one_gpu_of_a_page_and_one_that_is_not_there() -> None:
    assert (await invoke("read", "dcgm", DCGM_PAGE, "--gpu", "0", "--json")).data["kind"] == "dcgm"
    assert_unreadable(await invoke("read", "dcgm", DCGM_PAGE, "--gpu", "3", "--json"), "GPU 3", "0 = GPU-")


async def test_pages_by_url_with_and_without_a_path() -> None:
    routes = {"/metrics": (200, vllm_page(waiting=7)), "/dcgm": (200, DCGM_PAGE.read_bytes())}
    asked: list[str] = []
    async with http_server(routes, asked) as port:
        at = f"http://127.0.0.1:{port}"
        bare = await invoke("read", "engine", at, "--json")
        full = await invoke("read", "engine", f"{at}/metrics", "--json")
        gpus = await invoke("read", "dcgm", f"{at}/dcgm", "--json")
    assert bare.data == full.data
    assert bare.data["signals"]["queue_depth"] == 7
    assert gpus.data["signals"]["gpu_util"] == 0.91
    assert asked == ["GET /metrics", "GET /metrics", "GET /dcgm"], "one GET each"


async def test_a_bare_address_finds_the_page_that_trtllm_serve_keeps_elsewhere() -> None:
    routes = {
        "/metrics": (200, {"iter": 3}),
        "/prometheus/metrics": (200, b"trtllm_num_requests_waiting 4\n"),
    }
    async with http_server(routes) as port:
        ended = await invoke("read", "engine", f"http://127.0.0.1:{port}", "--json")
    assert ended.data["kind"] == "tensorrt-llm"
    assert ended.data["signals"]["queue_depth"] == 4


@pytest.mark.parametrize("what", ["engine", "dcgm"])
async def test_what_is_no_metrics_page(what: str, tmp_path: Path) -> None:
    pages = {
        "html": (b"<html><body>hello</body></html>", "HTML"),
        "json": (b'{"data": [1, 2]}\n', "not one line of this is a metric"),
        "binary": (b"\xff\xfe\x00\x01", "UTF-8"),
        "prose": (b"It was a dark night.\n", "not one line of this is a metric"),
    }
    for name, (raw, words) in pages.items():
        path = tmp_path / name
        path.write_bytes(raw)
        assert_unreadable(await invoke("read", what, path, "--json"), name, words)


async def test_an_empty_page_is_read_and_says_that_it_is_empty() -> None:
    for what in ("engine", "dcgm"):
        ended = await invoke("read", what, "-", "--json")
        assert ended.code == 0
        assert set(ended.data["signals"].values()) == {None}
        assert any("empty" in warning for warning in ended.data["warnings"])


async def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    assert_unreadable(
        await invoke("read", "engine", tmp_path / "none"), "No such file", "give a readable file"
    )
    assert_unreadable(await invoke("read", "dcgm", tmp_path), "Is a directory")
    large = tmp_path / "large"
    large.write_bytes(b"vllm:x 1\n" * 600_000)
    assert_unreadable(await invoke("read", "engine", large), "larger than 4 MiB")


@pytest.mark.parametrize("what", ["engine", "dcgm"])
async def test_urls_that_give_no_page_within_the_time(what: str) -> None:
    async with http_server({"/broken": (500, b"oops")}) as port, silent_server() as silent:
        at = f"http://127.0.0.1:{port}"
        assert_unreadable(await invoke("read", what, f"{at}/broken"), "500")
        assert_unreadable(await invoke("read", what, f"{at}/nowhere"), "404")
        slow = f"http://127.0.0.1:{silent}/metrics"
        assert_unreadable(await invoke("read", what, slow, "--timeout", "0.3"), "0.3 s")
    assert_unreadable(await invoke("read", what, f"{at}/metrics"), "refused")
    assert_unreadable(await invoke("read", what, "http://:9/metrics"), "is no address")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--seconds", "5"), "give a LATER_PAGE"),
        ((DCGM_PAGE, "--seconds", "0"), "more than 0"),
        ((DCGM_PAGE, "--seconds", "nan"), "more than 0"),
        ((ENGINE_PAGE,), "the same as PAGE"),
        (("--kind", "foo"), "choose one of auto, vllm"),
    ],
)
async def test_wrong_usage(arguments: tuple[str | Path, ...], words: str) -> None:
    assert_unreadable(await invoke("read", "engine", ENGINE_PAGE, *arguments), words)


async def test_the_help_shows_how() -> None:
    for page in ("read", "check", "discover"):
        ended = await invoke(page, "--help")
        assert "Try it:" in ended.out
        assert f"headrace-agent {page}" in ended.out
        assert "Exit codes: 0" in ended.out
