"""SIGTERM ends each program in order, also in the middle of its work."""

from __future__ import annotations

from pathlib import Path

from headrace_lab.stack.ports import bindable
from headrace_lab.stack.program import Program
from tests.e2e.whole_path.region import Plan, Region, running_region
from tests.e2e.whole_path.traffic import load, stream_on

PROMISED_S = 2.0


async def end(region: Region, name: str) -> Program:
    """SIGTERM; it must end by itself, with status 0, and free its ports."""
    program = region.program(name)
    assert program.alive
    assert all(bindable("127.0.0.1", port) == 0 for port in program.spec.ports), "it does not listen"
    done = await region.sigterm(name)
    assert (done.code, done.killed) == (0, False), program.last_lines()
    assert done.sigterm_s is not None
    print(f"{name}: {done.sigterm_s:.2f} s of the {PROMISED_S:g} s that it has")
    for port in program.spec.ports:
        assert bindable("127.0.0.1", port) == port
    assert "Traceback" not in program.log.read_text(encoding="utf-8", errors="replace")
    return program


async def test_sigterm_under_load(tmp_path: Path) -> None:
    """A request is open on the cell, figures stream, an Envoy is connected; each then finds its
    peers gone."""
    plan = Plan({"east": ("east-1", "east-2")})
    async with running_region(tmp_path, plan) as region, load(region) as under_way:
        await under_way.sent(10)
        async with stream_on(region, "east-1", 200) as stream:
            assert (await stream.content.readline()).startswith(b"data: ")
            await end(region, "cell east-1")
        await under_way.sent(5)
        for name in ("agent east", "exporter east", "controller"):
            await end(region, name)
        await under_way.sent(5)
        await under_way.finish()
        await end(region, "cell east-2")


async def test_sigterm_when_the_peers_are_gone(tmp_path: Path) -> None:
    """Nobody is there to say goodbye to: neither the controller nor the engine nor the exporter."""
    plan = Plan({"east": ("east-1",)})
    async with running_region(tmp_path, plan) as region:
        for name in ("cell east-1", "exporter east", "controller"):
            await region.kill(name)
        await end(region, "agent east")
