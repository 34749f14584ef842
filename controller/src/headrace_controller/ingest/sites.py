"""What each site's nodes may claim: their site, and the addresses that they advertise.

A certificate proves a node's name and nothing more. Without these rules whoever holds one node's key
could send the traffic of every gateway to a machine of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from headrace_controller.ingest.validation import Rejection, read_address
from headrace_controller.settings import SiteSettings


class Sites:
    """The sites that the settings know; with none, every claim stands."""

    def __init__(self, sites: Mapping[str, SiteSettings] | None = None) -> None:
        self._sites = dict(sites or {})

    def check_node(self, node: str, site: str) -> Rejection | None:
        """Whether `node` may say that it is at `site`.

        A node that a site's patterns name belongs there and nowhere else; one that no pattern names
        may be at any known site that names none.
        """
        if not self._sites:
            return None
        if site not in self._sites:
            return Rejection(
                "unknown_site",
                f"node {node}: site {site} is not in the controller's settings; add it to sites",
            )
        homes = [name for name, each in self._sites.items() if _names(each, node)]
        if site in homes or (not homes and not self._sites[site].nodes):
            return None
        where = f"it belongs to {' or '.join(homes)}" if homes else f"sites.{site}.nodes does not name it"
        return Rejection("wrong_site", f"node {node} says that it is at site {site}; {where}")

    def check_address(self, site: str, host: str) -> Rejection | None:
        """Whether a cell of `site` may be at `host`, an IP address."""
        known = self._sites.get(site)
        ip = read_address(host)
        if known is None or not known.networks or ip is None:
            return None
        if any(ip in network for network in known.networks):
            return None
        return Rejection(
            "foreign_address",
            f"advertised address {ip} lies outside the networks of site {site}; mend the cell's advertise, "
            f"or add its network to sites.{site}.networks of the controller",
        )


def _names(site: SiteSettings, node: str) -> bool:
    return any(fnmatchcase(node, pattern) for pattern in site.nodes)
