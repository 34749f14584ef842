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


def notify_ready(status: str) -> bool:
    """The agent is at work (again); `status` is what `systemctl status` shows of it."""
    return notify(f"READY=1\nSTATUS={_line(status)}")


def notify_reloading(now: float) -> bool:
    """A reload began at `now`, seconds on CLOCK_MONOTONIC; `notify_ready` ends it."""
    return notify(f"RELOADING=1\nMONOTONIC_USEC={round(now * 1e6)}")


def watchdog_interval_s(environ: Mapping[str, str] = os.environ, pid: int | None = None) -> float | None:
    """How often systemd wants to hear WATCHDOG=1 at the least, in seconds; None where it does not.

    The words of a variable that is meant for another process, or is no number, are not heeded.
    """
    wanted = environ.get("WATCHDOG_USEC", "")
    meant_for = environ.get("WATCHDOG_PID", "")
    if meant_for and meant_for != str(os.getpid() if pid is None else pid):
        return None
    return int(wanted) / 1e6 if wanted.isascii() and wanted.isdigit() and int(wanted) > 0 else None


def _line(text: str) -> str:
    """One line: a line break would begin another assignment."""
    return " ".join(text.split())
