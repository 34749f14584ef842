"""`headrace-controller config check`, `bootstrap` and the rest that ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml
from typer.testing import CliRunner, Result

from headrace_controller.cli import app
from tests.integration.controller_cli.program import CONFIG, run, write

GOOD = CONFIG.format(telemetry=18000, xds=18001, admin=18002)
TLS = "{{ca: {0}/ca.pem, cert: {0}/server.pem, key: {0}/server.key}}"
NOT_THERE = "  xds_tls: {cert: /nonexistent/c.pem, key: /nonexistent/k.pem}\ngateways:"
MISTAKES: dict[str, tuple[Callable[[str], str], tuple[str, ...]]] = {
    "unknown key": (lambda text: text + "colour: red\n", ("line 10", "colour", "unknown key", "remove it")),
    "wrong type": (lambda text: text.replace("berlin", "[1, 2]"), ("line 1", "region", "string")),
    "gateway twice": (
        lambda text: text.replace("log:", "  - {id: gw-1, host: 127.0.0.1}\nlog:"),
        ("gateways", "same id 'gw-1'", "give each its own"),
    ),
    "not YAML": (lambda text: text + "a: [\n", ("not valid YAML", "line 11")),
    "empty": (lambda text: "", ("gateways", "this key is required")),
    "bad address": (
        lambda text: text.replace("127.0.0.1:18001", "here"),
        ("line 4", "listen.xds", "write host:port"),
    ),
    "port twice": (
        lambda text: text.replace("18002", "18000"),
        ("listen.admin", "that of listen.telemetry too", "give each its own port"),
    ),
    "tls files": (
        lambda text: text.replace("gateways:", NOT_THERE),
        ("listen.xds_tls.key", "/nonexistent/k.pem", "give a readable PEM file"),
    ),
    "tls without a key": (
        lambda text: text.replace("gateways:", "  telemetry_tls: {cert: c.pem}\ngateways:"),
        ("listen.telemetry_tls", "needs both cert and key"),
    ),
}


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [*map(str, arguments)])


def assert_said(mistake: str, code: int, stdout: str, stderr: str) -> None:
    assert code == 2, stderr
    assert stderr.startswith("headrace-controller: ")
    for words in MISTAKES[mistake][1]:
        assert words in stderr
    assert "Traceback" not in stderr
    assert stdout == ""


@pytest.fixture(autouse=True)
def _log_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """`run` sets up the log of its whole process, which here is the tests'."""
    monkeypatch.setattr("headrace_shared.log.configure", lambda *_: None)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_settings_that_cannot_be_used_are_not_run(tmp_path: Path, mistake: str) -> None:
    ended = invoke("run", "--config", write(tmp_path, MISTAKES[mistake][0](GOOD)))
    assert_said(mistake, ended.exit_code, ended.stdout, ended.stderr)


def test_the_process_says_nothing_else(tmp_path: Path) -> None:
    ended = run("run", "--config", write(tmp_path, MISTAKES["tls files"][0](GOOD)))
    assert_said("tls files", ended.returncode, ended.stdout, ended.stderr)
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.parametrize("mistake", MISTAKES)
def test_config_check_says_the_same(tmp_path: Path, mistake: str) -> None:
    ended = invoke("config", "check", write(tmp_path, MISTAKES[mistake][0](GOOD)))
    assert_said(mistake, ended.exit_code, ended.stdout, ended.stderr)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    text = GOOD.replace("127.0.0.1:18001", "here").replace("gw-1", "''") + "colour: red\n"
    said = invoke("config", "check", write(tmp_path, text)).stderr
    assert [word for word in ("listen.xds", "gateways[0].id", "colour") if word not in said] == []


@pytest.mark.parametrize("command", [("run", "--config"), ("config", "check")])
def test_settings_that_are_not_there(tmp_path: Path, command: tuple[str, ...]) -> None:
    ended = invoke(*command, tmp_path / "missing.yaml")
    assert ended.exit_code == 2
    assert "missing.yaml" in ended.stderr
    assert "No such file" in ended.stderr
    assert "give the path of a readable file" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_settings_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "controller.yaml").write_bytes(b"region: \xff\xfe")
    ended = invoke("config", "check", tmp_path / "controller.yaml")
    assert ended.exit_code == 2
    assert "not UTF-8" in ended.stderr


def test_good_settings_are_called_good(tmp_path: Path) -> None:
    ended = invoke("config", "check", write(tmp_path, GOOD))
    assert (ended.exit_code, ended.stderr) == (0, "")
    for word in ("good", "berlin", "gw-1"):
        assert word in ended.stdout


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    """A folder with ca.pem, server.pem and server.key, and other.key, which belongs to neither."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    pair = authority.issue_cert("127.0.0.1")
    pair.private_key_pem.write_to_path(tmp_path / "server.key")
    pair.cert_chain_pems[0].write_to_path(tmp_path / "server.pem")
    authority.issue_cert("127.0.0.1").private_key_pem.write_to_path(tmp_path / "other.key")
    return tmp_path


def with_tls(folder: Path, tls: str = TLS, field: str = "xds_tls") -> Path:
    return write(folder, GOOD.replace("gateways:", f"  {field}: {tls.format(folder)}\ngateways:"))


def test_good_certificates_are_called_good(certificates: Path) -> None:
    assert invoke("config", "check", with_tls(certificates)).exit_code == 0


@pytest.mark.parametrize(
    ("tls", "said"),
    [
        (TLS.replace("server.key", "other.key"), "other.key do not work together"),
        (TLS.replace("server.key", "ca.pem"), "give a certificate chain and its own key"),
        (TLS.replace("ca.pem", "server.key"), "listen.xds_tls.ca"),
        (TLS.replace("ca.pem", "controller.yaml"), "holds no PEM block"),
    ],
)
@pytest.mark.parametrize("command", [("run", "--config"), ("config", "check")])
def test_certificates_that_do_not_work_are_named(
    certificates: Path, tls: str, said: str, command: tuple[str, ...]
) -> None:
    """The TLS library itself says only that a port cannot be bound."""
    ended = invoke(*command, with_tls(certificates, tls))
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def bootstrap(config: Path, *more: str | Path) -> tuple[Any, Result]:
    """The printed tree and all else of `bootstrap`."""
    ended = invoke("bootstrap", "--config", config, "--gateway", "gw-1", *more)
    return yaml.safe_load(ended.stdout), ended


def endpoint(tree: Any) -> tuple[str, int]:
    cluster = tree["static_resources"]["clusters"][0]
    found = cluster["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]
    return found["socket_address"]["address"], found["socket_address"]["port_value"]


def test_bootstrap_names_the_gateway_and_where_to_connect(tmp_path: Path) -> None:
    config = write(tmp_path, GOOD)
    tree, ended = bootstrap(config)
    assert ended.exit_code == 0
    assert tree["node"]["id"] == "gw-1"
    assert endpoint(tree) == ("127.0.0.1", 18001)
    tree, _ = bootstrap(config, "--xds-address", "10.0.0.9:7000", "--admin-port", "9911")
    assert tree["dynamic_resources"]["ads_config"]["api_type"] == "GRPC"
    delta, _ = bootstrap(config, "--delta")
    assert delta["dynamic_resources"]["ads_config"]["api_type"] == "DELTA_GRPC"
    assert endpoint(tree) == ("10.0.0.9", 7000)
    assert tree["admin"]["address"]["socket_address"]["port_value"] == 9911


def test_bootstrap_warns_of_an_address_that_means_any(tmp_path: Path) -> None:
    """Controllers listen on 0.0.0.0; an Envoy on another host would look for it on itself."""
    config = write(tmp_path, GOOD.replace("127.0.0.1:18001", "0.0.0.0:18001"))
    tree, ended = bootstrap(config)
    assert endpoint(tree) == ("0.0.0.0", 18001)
    assert "give --xds-address" in ended.stderr
    assert bootstrap(config, "--xds-address", "10.0.0.9:18001")[1].stderr == ""


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost"])
def test_bootstrap_warns_of_an_address_that_only_this_machine_reaches(tmp_path: Path, host: str) -> None:
    config = write(tmp_path, GOOD.replace("127.0.0.1:18001", f"'{host}:18001'"))
    tree, ended = bootstrap(config)
    assert (ended.exit_code, endpoint(tree)) == (0, (host.strip("[]"), 18001))
    assert f"warning: {host}:18001 serves an Envoy on this machine alone" in ended.stderr
    assert bootstrap(config, "--xds-address", f"{host}:18001")[1].stderr == "", "who gives it knows"
    elsewhere = write(tmp_path, GOOD.replace("127.0.0.1:18001", "10.0.0.9:18001"))
    assert bootstrap(elsewhere)[1].stderr == ""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--gateway", "gw-9"), "'gw-9' is not in"),
        (("--xds-address", "there"), "--xds-address: 'there' is no address"),
        (("--xds-address", "127.0.0.1:0"), "give --xds-address HOST:PORT"),
        (("--cert", "c.pem"), "give both --cert and --key, or neither"),
        (("--cert", "c.pem", "--key", "k.pem"), "needs --ca"),
    ],
)
def test_a_bootstrap_that_could_not_work_is_refused(tmp_path: Path, more: tuple[str, ...], said: str) -> None:
    tree, ended = bootstrap(write(tmp_path, GOOD), *more)
    assert (ended.exit_code, tree) == (2, None)
    assert said in ended.stderr


def test_bootstrap_needs_the_files_that_the_listener_demands(certificates: Path) -> None:
    config = with_tls(certificates)
    assert "needs --ca" in bootstrap(config)[1].stderr
    assert "needs --cert and --key" in bootstrap(config, "--ca", "/etc/ca.pem")[1].stderr
    tree, ended = bootstrap(config, "--ca", "/etc/ca.pem", "--cert", "/etc/c.pem", "--key", "/etc/k.pem")
    assert ended.exit_code == 0, ended.stderr
    assert "/etc/k.pem" in str(tree["static_resources"]["clusters"][0]["transport_socket"])


def test_the_example_in_the_help_is_good(tmp_path: Path) -> None:
    text = invoke("--help").stdout
    start, end = text.index("    gateways:"), text.index("Try it:")
    lines = [line[4:] for line in text[start:end].splitlines()]
    ended = invoke("config", "check", write(tmp_path, "\n".join(lines) + "\n"))
    assert ended.exit_code == 0, ended.stderr


def test_version_help_and_missing_arguments() -> None:
    assert run("--version").stdout.startswith("headrace-controller 0.")
    for command in ("run", "bootstrap", "config"):
        assert command in invoke("--help").stdout
        assert invoke(command, "--help").exit_code == 0
    ended = invoke("run")
    assert ended.exit_code == 2
    assert "--config" in ended.stderr
