"""Which source's figures are in force for a cell, and which are needed: pure, one decision a reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headrace_agent.collectors.hardware.figures import GpuFigures
from headrace_agent.collectors.readings import HardwareSource, SourceReading, Status


@dataclass(frozen=True, slots=True)
class Offer:
    """What one source has for one cell now.

    `gpus` are those of the cell's GPUs for which it has fresh figures, `asked` how many the cell
    has. `slow` figures are renewed less often than every 2 s. A source that has just come back is
    not `settled` yet; an `absent` one is not on this host.
    """

    source: HardwareSource
    reading: SourceReading
    gpus: tuple[GpuFigures, ...]
    asked: int
    slow: bool = False
    settled: bool = True
    absent: bool = False

    @property
    def usable(self) -> bool:
        """Whether it can be in force at all."""
        return self.reading.status is Status.OK and any(gpu.signals for gpu in self.gpus)

    @property
    def complete(self) -> bool:
        """Whether each of the cell's GPUs has a figure."""
        return len(self.gpus) == self.asked and all(gpu.signals for gpu in self.gpus)


def choose(offers: Sequence[Offer]) -> Offer | None:
    """The best usable offer, None without any; `offers` come in order of preference.

    Complete beats partial, settled beats just come back, quick beats slow. A loss therefore
    counts at once; a return beside a working stand-in waits until it has settled, and a steadily
    slow first choice never alternates with the second.
    """
    usable = [offer for offer in offers if offer.usable]
    return max(usable, key=lambda offer: (offer.complete, offer.settled, not offer.slow), default=None)


def condition(offer: Offer, chosen: Offer | None) -> SourceReading:
    """How a source is for the cell, once it is known which one is in force."""
    if offer.absent and chosen is not None and chosen.complete:
        return replace(offer.reading, spare=True)
    return offer.reading
