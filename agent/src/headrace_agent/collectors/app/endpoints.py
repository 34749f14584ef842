"""What each kind of engine is asked beside its metrics page, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

Body = dict[str, Any]
NOT_FOUND: Final = 404
SGLANG: Final = "sglang"
TRITON: Final = "triton"
TGI: Final = "tgi"
LLAMACPP: Final = "llamacpp"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The calls of one kind.

    `health`: where it says cheaply whether it is well; of several the first that is there.
    `deep_health`: where it says so after work, which is asked now and then; "" for nowhere.
    `version` and `version_key`: JSON answers, of several the first that is there, and the key in
    it. `completion`: the path and body that ask one token of the model that is named.
    """

    health: tuple[str, ...]
    completion: Callable[[str], tuple[str, Body]]
    deep_health: str = ""
    version: tuple[str, ...] = ("/version",)
    version_key: str = "version"


def _openai(model: str) -> tuple[str, Body]:
    return "/v1/completions", {"model": model, "prompt": "hi", "max_tokens": 1}


def _tgi(model: str) -> tuple[str, Body]:
    return "/generate", {"inputs": "hi", "parameters": {"max_new_tokens": 1}}


def _triton(model: str) -> tuple[str, Body]:
    body = {"text_input": "hi", "max_tokens": 1, "bad_words": "", "stop_words": ""}
    return f"/v2/models/{model}/generate", body


ENDPOINTS: Final[Mapping[str, Endpoints]] = {
    # Not known yet: what most kinds have, and what Triton and its OpenAI frontend have instead.
    "": Endpoints(("/health", "/v2/health/ready", "/health/ready"), _openai),
    "vllm": Endpoints(("/health",), _openai),
    # Its /health generates a token and waits for it, so it is no question for every 100 ms. The
    # model list comes from the server alone, which may outlive what works behind it.
    SGLANG: Endpoints(
        ("/v1/models",), _openai, deep_health="/health", version=("/server_info", "/get_server_info")
    ),
    "tensorrt-llm": Endpoints(("/health",), _openai),
    TRITON: Endpoints(("/v2/health/ready", "/health/ready"), _triton, version=("/v2",)),
    TGI: Endpoints(("/health",), _tgi, version=("/info",)),
    LLAMACPP: Endpoints(("/health",), _openai, version=("/props",), version_key="build_info"),
}


class HealthPath:
    """Where an engine is asked for its health. `kind` gives the kind that it is known to be."""

    def __init__(self, kind: Callable[[], str]) -> None:
        self._kind = kind
        self._paths: tuple[str, ...] = ()
        self._at = 0
        self._untried = 0

    @property
    def current(self) -> str:
        """The path to ask next."""
        paths = ENDPOINTS[self._kind()].health
        if paths is not self._paths:
            self._paths, self._at, self._untried = paths, 0, len(paths) - 1
        return self._paths[self._at]

    def elsewhere(self, path: str, status: int) -> str | None:
        """Take in the status that `path` answered with: where to ask instead, None where it is the
        engine's word.

        That a path is not there says nothing of the engine's health while another may be.
        """
        current = self.current
        if status == NOT_FOUND and path != current:
            return current
        if status != NOT_FOUND or self._untried == 0:
            self._untried = 0
            return None
        self._at += 1
        self._untried -= 1
        return self._paths[self._at]
