"""Ports that nobody listens on now, below those that the kernel gives to outgoing connections.

One of these may be taken by a connection before the test uses it: tests run beside each other.
"""

from __future__ import annotations

from headrace_lab.stack.ports import free_ports


def free_port(host: str = "127.0.0.1") -> int:
    """A port of `host` that can be bound now."""
    (port,) = free_ports(1, host)
    return port
