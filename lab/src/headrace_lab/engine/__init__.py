"""The engine model: continuous batching with chunked prefill, free of clocks and I/O."""

from headrace_lab.engine.model import Engine
from headrace_lab.engine.parameters import EngineParameters
from headrace_lab.engine.requests import ContextLengthError, Finish, FinishReason, Output, Request
from headrace_lab.engine.sequences import Step
from headrace_lab.engine.stats import EngineStats

__all__ = [
    "ContextLengthError",
    "Engine",
    "EngineParameters",
    "EngineStats",
    "Finish",
    "FinishReason",
    "Output",
    "Request",
    "Step",
]
