"""How many tokens a prompt has, from what is known before it is tokenised: its bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_STEP: Final = 0.02
_FIRST_TOKENS: Final = 500.0
LEAST_BYTES_PER_TOKEN: Final = 0.5
MOST_BYTES_PER_TOKEN: Final = 16.0


@dataclass(slots=True)
class _Pool:
    bytes_per_token: float
    mean_tokens: float = _FIRST_TOKENS
    mean_square: float = _FIRST_TOKENS * _FIRST_TOKENS
    samples: int = 0


class Sizes:
    """Learned for each pool; `bytes_per_token` is where it starts."""

    def __init__(self, bytes_per_token: float) -> None:
        self._start = bytes_per_token
        self._pools: dict[str, _Pool] = {}

    def tokens(self, model: str, size: int | None, most: float) -> int:
        """The tokens of a prompt whose body has `size` bytes, None = not known: then the pool's mean. At
        least 1, at most `most`, what its cells take: the rest of such a body is images or refused."""
        pool = self._pool(model)
        guess = pool.mean_tokens if size is None else size / pool.bytes_per_token
        return max(1, int(min(guess, most)))

    def mean_tokens(self, model: str) -> float:
        """The mean of the pool's prompts."""
        return self._pool(model).mean_tokens

    def met_tokens(self, model: str) -> float:
        """The mean of those prompts that are met under way: the longer one is, the more often it is."""
        pool = self._pool(model)
        return max(pool.mean_square / pool.mean_tokens, pool.mean_tokens)

    def bytes_per_token(self, model: str) -> float:
        """As learned."""
        return self._pool(model).bytes_per_token

    def note(self, model: str, tokens: int) -> None:
        """A prompt of so many tokens was sent."""
        pool = self._pool(model)
        pool.mean_tokens += _STEP * (tokens - pool.mean_tokens)
        pool.mean_square += _STEP * (tokens * tokens - pool.mean_square)

    def learn(self, model: str, size: int, tokens: int) -> None:
        """An engine counted the tokens of a body of `size` bytes. Small bodies are mostly JSON."""
        if size <= 0 or tokens <= 0:
            return
        pool = self._pool(model)
        pool.samples += 1
        shown = min(max(size / tokens, LEAST_BYTES_PER_TOKEN), MOST_BYTES_PER_TOKEN)
        step = max(_STEP, 1.0 / (pool.samples + 1)) * min(1.0, tokens / pool.mean_tokens)
        pool.bytes_per_token += step * (shown - pool.bytes_per_token)

    def _pool(self, model: str) -> _Pool:
        pool = self._pools.get(model)
        if pool is None:
            pool = self._pools[model] = _Pool(self._start)
        return pool

    def keep(self, models: frozenset[str]) -> None:
        """Forget the pools that are not there any more."""
        for model in self._pools.keys() - models:
            del self._pools[model]
