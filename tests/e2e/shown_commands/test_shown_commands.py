"""Every command that the documentation shows runs, against a small region of real programs, or is listed with
the reason why it does not (`elsewhere.py`)."""

from __future__ import annotations

import re
import shutil

import pytest

from tests.e2e.shown_commands.elsewhere import NOT_RUN, reason
from tests.e2e.shown_commands.grid import Grid
from tests.e2e.shown_commands.reading import Shown, in_blocks, in_text, is_mention, shown

ALL = list(shown())
RUN = [each for each in ALL if not reason(each)]
OPTIONAL = ("promtool", "openssl", "make", "curl")
"""Programs that a machine may lack: .ci/run installs those that it needs."""


@pytest.mark.asyncio(loop_scope="package")
@pytest.mark.parametrize("each", RUN, ids=str)
async def test_the_command_runs(each: Shown, grid: Grid) -> None:
    program = each.command.split()[0]
    if program in OPTIONAL and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    code, said = await grid.run(each.command)
    assert code == 0, f"{each.page} shows `{each.command}`, which ended with {code}:\n{said[-2000:]}"


def test_every_reason_is_needed() -> None:
    idle = [each for each in NOT_RUN if not any(re.match(each, one.command) for one in ALL)]
    assert not idle, "nothing is shown that these patterns match: take them away"


def test_enough_is_run() -> None:
    """The rule that finds commands finds them."""
    assert {each.command.split()[0] for each in RUN} >= {
        "headrace",
        "headrace-agent",
        "headrace-controller",
        "envoy",
    }
    assert len(RUN) > 40


PAGE = """
Run `headrace status` or `headrace drain CELL
--wait`, not just `headrace drain`; `10.0.0.5:443` is an address.

```
make demo   # nine cells
headrace gateway check URL \\
  --json && envoy -c envoy.yaml
```

```yaml
region: eu-1
```

```console
$ headrace pools  # one line a model
model  cells
```
"""


def test_commands_are_found_where_they_stand() -> None:
    assert list(in_blocks(PAGE)) == [
        "make demo",
        "headrace gateway check URL --json",
        "envoy -c envoy.yaml",
        "headrace pools",
    ]
    inline = list(in_text(PAGE))
    assert inline == ["headrace status", "headrace drain CELL --wait", "headrace drain"]
    assert [is_mention(each) for each in inline] == [False, False, True]


def test_a_new_command_is_run_until_it_is_listed() -> None:
    for command in ("brew install headrace", "headrace conjure"):
        (new,) = in_blocks(f"```\n{command}\n```\n")
        assert not reason(Shown("docs/new.md", new))
