"""Tells systemd how the agent is (Type=notify); does nothing where nobody listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from headrace_shared import log


def notify(state: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Send e.g. `READY=1` to the socket in NOTIFY_SOCKET; False when there is none or it fails."""
    path = environ.get("NOTIFY_SOCKET", "")
    if not path:
        return False
    address = "\0" + path[1:] if path.startswith("@") else path
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
            sock.setblocking(False)
            sock.sendto(state.encode(), address)
    except OSError as error:
        log.get("notify").warning("systemd could not be told", state=state, socket=path, error=str(error))
        return False
    return True
