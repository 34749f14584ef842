"""Which models of a Hello are taken: well-formed ones, as many as a node and the fleet may have.

Every model is a pool of its own in each gateway's configuration, and whoever may load adapters into an
engine makes models. Those that are too many are left out alone; what is served stays.
"""

from __future__ import annotations

from headrace_controller.ingest.known import Known
from headrace_controller.ingest.validation import Rejection, check_model
from headrace_pb.v1 import telemetry_pb2 as pb

MAX_NODE_MODELS = 512
"""The distinct models that one node's cells may name."""

TOO_MANY = "too_many_models"


class ModelChoice:
    """Decides over the models of one Hello, one after the other."""

    def __init__(self, hello: pb.Hello, known: Known) -> None:
        self._known = known
        named = {model.id for cell in hello.cells for model in cell.models}
        # What the node serves already goes before what is new, wherever it stands in the Hello.
        served = sorted(named.intersection(known.models_of(hello.node)))
        self._taken = set(served[:MAX_NODE_MODELS])
        self._room = known.room()

    def refusal(self, cell_id: str, model: pb.ModelFacts) -> Rejection | None:
        """Why the model is left out; None where it is taken."""
        bad = check_model(cell_id, model)
        if bad is not None or model.id in self._taken:
            return bad
        if len(self._taken) >= MAX_NODE_MODELS:
            return Rejection(
                TOO_MANY,
                f"cell {cell_id}: its node names more than {MAX_NODE_MODELS} models, the rest are left out; "
                "load fewer adapters, or spread them over more nodes",
            )
        if not self._known.has_model(model.id):
            if self._room <= 0:
                return Rejection(
                    TOO_MANY,
                    f"cell {cell_id}: the fleet has as many models as it may have, new ones are left out; "
                    "unload adapters that nobody uses",
                )
            self._room -= 1
        self._taken.add(model.id)
        return None


def leave_models(hello: pb.Hello, known: Known) -> dict[str, Rejection]:
    """Take out of `hello` the models that are not taken; by cell, why the first of them is not.

    That there are too many is said of the first cell only: a flood over all cells is one flood.
    """
    choice = ModelChoice(hello, known)
    why: dict[str, Rejection] = {}
    flood = False
    for cell in hello.cells:
        good: list[pb.ModelFacts] = []
        for model in cell.models:
            refusal = choice.refusal(cell.cell_id, model)
            if refusal is None:
                good.append(model)
            elif refusal.reason != TOO_MANY:
                why.setdefault(cell.cell_id, refusal)
            elif not flood:
                flood = True
                why.setdefault(cell.cell_id, refusal)
        if len(good) < len(cell.models):
            del cell.models[:]
            cell.models.extend(good)
    return why
