"""The state of one engine, decided from what was seen of it. No clock, no network.

Evidence in, changes out. An engine is SERVING only while its last health answer was 200 and a
completion was answered since it last was unhealthy, asleep or gone, or while it was adopted. One
that was found stuck also has to answer a completion, or to show that it moves again.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace_agent.collectors.readings import EngineState


@dataclass(frozen=True, slots=True)
class Change:
    """A new state and its cause, for people."""

    state: EngineState
    cause: str


class EngineHealth:
    """One engine's state; each method takes one piece of evidence and returns the change it makes.

    `state` is None until the first evidence decides it. `life` counts the engine's lives, so
    that an answer of an earlier one is not credited to the next. `unreachable_after_s`: how
    long a fault that may not be the engine's (names, routes) is borne.
    """

    def __init__(self, unreachable_after_s: float) -> None:
        self.state: EngineState | None = None
        self.serving_since: float | None = None
        self.healthy = False
        self.life = 0
        self._warm = False
        self._gone = False
        self._asleep = False
        self._stuck = False
        self._broken_before = False
        self._unreachable_since: float | None = None
        self._unreachable_after_s = unreachable_after_s

    def bear(self, unreachable_after_s: float) -> None:
        """Bear a fault that may not be the engine's for so long from now on."""
        self._unreachable_after_s = unreachable_after_s

    @property
    def awaiting(self) -> bool:
        """True where only a completion, or proof of earlier ones, is missing for SERVING."""
        return self.healthy and not self._warm and not self._asleep

    @property
    def is_stuck(self) -> bool:
        """True while it is HUNG although its health endpoint may say that all is well."""
        return self._stuck

    def connected(self, now: float) -> Change | None:
        """Something accepts connections where nothing did before."""
        if self.state is EngineState.DOWN and self._gone:
            self._gone = False
            return self._move(EngineState.LOADING, "listens again", now)
        return None

    def refused(self, cause: str, now: float) -> Change | None:
        """Nothing listens: proof of death."""
        self._settle()
        if self._gone:
            return None
        self._lose_life()
        self._gone = True
        if self.state is None:
            return self._move(EngineState.DOWN, f"engine not listening: {cause}", now)
        return self._move(EngineState.DOWN, cause, now)

    def ended(self, cause: str, now: float) -> Change | None:
        """Its server process ended: proof of death, whoever may accept connections in its place."""
        if self.state is None:
            # Nothing is known of the engine yet: whoever answers now is met as for the first time.
            self._lose_life()
            return None
        return self.refused(cause, now)

    def unreachable(self, cause: str, now: float) -> Change | None:
        """No connection, for a reason that proves nothing; borne for a while."""
        since = self._unreachable_since if self._unreachable_since is not None else now
        if now - since >= self._unreachable_after_s:
            return self.refused(cause, now)
        self._settle()
        self._unreachable_since = since
        return None

    def broken(self, cause: str, now: float) -> Change | None:
        """A probe's connection ended without an answer: once is chance, twice is unhealthy."""
        again = self._broken_before
        self._settle()
        self._broken_before = True
        return self._unhealthy(cause, now) if again else None

    def silent(self, cause: str, now: float) -> Change | None:
        """A probe went unanswered for as long as an engine may take."""
        self._settle()
        self.healthy = False
        if self.state in (EngineState.SERVING, EngineState.SLEEPING):
            return self._move(EngineState.HUNG, cause, now)
        if self.state is None or (self.state is EngineState.DOWN and self._gone):
            self._gone = False
            return self._move(EngineState.LOADING, f"accepts connections and answers nothing: {cause}", now)
        return None

    def health(self, status: int, now: float, call: str = "GET /health") -> Change | None:
        """The health endpoint answered; `call` is how it was asked."""
        self._settle()
        if status != 200:
            return self._unhealthy(f"{call} answered {status}", now)
        self.healthy = True
        self._gone = False
        if self._stuck:
            return None
        if self.state is EngineState.HUNG and self._warm:
            return self._move(EngineState.SERVING, "answers again", now)
        if self.state is EngineState.HUNG and self._asleep:
            return self._move(EngineState.SLEEPING, "answers again, and sleeps", now)
        if self.state in (EngineState.HUNG, EngineState.DOWN):
            return self._move(EngineState.LOADING, "healthy again; no completion answered yet", now)
        return None

    def asleep(self, now: float) -> Change | None:
        """Its operator put the engine to sleep."""
        self._warm = self._stuck = False
        self._asleep = True
        if self.healthy and self.state is not EngineState.SLEEPING:
            return self._move(EngineState.SLEEPING, "put to sleep by its operator", now)
        return None

    def awake(self) -> None:
        """The engine says that it does not sleep: from SLEEPING it serves once it answers a completion."""
        self._asleep = False

    def adopt(self, since: float, now: float) -> Change | None:
        """The engine has served since `since`, before it was first looked at. No change after that."""
        if not self.awaiting or self.state is not None:
            return None
        self._warm = True
        change = self._move(EngineState.SERVING, "found serving: it has answered requests before", now)
        self.serving_since = since
        return change

    def begin(self, now: float) -> Change | None:
        """Healthy, and nothing proves that it has served."""
        if self.state is None and self.healthy:
            return self._move(EngineState.LOADING, "healthy; no completion answered yet", now)
        return None

    def answered(self, life: int, cause: str, now: float) -> Change | None:
        """A completion was answered by the engine in its life number `life`."""
        if not self.awaiting or life != self.life:
            return None
        self._warm = True
        return self._move(EngineState.SERVING, cause, now)

    def stuck(self, life: int, cause: str, now: float) -> Change | None:
        """It says that it is well, nothing moves, and a completion asked in this life went unanswered."""
        if self.state is not EngineState.SERVING or life != self.life:
            return None
        self._stuck = True
        return self._move(EngineState.HUNG, cause, now)

    def unstuck(self, cause: str, now: float) -> Change | None:
        """It answered a completion, or its figures move again."""
        was_stuck, self._stuck = self._stuck, False
        if was_stuck and self.healthy and self.state is EngineState.HUNG:
            return self._move(EngineState.SERVING, cause, now)
        return None

    def _unhealthy(self, cause: str, now: float) -> Change | None:
        was_gone = self._gone
        self._lose_life()
        self._gone = False
        if self.state in (EngineState.SERVING, EngineState.HUNG, EngineState.SLEEPING):
            return self._move(EngineState.DOWN, cause, now)
        if self.state is None or (self.state is EngineState.DOWN and was_gone):
            return self._move(EngineState.LOADING, cause, now)
        return None

    def _settle(self) -> None:
        """New evidence ends what was only borne until then."""
        self._broken_before = False
        self._unreachable_since = None

    def _lose_life(self) -> None:
        self.life += 1
        self.healthy = self._warm = self._asleep = self._stuck = False

    def _move(self, state: EngineState, cause: str, now: float) -> Change | None:
        if state is self.state:
            return None
        self.state = state
        self.serving_since = now if state is EngineState.SERVING else None
        return Change(state, cause)
