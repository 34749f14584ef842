"""The `headrace` command against an admin port that answers well, badly, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace_controller import operator_cli
from tests.integration.operator_cli.admin_fake import Admin, serving

CELL: dict[str, Any] = {
    "id": "site/c1",
    "site": "berlin",
    "state": "READY",
    "state_since_s": 61.2,
    "pressure": 0.25,
    "weights": {"gw-1": 70, "gw-2": 80},
    "heartbeat_age_s": 0.31,
    "cause": "engine serves",
}
FAILED = CELL | {"id": "c2", "state": "FAILED", "pressure": None, "weights": {}, "heartbeat_age_s": None}
GATEWAY = {"id": "gw-1", "connected": True, "pushes": 5, "nacks": 0, "last_nack": ""}
VIEW: dict[str, Any] = {
    "region": "eu-1",
    "warm_start": "weights are published",
    "self_preservation": False,
    "gateways": [GATEWAY],
    "cells": [CELL, FAILED],
}
EVENT = {"at": "T", "cell": "c2", "from": "READY", "to": "FAILED", "event": "engine_down", "cause": "refused"}
CELLS, ONE, EVENTS = "/api/v1/cells", "/api/v1/cells/site/c1", "/api/v1/events?limit=50"
COMMANDS = (("status",), ("cells",), ("events",), ("drain", "site/c1"), ("undrain", "site/c1"))


@pytest.fixture
def admin() -> Iterator[Admin]:
    """A port that answers as a controller does."""
    with serving() as started:
        started.answer(CELLS, VIEW)
        started.answer(ONE, CELL)
        started.answer(EVENTS, {"events": [EVENT]})
        for wish in ("drain", "undrain"):
            started.answer(f"{ONE}/{wish}", {"accepted": True}, method="POST", status=202)
        yield started


def headrace(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(operator_cli.app, [*arguments, "--url", url])


def assert_refused(ended: Result, *words: str, code: int = 1) -> None:
    """One clear message on stderr, nothing on stdout, no traceback."""
    assert ended.exit_code == code, ended.stderr
    assert isinstance(ended.exception, SystemExit)
    assert ended.stdout == ""
    for word in words:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr
    if code == 1:
        assert ended.stderr.startswith("headrace: ")
        assert len(ended.stderr) < 500


def test_status_counts_by_site(admin: Admin) -> None:
    ended = headrace(admin.url, "status")
    assert ended.exit_code == 0, ended.stderr
    assert "region eu-1: weights are published" in ended.stdout
    assert "gateway gw-1: connected, 5 pushes, 0 refused\n" in ended.stdout
    assert [word.strip() for word in ended.stdout.splitlines()[-2].split("│")[1:-1]] == [
        *("berlin", "2", "1", "1 FAILED")
    ]


def test_status_tells_what_needs_a_look(admin: Admin) -> None:
    gateway = GATEWAY | {"connected": False, "nacks": 2, "last_nack": "malformed IP address"}
    admin.answer(CELLS, VIEW | {"gateways": [gateway], "self_preservation": True})
    said = headrace(admin.url, "status").stdout
    assert "gateway gw-1: not connected, 5 pushes, 2 refused (malformed IP address)" in said
    assert "self-preservation" in said


def test_cells_shows_every_cell_on_one_line(admin: Admin) -> None:
    """In a pipe a line must be whole, or `grep` finds half a cell."""
    long = CELL | {"cause": "the engine said " + "much " * 60 + "and no more"}
    admin.answer(CELLS, VIEW | {"cells": [long, FAILED]})
    lines = headrace(admin.url, "cells").stdout.splitlines()
    (first,) = [line for line in lines if "site/c1" in line]
    for word in ("READY", "61 s", "0.250", "70 80", "0.3 s", "and no more"):
        assert word in first
    (second,) = [line for line in lines if "c2" in line]
    assert second.count("-") == 3, "what is not known is a dash, never 0"


def test_cells_shows_what_is_missing_of_a_cells_figures(admin: Admin) -> None:
    members = [{"node": "host-2", "lost": True}, {"node": "host-3", "lost": False}]
    marked = CELL | {"fallback": "nvml", "telemetry_lost": True, "members": members}
    admin.answer(CELLS, VIEW | {"cells": [marked, FAILED]})
    first, second = (line for line in headrace(admin.url, "cells").stdout.splitlines() if "berlin" in line)
    assert "nvml, telemetry_lost, member lost: host-2" in first
    assert "host-3" not in first
    assert "lost" not in second


def test_events_shows_each_change(admin: Admin) -> None:
    admin.answer("/api/v1/events?limit=7", {"events": [EVENT]})
    said = headrace(admin.url, "events", "--limit", "7").stdout
    for word in EVENT.values():
        assert word in said


def test_words_from_the_fleet_are_shown_as_they_are(admin: Admin) -> None:
    """A cause is text from other machines: neither markup of the table nor orders to the terminal."""
    hostile = CELL | {"cause": "[/red] [bold]x[/bold] [Errno 111]\x1b]0;title\x07\nnext"}
    admin.answer(CELLS, VIEW | {"cells": [hostile]})
    ended = headrace(admin.url, "cells")
    assert ended.exit_code == 0, ended.stderr
    assert "[/red] [bold]x[/bold] [Errno 111]\ufffd]0;title\ufffd\ufffdnext" in ended.stdout
    assert "\x1b" not in ended.stdout


def test_json_is_what_the_controller_said(admin: Admin) -> None:
    assert json.loads(headrace(admin.url, "cells", "--json").stdout) == VIEW
    assert json.loads(headrace(admin.url, "events", "--json").stdout) == {"events": [EVENT]}
    found = json.loads(headrace(admin.url, "status", "--json").stdout)
    assert found["sites"] == {"berlin": {"READY": 1, "FAILED": 1}}
    assert found["region"] == "eu-1"
    assert json.loads(headrace(admin.url, "drain", "site/c1", "--json").stdout) == {
        "cell": "site/c1",
        "state": "READY",
    }


def test_drain_says_why_and_until_when(admin: Admin) -> None:
    admin.answer(ONE, CELL | {"state": "DRAINING"})
    ended = headrace(admin.url, "drain", "site/c1", "--cause", "new driver", "--deadline", "30")
    assert (ended.exit_code, ended.stdout) == (0, "site/c1: DRAINING\n")
    assert admin.asked[0] == ("POST", f"{ONE}/drain", {"cause": "new driver", "deadline_s": 30.0})


@pytest.mark.parametrize(("last", "code"), [("TERMINATED", 0), ("READY", 1), ("FAILED", 1)])
def test_drain_waits_and_tells_by_its_exit_code_how_it_ended(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, last: str, code: int
) -> None:
    """Scripts go on to reboot a host: only a cell that is out counts as drained."""
    monkeypatch.setattr(operator_cli, "POLL_S", 0.01)
    draining = CELL | {"state": "DRAINING"}
    admin.answer(ONE, draining, draining, draining, CELL | {"state": last})
    ended = headrace(admin.url, "drain", "site/c1", "--wait")
    assert (ended.exit_code, ended.stdout) == (code, f"site/c1: {last}\n")
    assert (f"it is {last}" in ended.stderr) == bool(code)
    assert len([path for _, path, _ in admin.asked if path == ONE]) == 4


def test_a_drain_that_never_ends_is_not_called_done(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_cli, "POLL_S", 0.0)
    monkeypatch.setattr(operator_cli, "MAX_POLLS", 3)
    admin.answer(ONE, CELL | {"state": "DRAINING"})
    assert headrace(admin.url, "drain", "site/c1", "--wait").exit_code == 1


def test_undrain_tells_the_state_that_follows(admin: Admin) -> None:
    admin.answer(ONE, CELL | {"state": "LOADING"})
    ended = headrace(admin.url, "undrain", "site/c1")
    assert (ended.exit_code, ended.stdout) == (0, "site/c1: LOADING\n")
    assert admin.asked[0] == ("POST", f"{ONE}/undrain", {"cause": "asked by the operator"})


@pytest.mark.parametrize("command", ["drain", "undrain"])
@pytest.mark.parametrize(("status", "said"), [(404, "there is no cell 'site/c1'"), (409, "it is READY")])
def test_what_the_controller_refuses_is_said_in_its_words(
    admin: Admin, command: str, status: int, said: str
) -> None:
    admin.answer(f"{ONE}/{command}", {"error": said}, method="POST", status=status)
    assert_refused(headrace(admin.url, command, "site/c1"), said)


def test_a_cell_id_cannot_leave_its_place_in_the_path(admin: Admin) -> None:
    assert_refused(headrace(admin.url, "drain", "a b?c#d%"), "nothing here")
    assert admin.asked[0][1] == "/api/v1/cells/a%20b%3Fc%23d%25/drain"


def test_the_address_may_come_from_the_environment(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no proxy stands between an operator and a port on loopback."""
    monkeypatch.setenv("HEADRACE_URL", f"{admin.url}/")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert CliRunner().invoke(operator_cli.app, ["cells"]).exit_code == 0


ODD: dict[str, Any] = {
    "HTML": b"<html><body>It works!</body></html>",
    "cut JSON": json.dumps(VIEW).encode()[:-20],
    "empty": b"",
    "not UTF-8": b'{"region": "\xff"}',
    "far too deep": b"[" * 200_000,
    "a list": [1, 2],
    "a number": 7,
    "nothing": None,
    "an empty object": {},
}
LACKING: dict[str, dict[str, Any]] = {
    "no cells": {key: VIEW[key] for key in VIEW if key != "cells"},
    "cells of another kind": VIEW | {"cells": "many"},
    "a cell without a state": VIEW | {"cells": [{key: CELL[key] for key in CELL if key != "state"}]},
    "a cell without a site": VIEW | {"cells": [{key: CELL[key] for key in CELL if key != "site"}]},
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_an_answer_of_something_else_is_called_so(admin: Admin, command: tuple[str, ...], odd: str) -> None:
    for path in (CELLS, EVENTS, ONE):
        admin.answer(path, ODD[odd])
    assert_refused(headrace(admin.url, *command), admin.url, "listen.admin")


@pytest.mark.parametrize("lacking", LACKING)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_view_that_lacks_something_is_called_another_version(
    admin: Admin, lacking: str, options: tuple[str, ...]
) -> None:
    admin.answer(CELLS, LACKING[lacking])
    for command in ("status", "cells"):
        assert_refused(headrace(admin.url, command, *options), admin.url, "of this version")


def test_a_figure_of_another_kind_is_no_figure(admin: Admin) -> None:
    admin.answer(CELLS, VIEW | {"cells": [CELL | {"pressure": "high"}]})
    assert_refused(headrace(admin.url, "cells"), "of this version")


def test_an_answer_that_breaks_off_is_said(admin: Admin) -> None:
    admin.answer(CELLS, ODD["cut JSON"])
    admin.promise = 20
    assert_refused(headrace(admin.url, "cells"), admin.url, "does not answer as a controller does")


def test_a_refusal_of_something_else_is_said_with_its_status(admin: Admin) -> None:
    admin.answer(CELLS, b"<html>no</html>", status=502)
    assert_refused(headrace(admin.url, "cells"), admin.url, "502", "listen.admin")


@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_a_controller_that_is_away(command: tuple[str, ...]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert_refused(headrace(url, *command), url, "Connection refused", "is the controller running")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (b"", "closed connection without response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer as a controller does"),
    ],
    ids=["nothing", "another protocol"],
)
def test_something_that_is_no_web_server(said: bytes, words: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(said)

        thread = threading.Thread(target=answer, name="not a web server")
        thread.start()
        ended = headrace(f"http://127.0.0.1:{server.getsockname()[1]}", "cells")
        thread.join(5)
    assert_refused(ended, words)


def test_a_controller_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_cli, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = headrace(f"http://127.0.0.1:{server.getsockname()[1]}", "cells")
    assert_refused(ended, "cannot be reached: timed out")


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:18002", "nonsense", "file:///etc/passwd", "http://", "http://h:port", "http://[::1", ""],
)
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    assert_refused(headrace(url, "cells"), "--url", "write http://HOST:PORT", code=2)


@pytest.mark.parametrize(
    "arguments",
    [("drain",), ("drain", "c1", "--deadline", "-1"), ("events", "--limit", "0"), ("cell", "c1"), ()],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(operator_cli.app, list(arguments))
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output


def test_version_and_help() -> None:
    said = CliRunner().invoke(operator_cli.app, ["--version"]).stdout
    assert said.startswith("headrace 0.")
    said = CliRunner().invoke(operator_cli.app, ["--help"]).stdout
    for words in ("Try it:\n    headrace status\n", "HEADRACE_URL", "Exit codes", "--json"):
        assert words in said
