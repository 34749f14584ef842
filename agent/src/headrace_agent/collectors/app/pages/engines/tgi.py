"""Text Generation Inference.

It measures no time to first token: `tgi_request_queue_duration` and
`tgi_request_mean_time_per_token_duration` are other times, and none stands in. A family is on the
page from its first event on.
"""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.mapping import (
    CANCELLED,
    CLIENT_ERRORS,
    OK,
    SERVER_ERRORS,
    THROTTLED,
    Counter,
    Engine,
    Gauge,
    Labels,
)

_FAILURES: Final = {
    "overloaded": THROTTLED,
    "validation": CLIENT_ERRORS,
    "template": CLIENT_ERRORS,
    "template_error": CLIENT_ERRORS,
    "missing_template_variable": CLIENT_ERRORS,
    "tool_error": CLIENT_ERRORS,
    "dropped": CANCELLED,
    "cancelled": CANCELLED,
}


def _success_class(labels: Labels) -> str | None:
    return OK


def _failure_class(labels: Labels) -> str | None:
    """What is not the client's fault is the engine's: generation, incomplete, batch."""
    return _FAILURES.get(labels.get("err", ""), SERVER_ERRORS)


_SUCCESS: Final = Counter("tgi_request_success", _success_class, tells=frozenset({OK}), sparse=True)

TGI: Final = Engine(
    kind="tgi",
    title="TGI",
    prefixes=("tgi_",),
    queue_depth=(Gauge("tgi_queue_size"),),
    running=(Gauge("tgi_batch_current_size"),),
    responses=(
        _SUCCESS,
        Counter(
            "tgi_request_failure",
            _failure_class,
            tells=frozenset({CLIENT_ERRORS, THROTTLED, SERVER_ERRORS}),
            sparse=True,
        ),
    ),
    started_at=(),
    # Each step of decoding is one inference of a batch.
    progress=("tgi_batch_inference_count", "tgi_batch_inference_success", "tgi_request_success"),
    optional=frozenset({"queue_depth", "running"}),
)
