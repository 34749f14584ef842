"""TUN devices at the ends, and the `ip` program that places them. Linux only; needs root."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headrace_lab.wan.settings import End

DEVICE: Final = "/dev/net/tun"
IP_TIMEOUT_S: Final = 10.0
# <linux/if_tun.h>
TUNSETIFF: Final = 0x400454CA
IFF_TUN: Final = 0x0001
IFF_NO_PI: Final = 0x1000


class WanError(Exception):
    """The emulator cannot be set up; the message says why and what to do."""


def ip(*words: str) -> None:
    """Run `ip`. Raises WanError with what it said."""
    program = shutil.which("ip")
    if program is None:
        raise WanError("the program ip is missing; install the package iproute2")
    try:
        done = subprocess.run(
            [program, *words], check=False, timeout=IP_TIMEOUT_S, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired as error:
        raise WanError(f"ip {' '.join(words)}: no end within {IP_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise WanError(f"ip {' '.join(words)}: {done.stderr.strip() or f'exit {done.returncode}'}")


@contextmanager
def namespace(name: str) -> Iterator[str]:
    """A network namespace for the length of the context, with its loopback up. Raises WanError."""
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield name
    finally:
        ip("netns", "del", name)


@contextmanager
def tun(end: End, device: str, mtu: int) -> Iterator[int]:
    """A TUN device called `device` in the end's namespace, as a non-blocking descriptor that gives
    and takes one IP packet at a time. Raises WanError."""
    try:
        fd = os.open(DEVICE, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise WanError(f"{DEVICE}: {error.strerror}; the emulator needs root and the tun driver") from error
    try:
        _place(_create(fd), end, device, mtu)
        yield fd
    finally:
        os.close(fd)


def _create(fd: int) -> str:
    """Make the device in this process's own namespace; the kernel chooses a name that is free."""
    request = struct.pack("16sH22x", b"hrwan%d", IFF_TUN | IFF_NO_PI)
    try:
        answer: bytes = fcntl.ioctl(fd, TUNSETIFF, request)
    except OSError as error:
        raise WanError(f"no TUN device: {error.strerror}; the emulator needs root") from error
    return answer[:16].rstrip(b"\0").decode()


def _place(made: str, end: End, device: str, mtu: int) -> None:
    # The descriptor stays attached to the device wherever it goes.
    ip("link", "set", made, "netns", end.namespace, "name", device)
    within = ("-n", end.namespace)
    ip(*within, "link", "set", device, "mtu", str(mtu))
    for address in end.addresses:
        # Nobody else is on this link: an IPv6 address is usable at once.
        nodad = ("nodad",) if ":" in address else ()
        ip(*within, "addr", "add", address, "dev", device, *nodad)
    ip(*within, "link", "set", device, "up")
