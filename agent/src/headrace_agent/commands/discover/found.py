"""What a look at this host brought: plain facts, nothing of how they were got."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace_agent.collectors.readings import Model


@dataclass(frozen=True, slots=True)
class Candidate:
    """A listening port that may be an engine's: where to ask it, and whose it is.

    `listens` are the addresses that it is bound to; `pids` hold its socket, as far as this user
    may see; `like_engine`: its command line is an engine's.
    """

    host: str
    port: int
    listens: tuple[str, ...] = ()
    pids: frozenset[int] = frozenset()
    like_engine: bool = False

    @property
    def url(self) -> str:
        """Where this host reaches it."""
        return f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answers:
    """What a port said: whether it is HTTP at all, the kinds of engine on its metrics page, whose
    page else it is, and what its API told. Statuses are None where nothing was asked or answered."""

    http: bool = False
    kinds: tuple[str, ...] = ()
    page_of: str = ""
    metrics_status: int | None = None
    models_status: int | None = None
    models: tuple[Model, ...] = ()
    owner: str = ""
    version: str = ""
    triton: bool = False
    tgi: bool = False


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that answers on this host.

    `shows_metrics`: its kind was read from its metrics page. `metrics_url` is set where that page
    is on another port. `wants_key`: its API refuses who shows none. `pids` are its processes.
    """

    candidate: Candidate
    kind: str
    version: str = ""
    models: tuple[Model, ...] = ()
    shows_metrics: bool = False
    metrics_url: str = ""
    wants_key: bool = False
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A MIG instance: its GPU instance id, its own UUIDs, and the processes on it."""

    instance: str
    uuids: tuple[str, ...] = ()
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class GpuSeen:
    """One GPU of this host; `pids` use it, None where no source tells."""

    index: int | None
    uuid: str
    name: str = ""
    memory_mib: int | None = None
    pids: frozenset[int] | None = None
    instances: tuple[GpuInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class Placed:
    """An engine with its GPUs as a config names them, and by what they were recognised."""

    engine: Engine
    gpus: tuple[str, ...] = ()
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """All that is known of this host. `address` is what others reach it by, "" where unknown;
    `notes` say what was seen and not taken, for people."""

    node: str
    address: str = ""
    engines: tuple[Placed, ...] = ()
    gpus: tuple[GpuSeen, ...] = ()
    dcgm_url: str = ""
    notes: tuple[str, ...] = field(default=())
