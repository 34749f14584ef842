"""Host-and-port addresses as people write them, and ports that can be bound."""

from __future__ import annotations

import errno
import ipaddress
import socket
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator


@dataclass(frozen=True, slots=True, order=True)
class HostPort:
    """An address; `str()` writes it back, IPv6 in brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True where only this machine can reach it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def parse_host_port(text: str) -> HostPort:
    """Read `host:port` or `[v6]:port`; port 0 is allowed (the system chooses).

    Raises ValueError that says what was read and what was expected.
    """
    host, sep, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{text!r}: put an IPv6 address in brackets, as in [::1]:8000")
    if not sep or not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{text!r} is no address; write host:port, as in 127.0.0.1:8000")
    return HostPort(host, int(port))


def _coerce(value: Any) -> Any:
    return parse_host_port(value) if isinstance(value, str) else value


HostPortField = Annotated[HostPort, BeforeValidator(_coerce)]
"""A settings field that is written as `host:port`."""


class CannotListenError(Exception):
    """An address that a program cannot listen on; the text says why and what to do."""


class PortInUseError(CannotListenError):
    """A port that a program must listen on is taken."""

    def __init__(self, field: str, address: HostPort) -> None:
        super().__init__(
            f"{field}: {address} is already in use; stop the program that holds it "
            f"(ss -ltnp 'sport = :{address.port}') or choose another port"
        )


def explain_listen(field: str, address: HostPort, error: OSError) -> CannotListenError:
    """What it means that `address` cannot be listened on; `field` names the setting."""
    if error.errno == errno.EADDRINUSE:
        return PortInUseError(field, address)
    if isinstance(error, socket.gaierror):
        why = f"the host name {address.host!r} is not known ({error.strerror})"
        remedy = "mend the name, or write an IP address of this machine"
    elif error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        why = f"{address.host} is not an address of this machine"
        remedy = "choose one that `ip address` shows, or 0.0.0.0 for all of them"
    elif error.errno in (errno.EACCES, errno.EPERM):
        why = "this user may not listen there"
        remedy = "choose a port from 1024 on, or give the program CAP_NET_BIND_SERVICE"
    else:
        why, remedy = str(error.strerror or error), "choose another address"
    return CannotListenError(f"{field}: cannot listen on {address}: {why}; {remedy}")


def require_free(field: str, address: HostPort) -> None:
    """Raise CannotListenError if `address` cannot be bound now; `field` names the setting."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address.host, address.port))
    except OSError as error:
        raise explain_listen(field, address, error) from error
    except UnicodeError as error:
        raise CannotListenError(
            f"{field}: {address.host!r} is no host name; write an IP address of this machine"
        ) from error
