"""`sites`: where cells and nodes may be."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, IPvAnyNetwork

from headrace_shared.config import Settings

NodePattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9._/*?\[\]!-]+$", max_length=128)]


class SiteSettings(Settings):
    """One site. Its cells may be at addresses in `networks` only (empty: anywhere); the nodes that
    `nodes` names, by patterns with * and ?, are here and at no other site (empty: any node that no
    other site names)."""

    networks: tuple[IPvAnyNetwork, ...] = Field((), max_length=256)
    nodes: tuple[NodePattern, ...] = Field((), max_length=4096)
