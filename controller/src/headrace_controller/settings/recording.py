"""`recording`: what is kept for a replay."""

from __future__ import annotations

from pydantic import Field

from headrace_shared.config import Settings


class RecordingSettings(Settings):
    """The recording in state_dir: beats and decisions, for `headrace replay`.

    Files of at most `segment_s` seconds, `max_bytes` together; the oldest goes first. A node's beats
    are thinned out where all nodes' come to more than `max_beats_per_s`.
    """

    enabled: bool = True
    max_bytes: int = Field(67_108_864, ge=1_048_576, le=1_099_511_627_776)
    segment_s: float = Field(600.0, ge=1, le=86400)
    max_beats_per_s: float = Field(200.0, ge=1, le=100_000)
