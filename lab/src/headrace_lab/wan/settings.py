"""The emulator's settings file, and what a path should measure as. Pure."""

from __future__ import annotations

import ipaddress
import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from headrace_shared.config import Settings


def _interface(text: str) -> str:
    try:
        return str(ipaddress.ip_interface(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: write an address with its prefix, as in 10.1.0.1/24") from error


def _address(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError as error:
        raise ValueError(f"{text!r}: write an IPv4 or IPv6 address") from error


Interface = Annotated[str, AfterValidator(_interface)]
Address = Annotated[str, AfterValidator(_address)]


class Path(Settings):
    """What each direction of a path does to a packet.

    `delay_ms` is the mean delay one way. `jitter_ms` is half the width of a uniform distribution
    around it, or the standard deviation of a normal one (`shape`). `loss` is the share of packets
    dropped one way. `in_order` keeps packets from overtaking each other, as most links do; without
    it each is delayed by itself. A path that is `down` passes nothing.
    """

    delay_ms: float = Field(0.0, ge=0, le=10_000)
    jitter_ms: float = Field(0.0, ge=0, le=10_000)
    shape: Literal["uniform", "normal"] = "uniform"
    loss: float = Field(0.0, ge=0, le=1)
    in_order: bool = True
    down: bool = False

    @model_validator(mode="after")
    def _never_early(self) -> Self:
        widest = self.jitter_ms if self.shape == "uniform" else 3 * self.jitter_ms
        if widest > self.delay_ms:
            raise ValueError(
                f"delay_ms {self.delay_ms:g} leaves no room for a {self.shape} jitter_ms of "
                f"{self.jitter_ms:g}; give it at least {widest:g}"
            )
        return self

    @property
    def expected_rtt_ms(self) -> float:
        """The mean round trip."""
        return 2 * self.delay_ms

    @property
    def expected_jitter_ms(self) -> float:
        """The mean absolute difference of two round trips, each with a draw in both directions.

        It is that of the sum of four draws: 14/15 of the half width for uniform ones; normal ones
        add up to a deviation of twice theirs.
        """
        if self.shape == "uniform":
            return self.jitter_ms * 14 / 15
        return 2 * self.jitter_ms * math.sqrt(2 / math.pi)

    @property
    def expected_loss(self) -> float:
        """The share of round trips that are lost."""
        return 1.0 if self.down else 1 - (1 - self.loss) ** 2


class End(Settings):
    """One end: a network namespace that exists, and the addresses its device gets there."""

    namespace: str = Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    addresses: tuple[Interface, ...] = Field(min_length=1, max_length=1024)


class WanSettings(Settings):
    """The whole file.

    `paths` are keyed by the address at the far end; what is not named goes by `default`.
    `queue_packets` bounds how many packets may be under way; more are dropped.
    """

    near: End
    far: End
    paths: dict[Address, Path] = Field(default_factory=dict)
    default: Path = Path()
    mtu: int = Field(1500, ge=1280, le=65_535)
    queue_packets: int = Field(20_000, ge=1, le=1_000_000)
    device: str = Field("wan0", min_length=1, max_length=15, pattern=r"^[A-Za-z0-9._-]+$")
    seed: int = 1

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.near.namespace == self.far.namespace:
            raise ValueError("near and far are one namespace; give each end its own")
        far = {str(ipaddress.ip_interface(each).ip) for each in self.far.addresses}
        strangers = sorted(set(self.paths) - far)
        if strangers:
            raise ValueError(f"paths: {strangers[0]} is no address of the far end; add it to far.addresses")
        return self
