"""The ADS stream under mutual TLS."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from headrace_controller.settings import EnvoySettings, GatewaySettings
from headrace_shared.net import HostPort
from headrace_shared.tls import TlsSettings
from tests.e2e.xds.envoy import running_envoy
from tests.e2e.xds.stack import GATEWAY, Control, until_async
from tests.support.ports import free_port


def written(directory: Path, name: str, cert: trustme.LeafCert, authority: trustme.CA) -> TlsSettings:
    """The files of one party: its certificate and key, and the authority that it trusts."""
    paths = {kind: directory / f"{name}-{kind}.pem" for kind in ("ca", "cert", "key")}
    authority.cert_pem.write_to_path(paths["ca"])
    paths["cert"].write_bytes(b"".join(pem.bytes() for pem in cert.cert_chain_pems))
    cert.private_key_pem.write_to_path(paths["key"])
    return TlsSettings(**paths)


@pytest.mark.parametrize(
    ("name", "trusted"), [(GATEWAY, True), ("edge-7", True), ("edge-7", False), ("gw-other", True)]
)
async def test_only_an_envoy_whose_certificate_names_its_gateway_is_served(
    tmp_path: Path, name: str, trusted: bool
) -> None:
    authority, other = trustme.CA(), trustme.CA()
    server = written(tmp_path, "server", authority.issue_cert("127.0.0.1"), authority)
    client = written(tmp_path, "client", (authority if trusted else other).issue_cert(name), authority)
    listen = HostPort("127.0.0.1", free_port())
    gateway = GatewaySettings(id=GATEWAY, nodes=("edge-?",), host="127.0.0.1", listen=listen)
    control = Control(gateway, EnvoySettings(), tls=server)
    await control.start()
    try:
        control.publish({"m": {}})
        async with running_envoy(GATEWAY, control.xds_address, tmp_path, client) as envoy:
            if trusted and name != "gw-other":
                await until_async(envoy.live)
                await control.in_force()
            else:
                await until_async(envoy.up)

                async def tried_again() -> bool:
                    if trusted:
                        return control.server.strangers.get(GATEWAY, 0) >= 2
                    return await envoy.counter("cluster.headrace-controller.upstream_cx_total") >= 2

                await until_async(tried_again)
                assert not control.status.connected
    finally:
        await control.stop()
