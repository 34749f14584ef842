"""Capability classes: which cells can take how long a request, and how their weights go together."""

from __future__ import annotations

from headrace_controller.capability.boundary import Boundary, judge
from headrace_controller.capability.classes import class_lengths, groups_of
from headrace_controller.capability.guide import NO_GUIDE, Guide, SizeBound
from headrace_controller.capability.learner import BoundaryRecord, Learner
from headrace_controller.capability.shares import factors, falls_to
from headrace_controller.capability.sizes import BUCKETS, EDGES, SizeCounts, bucket_of, no_counts

__all__ = [
    "BUCKETS",
    "EDGES",
    "NO_GUIDE",
    "Boundary",
    "BoundaryRecord",
    "Guide",
    "Learner",
    "SizeBound",
    "SizeCounts",
    "bucket_of",
    "class_lengths",
    "factors",
    "falls_to",
    "groups_of",
    "judge",
    "no_counts",
]
