"""Records for tests."""

from __future__ import annotations

from typing import Any

from headrace_lab.load.records import Record


def record(**changes: Any) -> Record:
    """A good request to cell "a", sent at 1 s; `changes` replace its fields."""
    fields: dict[str, Any] = {
        "id": 0,
        "sent_s": 1.0,
        "late_ms": 0.0,
        "kind": "short",
        "model": "m",
        "prompt_tokens": 10,
        "prompt_bytes": 50,
        "max_tokens": 4,
        "status": 200,
        "cell": "a",
        "ttft_ms": 20.0,
        "e2e_ms": 100.0,
        "done": True,
        "error": "",
    }
    return Record(**{**fields, **changes})
