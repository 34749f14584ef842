"""Which TCP sockets of a network namespace listen, from the kernel's own tables."""

from __future__ import annotations

import ipaddress
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_LISTENS: Final = b"0A"
_FIELDS: Final = 10
_IF_INET6_FIELDS: Final = 6
_WILDCARDS: Final = ("0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that listens on `port` of `address` (0.0.0.0 or :: for all); `uid` is its owner's."""

    address: str
    port: int
    uid: int
    inode: int

    def serves(self, address: str | None) -> bool:
        """Whether who connects to this address (None: any) may reach it."""
        if address is None or self.address in _WILDCARDS:
            return True
        return unmapped(self.address) == unmapped(address)


def unmapped(address: str) -> str:
    """An IPv4 address that is written as IPv6 (::ffff:127.0.0.1) as what it is."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def read_listeners(proc: Path) -> tuple[Listener, ...]:
    """All listening TCP sockets, IPv4 and IPv6; a table that is not there has none.

    `proc` is /proc for this process's own network namespace, /proc/PID for another one's.
    """
    found: list[Listener] = []
    for name in ("tcp", "tcp6"):
        try:
            found += parse_listeners((proc / "net" / name).read_bytes())
        except OSError:
            continue
    return tuple(found)


def parse_listeners(table: bytes) -> list[Listener]:
    """The listening sockets in the text of /proc/net/tcp or tcp6; what is not understood is left out."""
    found = []
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < _FIELDS or fields[3] != _LISTENS:
            continue
        try:
            address, _, port = fields[1].partition(b":")
            found.append(Listener(_address(address), int(port, 16), int(fields[7]), int(fields[9])))
        except ValueError:
            continue
    return found


def read_addresses(proc: Path) -> frozenset[str]:
    """The addresses that a network namespace calls its own, loopback ones aside."""
    found: set[str] = set()
    for name, parse in (("fib_trie", parse_local_addresses), ("if_inet6", parse_ipv6_addresses)):
        try:
            found |= parse((proc / "net" / name).read_text("ascii", "replace"))
        except OSError:
            continue
    return frozenset(found)


def parse_local_addresses(trie: str) -> set[str]:
    """The IPv4 addresses in the text of /proc/net/fib_trie, which names each before it says what it is."""
    found, last = set(), ""
    for line in trie.splitlines():
        words = line.split()
        if words[:1] == ["|--"]:
            last = words[-1]
        elif words[1:] == ["host", "LOCAL"]:
            found.add(last)
    return {each for each in found if not each.startswith("127.")}


def parse_ipv6_addresses(table: str) -> set[str]:
    """The IPv6 addresses in the text of /proc/net/if_inet6."""
    digits = [words[0] for line in table.splitlines() if len(words := line.split()) >= _IF_INET6_FIELDS]
    whole = [each for each in digits if len(each) == 32 and set(each) <= set("0123456789abcdef")]
    return {str(ipaddress.IPv6Address(int(each, 16))) for each in whole} - {"::1"}


def _address(digits: bytes) -> str:
    """The kernel writes an address as words of four bytes, each in the machine's own order."""
    packed = bytes.fromhex(digits.decode("ascii"))
    if sys.byteorder == "little":
        packed = b"".join(packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
    return str(ipaddress.ip_address(packed))
