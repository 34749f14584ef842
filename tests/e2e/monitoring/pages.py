"""The metrics pages of a region's programs, as a scraper reads them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.e2e.whole_path.region import Region


@dataclass(frozen=True)
class Family:
    """One metric as its page tells of it; `name` is that of its samples for counters."""

    name: str
    kind: str
    help: str
    samples: tuple[Sample, ...]

    @property
    def labels(self) -> set[str]:
        """All labels of all samples, without a histogram's own."""
        return {label for sample in self.samples for label in sample.labels} - {"le"}


async def text(region: Region, url: str) -> str:
    """One page."""
    async with region.session.get(f"{url}/metrics") as response:
        assert response.status == 200
        assert response.content_type == "text/plain"
        return await response.text()


def families(page: str) -> list[Family]:
    """What the page has."""
    found = []
    for each in text_string_to_metric_families(page):
        name = f"{each.name}_total" if each.type == "counter" else each.name
        found.append(Family(name, each.type, each.documentation, tuple(each.samples)))
    return found


def series(pages: Iterable[str]) -> set[tuple[str, frozenset[tuple[str, str]]]]:
    """Every series of the pages."""
    return {
        (sample.name, frozenset(sample.labels.items()))
        for page in pages
        for family in families(page)
        for sample in family.samples
    }
