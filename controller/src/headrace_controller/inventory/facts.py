"""Static facts of a cell, as frozen objects read from a validated Hello."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from headrace_pb.v1 import telemetry_pb2 as pb


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model that a cell serves; `max_model_len` in tokens, None where unknown."""

    id: str
    max_model_len: int | None = None
    base_model: str = ""


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU under a cell; `memory_mib` in MiB, None where unknown."""

    uuid: str
    name: str = ""
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class CellFacts:
    """What a node says of one of its cells; `host` and `port` are where gateways reach it, `members`
    the other nodes that its engine runs on. `health_path` is where it says whether it is well, "" =
    not known yet; with `tls` it is reached by https."""

    cell_id: str
    node: str
    site: str
    host: str
    port: int
    engine_kind: str = ""
    engine_version: str = ""
    models: tuple[ModelFacts, ...] = ()
    gpus: tuple[GpuFacts, ...] = ()
    labels: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    members: tuple[str, ...] = ()
    health_path: str = ""
    tls: bool = False
    # Worked out once: whoever builds a plan asks every cell for both.
    model_ids: tuple[str, ...] = field(init=False, repr=False, compare=False)
    """The pools that the cell belongs to, each once."""
    _lengths: Mapping[str, int | None] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "model_ids", tuple(dict.fromkeys(model.id for model in self.models)))
        object.__setattr__(self, "_lengths", _lengths_of(self.models))

    def length_of(self, model: str) -> int | None:
        """The most tokens of a request for `model`: a LoRA adapter's are its base model's. None where the
        cell does not say, or does not serve it."""
        return self._lengths.get(model)


def _lengths_of(models: Sequence[ModelFacts]) -> Mapping[str, int | None]:
    known = {each.id: each for each in models}
    bases = {each.id: known.get(each.base_model) for each in models}
    return {
        each.id: base.max_model_len if each.max_model_len is None and base else each.max_model_len
        for each, base in ((each, bases[each.id]) for each in known.values())
    }


def read_facts(node: str, site: str, cell: pb.CellFacts) -> CellFacts:
    """The facts of one cell of `node` at `site`."""
    return CellFacts(
        cell_id=cell.cell_id,
        node=node,
        site=site,
        host=cell.address.host,
        port=cell.address.port,
        engine_kind=cell.engine_kind,
        engine_version=cell.engine_version,
        models=tuple(_model(model) for model in cell.models),
        gpus=read_gpus(cell.gpus),
        labels=MappingProxyType(dict(cell.labels)),
        members=tuple(each for each in dict.fromkeys(cell.member_nodes) if each != node),
        health_path=cell.health_path,
        tls=cell.tls,
    )


def write_facts(facts: CellFacts) -> pb.CellFacts:
    """The inverse of `read_facts`."""
    cell = pb.CellFacts(
        cell_id=facts.cell_id,
        address=pb.Address(host=facts.host, port=facts.port),
        engine_kind=facts.engine_kind,
        engine_version=facts.engine_version,
        gpus=[pb.GpuFacts(uuid=gpu.uuid, name=gpu.name, memory_mib=gpu.memory_mib) for gpu in facts.gpus],
        labels=dict(facts.labels),
        member_nodes=facts.members,
        health_path=facts.health_path,
        tls=facts.tls,
    )
    for model in facts.models:
        cell.models.add(id=model.id, max_model_len=model.max_model_len, base_model=model.base_model)
    return cell


def read_gpus(gpus: Iterable[pb.GpuFacts]) -> tuple[GpuFacts, ...]:
    """The GPUs that a node names."""
    return tuple(_gpu(gpu) for gpu in gpus)


def same_for_gateways(a: CellFacts, b: CellFacts) -> bool:
    """True when nothing that gateways are told differs: address, models, site, health path, TLS."""
    return _for_gateways(a) == _for_gateways(b)


def _for_gateways(facts: CellFacts) -> tuple[object, ...]:
    return (facts.host, facts.port, facts.models, facts.site, facts.health_path, facts.tls)


def _model(model: pb.ModelFacts) -> ModelFacts:
    length = model.max_model_len if model.HasField("max_model_len") else None
    return ModelFacts(model.id, length, model.base_model)


def _gpu(gpu: pb.GpuFacts) -> GpuFacts:
    memory = gpu.memory_mib if gpu.HasField("memory_mib") else None
    return GpuFacts(gpu.uuid, gpu.name, memory)
