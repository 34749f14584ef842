"""The controller's settings file: what is wrong with it is named."""

from __future__ import annotations

import pytest

from headrace_controller.settings import ControllerSettings
from headrace_shared import config
from headrace_shared.config import ConfigError
from headrace_shared.signals import CELL_SIGNALS

GOOD = "gateways:\n  - id: gw-1\n    host: 127.0.0.1\n"


def test_the_least_file_gives_the_design_defaults() -> None:
    loaded = config.parse(GOOD, ControllerSettings)
    assert (loaded.cadence.telemetry_s, loaded.cadence.liveness_s) == (0.5, 0.1)
    assert (loaded.lifecycle.ttl_s, loaded.lifecycle.on_silence) == (0.5, "confirm")
    assert (loaded.pressure.scorer, loaded.projection.name) == ("v3", "speed")
    assert loaded.envoy.upstream_idle_timeout_s < 5.0, "vLLM closes idle connections after 5 s"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("region: r\n", "gateways: this key is required"),
        ("gateways: []\n", "line 1: gateways:"),
        (GOOD + "lifecyle: {}\n", "line 4: lifecyle: unknown key"),
        (GOOD + "lifecycle:\n  ttl_s: soon\n", "line 5: lifecycle.ttl_s:"),
        (GOOD + "lifecycle:\n  on_silence: panic\n", "'confirm' or 'fail'"),
        (GOOD + "listen:\n  xds: 18001\n", "line 5: listen.xds"),
        (GOOD + "listen:\n  xds: host\n", "write host:port"),
        (GOOD + "baseline: random\n", "'rr' or 'lr'"),
        (
            GOOD + "pressure:\n  signals:\n    ttft: {high: 1}\n",
            "'ttft' is no signal; the signals are queue_depth",
        ),
        (GOOD + "pressure:\n  signals:\n    rtt_ms: {low: 200}\n", "rtt_ms: low is 200 and high 150"),
        (GOOD + "cadence: {liveness_s: 1}\n", "ttl_s must be at least twice liveness_s"),
        (
            GOOD
            + "pressure:\n  scorer: v2\n  signals:\n"
            + "".join(f"    {n}: {{weight: 0}}\n" for n in CELL_SIGNALS),
            "every weight of scorer v2 is 0",
        ),
        (GOOD + "  - id: gw-1\n    host: h\n", "two gateways have the same id 'gw-1'"),
        (
            GOOD + "".join(f"  - {{id: g{n}, host: h, nodes: ['edge-*']}}\n" for n in "12"),
            "'edge-*' stands under two gateways",
        ),
        (GOOD + "gateway_reports: {flush_s: 0.5}\n", "alive_s must be at least twice flush_s"),
        (GOOD + "    listen: localhost:10000\n", "'localhost' is no IP address"),
        (GOOD + "envoy:\n  paths: [v1]\n", "line 5: envoy.paths[0]"),
        (GOOD + "projection:\n  max_weight: 0\n", "line 5: projection.max_weight"),
        (GOOD + "capability:\n  bytes_per_token: 9\n", "bytes_per_token is 9; it must lie between"),
        (GOOD + "capability:\n  max_classes: 1\n", "line 5: capability.max_classes"),
        (GOOD + "pools:\n  m: {tls: {cert: c.pem}}\n", "give both cert and key, or neither"),
        (GOOD + "pools:\n  m: {tls: {server_name: 'a b'}}\n", "line 5: pools.m.tls.server_name"),
        (GOOD + "aliases:\n  gpt-4: ''\n", "line 5: aliases.gpt-4"),
    ],
)
def test_mistakes_are_named_with_their_place(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.parse(text, ControllerSettings, "c.yaml")
    assert said in str(caught.value)
