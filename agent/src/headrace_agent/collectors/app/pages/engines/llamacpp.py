"""llama.cpp's server, which shows a page only with --metrics.

It counts no request, neither well nor ill answered, and measures no time to first token.
"""

from __future__ import annotations

from typing import Final

from headrace_agent.collectors.app.pages.mapping import Engine, Gauge

LLAMACPP: Final = Engine(
    kind="llamacpp",
    title="llama.cpp",
    prefixes=("llamacpp:",),
    queue_depth=(Gauge("llamacpp:requests_deferred"),),
    running=(Gauge("llamacpp:requests_processing"),),
    # Older versions only.
    kv_fill=(Gauge("llamacpp:kv_cache_usage_ratio", max),),
    prompt_tokens=(Gauge("llamacpp:prompt_tokens_total"),),
    generated_tokens=(Gauge("llamacpp:tokens_predicted_total"),),
    started_at=(),
    progress=("llamacpp:n_decode_total", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total"),
    # On a CPU one batch of a prompt takes several seconds.
    still_after_s=20.0,
    optional=frozenset({"kv_fill"}),
    help="start llama-server with --metrics",
)
