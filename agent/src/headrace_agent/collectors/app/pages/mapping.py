"""What a mapping table is made of: which series of an engine's page give which figure, and how they fold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace_agent.collectors.app.pages.page import Wanted

# Classes of answered requests. A request that its client gave up is neither well nor ill answered.
OK: Final = "ok"
CLIENT_ERRORS: Final = "client_errors"
THROTTLED: Final = "throttled"
SERVER_ERRORS: Final = "server_errors"
CANCELLED: Final = "cancelled"
FAILURES: Final = (CLIENT_ERRORS, THROTTLED, SERVER_ERRORS)
CLASSES: Final = (OK, *FAILURES, CANCELLED)

Labels = Mapping[str, str]
Combine = Callable[[list[float]], float]
_NO_LABELS: Final[Labels] = {}


@dataclass(frozen=True, slots=True)
class Gauge:
    """A figure that one family of gauges holds.

    `where`: labels that a series must carry. `copies`: labels of ranks that repeat one and the
    same figure; of such series the largest counts. `combine` folds what is left into one.
    """

    name: str
    combine: Combine = sum
    where: Labels = field(default_factory=dict)
    copies: tuple[str, ...] = ()

    def __str__(self) -> str:
        wanted = ",".join(f'{name}="{value}"' for name, value in self.where.items())
        return f"{self.name}{{{wanted}}}" if wanted else self.name


@dataclass(frozen=True, slots=True)
class Ratio:
    """A figure that is one gauge divided by another."""

    part: Gauge
    whole: Gauge

    def __str__(self) -> str:
        return f"{self.part} / {self.whole}"


# What is worked off, as counted by the engine. No page must have it.
WORK: Final = ("prompt_tokens", "cached_tokens", "generated_tokens")

# The same figure in the words of several versions, newest first.
Figure = tuple[Gauge | Ratio, ...]


@dataclass(frozen=True, slots=True)
class Counter:
    """Requests that one family counts.

    `classify` gives the class of a series from its labels, None where it counts something else;
    `tells` are the classes that can be told from it, and `told_exactly` those that can be where its
    series are `exact`. `sparse`: the engine shows the family from its first event on, so that its
    absence is a zero.
    """

    name: str
    classify: Callable[[Labels], str | None]
    tells: frozenset[str]
    told_exactly: frozenset[str] = frozenset()
    exact: Callable[[Labels], bool] = lambda labels: False
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind of engine: how its page is recognised and read.

    `prefixes`: a page with a family that begins so is this kind's. `responses` together count
    every request that was answered, well or not; `finished` only those that came to their end, and
    stands in where a page lacks the former. `prompt_tokens`, of which `cached_tokens` were found in the
    prefix cache, and `generated_tokens` count what was worked off; no page must
    have them. `only` narrows counters to the series of requests as
    clients make them, where inner ones are counted as well. `progress`: samples that move while
    the engine works. `still_after_s`: for how long a page with requests on it may show nothing
    that moves. `optional`: figures whose absence means nothing. `help`: what the operator has to
    switch on for families that are missing.
    """

    kind: str
    title: str
    prefixes: tuple[str, ...]
    queue_depth: Figure
    running: Figure
    kv_fill: Figure = ()
    ttft: tuple[str, ...] = ()
    responses: tuple[Counter, ...] = ()
    finished: tuple[Counter, ...] = ()
    only: Callable[[frozenset[str]], frozenset[str]] | None = None
    only_label: str = ""
    prompt_tokens: Figure = ()
    cached_tokens: Figure = ()
    generated_tokens: Figure = ()
    sleep: Figure = ()
    started_at: Figure = (Gauge("process_start_time_seconds", max),)
    progress: tuple[str, ...] = ()
    still_after_s: float = 5.0
    optional: frozenset[str] = frozenset({"sleep", "started_at"})
    help: str = ""
    wanted: Wanted = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wanted", Wanted(self._samples()))

    def _samples(self) -> dict[str, str]:
        """Every sample that is read from a page -> its family."""
        gauges = [*self.queue_depth, *self.running, *self.kv_fill, *self.sleep, *self.started_at]
        gauges += [*self.prompt_tokens, *self.cached_tokens, *self.generated_tokens]
        names = [gauge.name for each in gauges for gauge in parts(each)]
        names += [counter.name for counter in (*self.responses, *self.finished)]
        samples = {name: name for name in names}
        samples.update({f"{name}_bucket": name for name in self.ttft})
        for name in self.progress:
            samples.setdefault(name, name.removesuffix("_count").removesuffix("_bucket"))
        return samples


def parts(figure: Gauge | Ratio) -> tuple[Gauge, ...]:
    """The gauges that a figure is made of."""
    return (figure,) if isinstance(figure, Gauge) else (figure.part, figure.whole)


def class_of_status(status: str) -> str | None:
    """The class of a response by its status, which may be a code (429) or a group of them (4xx)."""
    exact = {"429": THROTTLED, "499": CANCELLED}
    groups = {"2": OK, "4": CLIENT_ERRORS, "5": SERVER_ERRORS}
    return exact.get(status) or groups.get(status[:1])
