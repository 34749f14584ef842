"""`headrace drain` and `headrace undrain` against a running controller."""

from __future__ import annotations

import asyncio

import pytest

from headrace_lab.stack.program import console_script
from tests.e2e.whole_path.region import PATIENCE_S, Region
from tests.e2e.whole_path.traffic import failed, load, stream_on

pytestmark = pytest.mark.asyncio(loop_scope="package")

STREAM_TOKENS = 400
"""Ten seconds of 25 ms: a drain must be asked for, and its first half be over, within them."""


async def headrace(region: Region, *arguments: str) -> tuple[int, str, str]:
    """Run the operator's CLI: exit status, stdout, stderr."""
    process = await asyncio.create_subprocess_exec(
        *(console_script("headrace"), *arguments, "--url", region.fleet.api_url),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(2 * PATIENCE_S):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return process.returncode or 0, out.decode(), err.decode()


async def test_a_drained_cell_finishes_what_it_has_and_gets_nothing_new(region: Region) -> None:
    async with load(region) as under_way:
        await under_way.sent(10)
        async with stream_on(region, "west-1", STREAM_TOKENS) as stream:
            drain = asyncio.create_task(
                headrace(region, "drain", "west-1", "--wait", "--cause", "new driver"), name="drain"
            )
            try:
                await region.until(lambda: not_held(region, "west-1"), "Envoy lets go of west-1")
                since = under_way.now_s
                assert not drain.done(), "it waits for the open stream"
                assert await region.state("west-1") == "DRAINING"
                assert b"data: [DONE]" in (await stream.read()).splitlines()
                status, out, err = await drain
            finally:
                drain.cancel()
        assert (status, err) == (0, "")
        assert "west-1: TERMINATED" in out
        await under_way.sent(15)
        until = under_way.now_s
        assert (await region.hosts()).keys() == {"east-1", "east-2"}
        status, out, err = await headrace(region, "undrain", "west-1")
        assert (status, err) == (0, "")
        print(f"serves {await region.serving():.1f} s after undrain")
        await under_way.reaches("west-1")
        records = await under_way.finish()
    assert failed(records) == []
    meanwhile = [r for r in records if since <= r.sent_s < until]
    assert {r.cell for r in meanwhile} == {"east-1", "east-2"}
    drained = [e for e in await region.story("west-1") if e["event"] == "drain asked"]
    assert drained[-1]["cause"] == "new driver"


async def not_held(region: Region, cell: str) -> bool:
    """True when Envoy has no endpoint of the cell."""
    return cell not in await region.hosts()


async def test_an_unknown_cell_cannot_be_drained(region: Region) -> None:
    status, _, err = await headrace(region, "drain", "nowhere-1")
    assert status == 1
    assert "there is no cell 'nowhere-1'" in err
    assert {view["state"] for view in (await region.cells()).values()} == {"READY"}
