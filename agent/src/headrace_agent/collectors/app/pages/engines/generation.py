"""Which requests count: those that ask a model for something."""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.mapping import Labels, class_of_status

# Model lists, adapters, tokenizing, health and metrics are no user's work; their failures say
# nothing about how requests fare. What is not named here does not count.
PATHS: Final = frozenset(
    {
        "/v1/completions",
        "/v1/chat/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/classify",
        "/v1/score",
        "/v1/rerank",
        "/v2/embed",
        "/v2/rerank",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/inference/v1/generate",
        "/invocations",
        "/generate",
        "/generate_stream",
        "/encode",
        "/classify",
        "/pooling",
        "/score",
        "/rerank",
        "/vertex_generate",
        "/api/chat",
        "/api/generate",
    }
)


def response_class(labels: Labels, path: str, status: str) -> str | None:
    """The class of a response to a generation request; None for all other requests.

    `path` and `status` name the labels that hold them; the method is in `method`.
    """
    if labels.get(path) not in PATHS or labels.get("method", "POST") != "POST":
        return None
    return class_of_status(labels.get(status, ""))
