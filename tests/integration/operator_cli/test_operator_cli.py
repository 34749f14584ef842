"""The `headrace` command against an admin port that answers well, badly, or not at all."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace_controller.operator_cli import acts, client, follow, program
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
DETAIL: dict[str, Any] = {
    "cell": CELL
    | {"node": "n1", "address": "h:1", "engine": "vllm 1", "in_flight": None, "error_rate": 0.5}
    | {
        "signals": {"kv_fill": 0.25, "rtt_ms": None},
        "contributions": {"kv_fill": 0.1},
        "requests": {"ok": 7},
    },
    "served": [{"id": "m", "max_model_len": 4096, "base_model": ""}],
    "gpus": ["GPU-1"],
    "labels": {"rack": "7"},
    "drain": {"requested_by": "operator", "cause": "new driver", "remaining_s": 12.0, "finished": False},
    "reports": {
        "gw-1": {"counts": {"ok": 9, "throttled": 0}, "in_progress": 1}
        | {"first_byte_p50_s": 0.25, "first_byte_p95_s": None, "whole_p50_s": 1.5, "whole_p95_s": None}
    },
    "history": [{"at": "T", "from": "", "to": "LOADING", "event": "registered", "cause": "named by n1"}],
}
FAILED = CELL | {"id": "c2", "state": "FAILED", "pressure": None, "weights": {}, "heartbeat_age_s": None}
GATEWAY = {"id": "gw-1", "connected": True, "pushes": 5, "nacks": 0, "last_nack": "", "in_force": True}
GATEWAY |= {"streams": 1}
SITE = {"site": "berlin", "cells": 2, "ready": 1, "states": {"READY": 1, "FAILED": 1}, "cordoned": False}
STATUS: dict[str, Any] = {
    "region": "eu-1",
    "warm_start": "weights are published",
    "ready": True,
    "self_preservation": False,
    "gateways": [GATEWAY],
    "sites": [SITE],
    "intents": [],
}
VIEW: dict[str, Any] = {
    "region": "eu-1",
    "warm_start": "weights are published",
    "self_preservation": False,
    "gateways": [GATEWAY],
    "cells": [CELL, FAILED],
    "total": 2,
    "next": None,
}
EVENT = {"id": 9, "at": "T", "kind": "state", "cell": "c2", "from": "READY", "to": "FAILED"}
EVENT |= {"event": "engine_down", "cause": "refused", "by": ""}
CELLS, ONE, EVENTS = "/api/v1/cells?limit=1000", "/api/v1/cells/site/c1", "/api/v1/events?limit=50"
STATUS_PATH = "/api/v1/status"
COMMANDS = (
    *(("status",), ("cells",), ("cell", "site/c1"), ("pools",), ("gateways",), ("events",), ("audit",)),
    *(("explain", "site/c1"), ("drain", "site/c1"), ("undrain", "site/c1"), ("override", "site/c1", "5")),
    *(("cordon", "berlin"), ("pin", "m", "berlin"), ("shadow", "on"), ("freeze", "off")),
)


@pytest.fixture
def admin() -> Iterator[Admin]:
    """A port that answers as a controller does."""
    with serving() as started:
        started.answer(STATUS_PATH, STATUS)
        started.answer(CELLS, VIEW)
        started.answer(ONE, DETAIL)
        started.answer(EVENTS, {"events": [EVENT], "last_id": 9})
        for wish in ("drain", "undrain"):
            told = {"cell": "site/c1", "accepted": True, "kept": True, "state": "LOADING"}
            started.answer(f"{ONE}/{wish}", told, method="POST", status=202)
        yield started


def in_state(state: str, event: str = "drain finished", in_flight: int | None = 0) -> dict[str, Any]:
    """One cell's page; `event` put it there, out of DRAINING."""
    came = {"at": "T", "from": "DRAINING", "to": state, "event": event, "cause": "nothing in flight"}
    return DETAIL | {
        "cell": DETAIL["cell"] | {"state": state, "in_flight": in_flight},
        "history": [*DETAIL["history"], came],
    }


def headrace(url: str, *arguments: str) -> Result:
    return CliRunner().invoke(program.app, [*arguments, "--url", url])


def assert_refused(ended: Result, *words: str, code: int = 1) -> None:
    """One clear message on stderr, nothing on stdout, no traceback."""
    assert ended.exit_code == code, ended.stderr
    assert isinstance(ended.exception, SystemExit)
    assert ended.stdout == ""
    for word in words:
        assert word in ended.stderr
    assert "Traceback" not in ended.stderr
    if code != 2:
        assert ended.stderr.startswith("headrace: ")
        assert len(ended.stderr) < 500


def test_status_counts_by_site(admin: Admin) -> None:
    ended = headrace(admin.url, "status")
    assert ended.exit_code == 0, ended.stderr
    assert "region eu-1: weights are published" in ended.stdout
    assert "gateway gw-1: connected, 5 pushes, 0 refused\n" in ended.stdout
    assert ended.stdout.splitlines()[-1].split(maxsplit=3) == ["berlin", "2", "1", "1 FAILED"]


def test_status_tells_what_needs_a_look(admin: Admin) -> None:
    gateway = GATEWAY | {"connected": False, "nacks": 2, "last_nack": "malformed IP address"}
    intent = {
        "kind": "override",
        "subject": "c9",
        "weight": 7,
        "sites": [],
        "cause": "canary",
        "by": "anna",
        "at": "T",
    }
    admin.answer(
        STATUS_PATH, STATUS | {"gateways": [gateway], "self_preservation": True, "intents": [intent]}
    )
    said = headrace(admin.url, "status").stdout
    assert "override c9 7 (canary; anna, T)" in said
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
    admin.answer("/api/v1/events?limit=7", {"events": [EVENT], "last_id": 9})
    said = headrace(admin.url, "events", "--limit", "7").stdout
    for name, word in EVENT.items():
        assert name == "id" or str(word) in said


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
    assert json.loads(headrace(admin.url, "events", "--json").stdout) == {"events": [EVENT], "last_id": 9}
    assert json.loads(headrace(admin.url, "status", "--json").stdout) == STATUS
    assert json.loads(headrace(admin.url, "cell", "site/c1", "--json").stdout) == DETAIL
    assert json.loads(headrace(admin.url, "drain", "site/c1", "--json").stdout) == {
        "cell": "site/c1",
        "state": "READY",
    }


def test_drain_says_why_and_until_when(admin: Admin) -> None:
    admin.answer(ONE, in_state("DRAINING"))
    ended = headrace(admin.url, "drain", "site/c1", "--cause", "new driver", "--deadline", "30")
    assert (ended.exit_code, ended.stdout) == (0, "site/c1: DRAINING\n")
    assert admin.asked[0] == ("POST", f"{ONE}/drain", {"cause": "new driver", "deadline_s": 30.0})


@pytest.mark.parametrize(("last", "code"), [("TERMINATED", 0), ("READY", 1), ("FAILED", 1)])
def test_drain_waits_and_tells_by_its_exit_code_how_it_ended(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, last: str, code: int
) -> None:
    """Scripts go on to reboot a host: only a cell that is out counts as drained."""
    monkeypatch.setattr(acts, "POLL_S", 0.01)
    draining = in_state("DRAINING")
    admin.answer(ONE, draining, draining, draining, in_state(last))
    ended = headrace(admin.url, "drain", "site/c1", "--wait")
    assert (ended.exit_code, ended.stdout) == (code, f"site/c1: {last}\n")
    assert (f"it is {last}" in ended.stderr) == bool(code)
    assert len([path for _, path, _ in admin.asked if path == ONE]) == 4


@pytest.mark.parametrize(
    ("event", "in_flight", "said"),
    [
        (
            "drain deadline",
            5,
            "ended before its requests did (drain deadline: nothing in flight), and 5 requests",
        ),
        ("engine down", None, "ended before its requests did (engine down"),
        ("drain finished", 1, "1 requests are under way"),
    ],
)
def test_a_drain_that_left_or_cut_off_requests_is_not_called_done(
    admin: Admin, monkeypatch: pytest.MonkeyPatch, event: str, in_flight: int | None, said: str
) -> None:
    monkeypatch.setattr(acts, "POLL_S", 0.01)
    admin.answer(ONE, in_state("DRAINING"), in_state("TERMINATED", event, in_flight))
    ended = headrace(admin.url, "drain", "site/c1", "--wait")
    assert (ended.exit_code, ended.stdout) == (1, "site/c1: TERMINATED\n")
    assert said in " ".join(ended.stderr.split())


@pytest.mark.parametrize(("in_flight", "code"), [(0, 0), (None, 0), (3, 1)])
def test_a_cell_that_was_out_already_is_drained_unless_requests_are_left(
    admin: Admin, in_flight: int | None, code: int
) -> None:
    admin.answer(ONE, in_state("TERMINATED", "drain deadline", in_flight))
    assert headrace(admin.url, "drain", "site/c1", "--wait").exit_code == code


@pytest.mark.parametrize("command", ["drain", "undrain"])
def test_a_drain_that_a_restart_would_forget_is_said_so(admin: Admin, command: str) -> None:
    told = {"cell": "site/c1", "accepted": True, "kept": False, "state": "LOADING"}
    admin.answer(f"{ONE}/{command}", told, method="POST")
    ended = headrace(admin.url, command, "site/c1")
    assert ended.exit_code == 0
    assert "not on disk" in ended.stderr


def test_a_drain_that_never_ends_is_not_called_done(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acts, "POLL_S", 0.0)
    monkeypatch.setattr(acts, "MAX_POLLS", 3)
    admin.answer(ONE, in_state("DRAINING"))
    assert headrace(admin.url, "drain", "site/c1", "--wait").exit_code == 1


def test_undrain_tells_the_state_that_follows(admin: Admin) -> None:
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
    assert CliRunner().invoke(program.app, ["cells"]).exit_code == 0


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


PATHS = (
    *("/api/v1/pools", "/api/v1/gateways", "/api/v1/audit?limit=50", f"{ONE}/explain", f"{ONE}/override"),
    *("/api/v1/sites/berlin/cordon", "/api/v1/pools/m/pin", "/api/v1/shadow", "/api/v1/freeze"),
)


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_an_answer_of_something_else_is_called_so(admin: Admin, command: tuple[str, ...], odd: str) -> None:
    everything = {path for _, path in admin.answers} | set(PATHS)
    for path in everything:
        for method in ("GET", "POST", "PUT", "DELETE"):
            admin.answer(path, ODD[odd], method=method)
    assert_refused(headrace(admin.url, *command), admin.url, "listen.admin", code=3)


@pytest.mark.parametrize("lacking", LACKING)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_view_that_lacks_something_is_called_another_version(
    admin: Admin, lacking: str, options: tuple[str, ...]
) -> None:
    admin.answer(CELLS, LACKING[lacking])
    assert_refused(headrace(admin.url, "cells", *options), admin.url, "of this version", code=3)


@pytest.mark.parametrize("key", ["region", "sites", "gateways", "intents", "ready"])
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["table", "json"])
def test_a_status_that_lacks_something_is_called_another_version(
    admin: Admin, key: str, options: tuple[str, ...]
) -> None:
    admin.answer(STATUS_PATH, {name: STATUS[name] for name in STATUS if name != key})
    assert_refused(headrace(admin.url, "status", *options), admin.url, "of this version", code=3)


def test_a_figure_of_another_kind_is_no_figure(admin: Admin) -> None:
    admin.answer(CELLS, VIEW | {"cells": [CELL | {"pressure": "high"}]})
    assert_refused(headrace(admin.url, "cells"), "of this version", code=3)


def test_an_answer_that_breaks_off_is_said(admin: Admin) -> None:
    admin.answer(CELLS, ODD["cut JSON"])
    admin.promise = 20
    assert_refused(headrace(admin.url, "cells"), admin.url, "does not answer as a controller does", code=3)


def test_a_refusal_of_something_else_is_said_with_its_status(admin: Admin) -> None:
    admin.answer(CELLS, b"<html>no</html>", status=502)
    assert_refused(headrace(admin.url, "cells"), admin.url, "502", "listen.admin", code=3)


@pytest.mark.parametrize("command", COMMANDS, ids=[each[0] for each in COMMANDS])
def test_a_controller_that_is_away(command: tuple[str, ...]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        assert_refused(
            headrace(url, *command), url, "Connection refused", "is the controller running", code=3
        )


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
    assert_refused(ended, words, code=3)


def test_a_controller_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        ended = headrace(f"http://127.0.0.1:{server.getsockname()[1]}", "cells")
    assert_refused(ended, "cannot be reached: timed out", code=3)


@pytest.mark.parametrize(
    "url",
    ["127.0.0.1:18002", "nonsense", "file:///etc/passwd", "http://", "http://h:port", "http://[::1", ""],
)
def test_an_address_that_is_none_is_wrong_usage(url: str) -> None:
    assert_refused(headrace(url, "cells"), "--url", "write http://HOST:PORT", code=2)


@pytest.mark.parametrize(
    "arguments",
    [
        *(("drain",), ("drain", "c1", "--deadline", "-1"), ("events", "--limit", "0"), ("cel", "c1"), ()),
        *(("override", "c1"), ("override", "c1", "5", "--clear"), ("override", "c1", "0"), ("pin", "m")),
        *(("shadow",), ("shadow", "maybe"), ("cells", "--token", "a\nb"), ("replay", "/nowhere")),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: tuple[str, ...]) -> None:
    ended = CliRunner().invoke(program.app, list(arguments))
    assert ended.exit_code == 2
    assert "Traceback" not in ended.output


def test_version_and_help() -> None:
    said = CliRunner().invoke(program.app, ["--version"]).stdout
    assert said.startswith("headrace 0.")
    said = CliRunner().invoke(program.app, ["--help"]).stdout
    for words in ("Try it:\n    headrace status\n", "HEADRACE_URL", "Exit codes", "--json"):
        assert words in said


def test_one_cell_shows_all_that_is_known_of_it(admin: Admin) -> None:
    said = headrace(admin.url, "cell", "site/c1").stdout
    for words in (
        "m (4096)",
        "GPU-1",
        "rack=7",
        "new driver (operator), 12 s left",
        "7 ok",
        "9 ok",
        "0.250 s",
        "named by n1",
    ):
        assert words in said


def test_cells_are_fetched_page_by_page(admin: Admin) -> None:
    admin.answer(CELLS, VIEW | {"cells": [CELL], "next": "site/c1"})
    admin.answer("/api/v1/cells?limit=1000&after=site%2Fc1", VIEW | {"cells": [FAILED]})
    found = json.loads(headrace(admin.url, "cells", "--json").stdout)
    assert ([cell["id"] for cell in found["cells"]], found["next"]) == (["site/c1", "c2"], None)


def test_only_the_cells_that_are_wanted_are_asked_for(admin: Admin) -> None:
    admin.answer("/api/v1/cells?limit=1000&site=berlin&state=READY", VIEW | {"cells": [CELL]})
    assert headrace(admin.url, "cells", "--site", "berlin", "--state", "READY").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "method", "path", "body", "said"),
    [
        (
            ("override", "site/c1", "5"),
            "PUT",
            f"{ONE}/override",
            {"weight": 5, "cause": "why"},
            "site/c1: weight 5",
        ),
        (("override", "site/c1", "--clear"), "DELETE", f"{ONE}/override", None, "site/c1: override cleared"),
        (("cordon", "a"), "PUT", "/api/v1/sites/a/cordon", {"cause": "why"}, "a: cordoned"),
        (("cordon", "a", "--clear"), "DELETE", "/api/v1/sites/a/cordon", None, "a: cordon lifted"),
        (
            ("pin", "o/m", "a", "b"),
            "PUT",
            "/api/v1/pools/o/m/pin",
            {"sites": ["a", "b"], "cause": "why"},
            "o/m: pinned to a, b",
        ),
        (("pin", "o/m", "--clear"), "DELETE", "/api/v1/pools/o/m/pin", None, "o/m: pin lifted"),
        (("shadow", "on"), "POST", "/api/v1/shadow", {"on": True, "cause": "why"}, "shadow on"),
        (("freeze", "off"), "POST", "/api/v1/freeze", {"on": False, "cause": "why"}, "freeze off"),
    ],
)
def test_a_wish_is_passed_on_and_said_back(
    admin: Admin, arguments: tuple[str, ...], method: str, path: str, body: Any, said: str
) -> None:
    admin.answer(path, {"subject": "x", "accepted": True, "kept": True}, method=method)
    ended = headrace(admin.url, *arguments, "--cause", "why")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (0, f"{said}\n", "")
    assert admin.asked == [(method, path, body)]


def test_a_wish_that_is_not_on_disk_is_said_to_be_so(admin: Admin) -> None:
    admin.answer("/api/v1/shadow", {"subject": "", "accepted": True, "kept": False}, method="POST")
    ended = headrace(admin.url, "shadow", "on")
    assert (ended.exit_code, ended.stdout) == (0, "shadow on\n")
    assert "a restart of the controller would forget it" in ended.stderr


@pytest.mark.parametrize(("status", "code"), [(401, 4), (403, 4), (404, 1), (409, 1), (500, 1)])
def test_the_exit_code_tells_who_said_no(admin: Admin, status: int, code: int) -> None:
    admin.answer(STATUS_PATH, {"error": "no, and why"}, status=status)
    assert_refused(headrace(admin.url, "status"), "no, and why", code=code)


def test_the_token_is_sent_and_may_come_from_the_environment(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    headrace(admin.url, "status", "--token", "s3cret")
    monkeypatch.setenv("HEADRACE_TOKEN", "fr0m-env")
    headrace(admin.url, "status")
    monkeypatch.delenv("HEADRACE_TOKEN")
    headrace(admin.url, "status")
    assert admin.tokens == ["Bearer s3cret", "Bearer fr0m-env", None]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"ready": False, "warm_start": "waiting for agents"}, "waiting for agents"),
        ({"self_preservation": True}, "self-preservation"),
        ({"gateways": [GATEWAY | {"connected": False}]}, "gw-1 is not connected"),
        ({"gateways": [GATEWAY | {"in_force": False, "last_nack": "bad"}]}, "gw-1 refuses"),
        ({"sites": [SITE | {"ready": 0}]}, "berlin has no READY cell"),
    ],
)
def test_a_check_exits_with_what_needs_a_look(admin: Admin, change: dict[str, Any], said: str) -> None:
    assert headrace(admin.url, "status", "--check").exit_code == 0
    admin.answer(STATUS_PATH, STATUS | change)
    assert headrace(admin.url, "status").exit_code == 0
    ended = headrace(admin.url, "status", "--check")
    assert (ended.exit_code, said in ended.stderr) == (1, True)


def test_top_looks_so_often_and_puts_what_is_not_ready_first(admin: Admin) -> None:
    ended = headrace(admin.url, "top", "--rounds", "2", "--interval", "0.2")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.rindex("c2") < ended.stdout.rindex("site/c1")
    assert ended.stdout.count("region eu-1: weights are published; 1 of 2 cells READY") == 2


STREAM = "/api/v1/events/stream?after=9"


def frame(event: dict[str, Any]) -> bytes:
    return f"id: {event['id']}\nevent: {event['kind']}\ndata: {json.dumps(event)}\n\n".encode()


def test_following_goes_on_where_it_was_when_the_stream_ends(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "RETRY_S", 0.0)
    monkeypatch.setattr(follow, "MAX_RETRIES", 2)
    later, last = EVENT | {"id": 10, "cell": "c7"}, EVENT | {"id": 11, "cell": "c8"}
    admin.answer(STREAM, b": nothing new\n\n" + frame(later))
    admin.answer("/api/v1/events/stream?after=10", b"event: gap\ndata: {}\n\n" + frame(last))
    admin.answer("/api/v1/events/stream?after=11", b"")
    ended = headrace(admin.url, "events", "--follow", "--json")
    assert [json.loads(line)["cell"] for line in ended.stdout.splitlines()] == ["c2", "c7", "c8"]
    assert "not kept any more" in ended.stderr
    assert (ended.exit_code, "does not come back" in ended.stderr) == (3, True)


def test_following_one_cell_leaves_the_others_out(admin: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "RETRY_S", 0.0)
    monkeypatch.setattr(follow, "MAX_RETRIES", 0)
    admin.answer(EVENTS, {"events": [EVENT, EVENT | {"cell": "c1"}], "last_id": 9})
    admin.answer(STREAM, frame(EVENT | {"id": 10, "cell": "c1"}) + frame(EVENT | {"id": 11}))
    assert headrace(admin.url, "events", "-f", "--cell", "c1").stdout.count("READY -> FAILED") == 2
    told = json.loads(headrace(admin.url, "events", "--cell", "c1", "--json").stdout)
    assert [event["cell"] for event in told["events"]] == ["c1"]


def test_config_check_is_that_of_the_controller(tmp_path: Path) -> None:
    good = tmp_path / "good.yaml"
    good.write_text("gateways: [{id: gw-1, host: 127.0.0.1}]\n")
    ended = CliRunner().invoke(program.app, ["config", "check", str(good)])
    assert (ended.exit_code, "gateways: gw-1" in ended.stdout) == (0, True)
    bad = tmp_path / "bad.yaml"
    bad.write_text(
        "gateways: []\nregion: [1]\nnonsense: 1\nadmin: {tokens: [{name: a, role: king, file: /x}]}\n"
    )
    ended = CliRunner().invoke(program.app, ["config", "check", str(bad)])
    assert ended.exit_code == 2
    for words in ("line 1: gateways", "line 2: region", "line 3: nonsense", "line 4: admin.tokens[0].role"):
        assert words in ended.stderr
