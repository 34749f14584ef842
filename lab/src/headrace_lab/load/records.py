"""What became of each request, and the NDJSON file that keeps it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Record:
    """One request, as its client saw it.

    `sent_s` counts from the start of the load; `late_ms` is how much later than due that was.
    `status` is 0 where no answer came. `cell` is "" where the answer does not tell. Latencies
    count from when the request was due, so that nothing that holds the driver up is left out:
    `ttft_ms` to the first streamed token, `e2e_ms` to the end (of the stream, or of the failure).
    `done` says that the stream came to its `[DONE]`.

    Where the client tried again, all this is of the last of `attempts`, and what begins with
    `first_` of the first one; `first_over_ms` is when that was over.
    """

    id: int
    sent_s: float
    late_ms: float
    kind: str
    model: str
    prompt_tokens: int
    prompt_bytes: int
    max_tokens: int
    status: int
    cell: str
    ttft_ms: float | None
    e2e_ms: float
    done: bool
    error: str = ""
    attempts: int = 1
    first_ok: bool = True
    first_status: int = 0
    first_cell: str = ""
    first_error: str = ""
    first_over_ms: float = 0.0
    session: int = -1
    turn: int = 0

    @property
    def ok(self) -> bool:
        """True for a whole answer: a cut-off 200 is a failure."""
        return self.status == 200 and self.done and not self.error

    @property
    def due_s(self) -> float:
        """When it should have been sent, in seconds from the start of the load."""
        return self.sent_s - self.late_ms / 1e3

    @property
    def ended_s(self) -> float:
        """When it was over, in seconds from the start of the load."""
        return self.due_s + self.e2e_ms / 1e3

    def as_json(self) -> dict[str, Any]:
        """The record as plain data, times rounded to a microsecond."""
        data = dataclasses.asdict(self)
        return {key: round(v, 6) if isinstance(v, float) else v for key, v in data.items()}


def write_ndjson(path: Path, records: Iterable[Record]) -> None:
    """One JSON object a line, in the order of sending. Raises OSError."""
    with path.open("w", encoding="utf-8") as file:
        for record in sorted(records, key=lambda r: r.id):
            file.write(json.dumps(record.as_json(), ensure_ascii=False) + "\n")
