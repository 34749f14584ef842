"""RDS: by the model that a request names, and by its size, to the cells that can take it."""

from __future__ import annotations

from headrace_controller.xds.resources.routes.builder import RouteBuilder, Routes
from headrace_controller.xds.resources.routes.to_pools import TRANSFORM_FILTER

__all__ = ["TRANSFORM_FILTER", "RouteBuilder", "Routes"]
