"""The kinds of engines, and which one's a page is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from headrace_agent.collectors.app.pages.engines.llamacpp import LLAMACPP
from headrace_agent.collectors.app.pages.engines.sglang import SGLANG
from headrace_agent.collectors.app.pages.engines.tensorrt_llm import TENSORRT_LLM
from headrace_agent.collectors.app.pages.engines.tgi import TGI
from headrace_agent.collectors.app.pages.engines.triton import TRITON
from headrace_agent.collectors.app.pages.engines.vllm import VLLM
from headrace_agent.collectors.app.pages.mapping import Engine

AUTO: Final = "auto"
# Triton comes last: a page of its own may hold another engine's families, when that is its backend.
ENGINES: Final[Mapping[str, Engine]] = {
    engine.kind: engine for engine in (VLLM, SGLANG, TENSORRT_LLM, TGI, LLAMACPP, TRITON)
}

_PREFIXES: Final = [(prefix, engine.kind) for engine in ENGINES.values() for prefix in engine.prefixes]
_ANY: Final = re.compile(
    rb"^(?:# (?:TYPE|HELP) )?(%s)" % b"|".join(re.escape(prefix).encode() for prefix, _ in _PREFIXES), re.M
)


def detect(raw: bytes) -> tuple[str, ...]:
    """The kinds of which a page has families, likeliest first."""
    found = {match.decode() for match in _ANY.findall(raw)}
    return tuple(dict.fromkeys(kind for prefix, kind in _PREFIXES if prefix in found))
