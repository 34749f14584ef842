"""The scenario file: every fleet, load, network, fault and parameter of the lab, with its reader."""

from headrace_lab.scenarios.catalogue import Catalogue, packaged
from headrace_lab.scenarios.fleets import CellPlan, FleetPlan
from headrace_lab.scenarios.loads import LoadClass, TraceLoad
from headrace_lab.scenarios.networks import Network, PathPlan
from headrace_lab.scenarios.timelines import FaultKind, FaultTimes, Stress

__all__ = [
    "Catalogue",
    "CellPlan",
    "FaultKind",
    "FaultTimes",
    "FleetPlan",
    "LoadClass",
    "Network",
    "PathPlan",
    "Stress",
    "TraceLoad",
    "packaged",
]
