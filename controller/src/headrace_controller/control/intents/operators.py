"""Carries out what operators ask for, and makes it outlive this controller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from headrace_controller.control.intents.records import Act, Actor, Kind, Wish
from headrace_controller.control.intents.store import Change, StoreError
from headrace_controller.control.intents.writer import Kept, StoreWriter
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.view import AuditView, IntentView, iso_time
from headrace_controller.control.witness import Witness
from headrace_controller.lifecycle import CellState, IllegalTransition, LoggedTransition
from headrace_controller.projection import Intents
from headrace_controller.settings import ControllerSettings
from headrace_shared import log
from headrace_shared.clock import Clock

MAX_WISHES: Final = 20_000
"""Of one kind; far beyond what people ask for, and a bound on what a token can fill."""


class Refused(ValueError):  # noqa: N818 - what happened to the wish
    """What is asked cannot be done now; the message says why and what to do."""


class Operators(Witness):
    """The wishes in force. What changes them raises KeyError for what is not known and Refused for what
    is not possible, and changes nothing then; else it acts at once, and what it gives back can be awaited
    for whether the wish is on disk.

    Drains live in the lifecycle's book: here they are only mirrored, so that one which a controller
    before this one began stands again as soon as its cell is known.
    """

    def __init__(
        self, settings: ControllerSettings, clock: Clock, loop: ControlLoop, writer: StoreWriter | None
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._loop = loop
        self._writer = writer
        self._wishes: dict[tuple[Kind, str], Wish] = {}
        self._pending: dict[str, Wish] = {}
        self._log = log.get("operators")

    @property
    def kept(self) -> bool:
        """True while wishes outlive a restart."""
        return self._writer is not None and not self._writer.trouble

    def restore(self, wishes: Sequence[Wish], known: Sequence[str] = ()) -> None:
        """Take up what was in force before; the drains of the cells `known` stand already."""
        for wish in wishes:
            self._wishes[wish.key] = wish
            if wish.kind is Kind.DRAIN and wish.subject not in self._loop.fleet:
                self._pending[wish.subject] = wish
        for cell_id in known:
            if cell_id in self._loop.fleet:
                self._submit(self._mirror(cell_id))
        if any(wish.kind is not Kind.DRAIN for wish in wishes):
            self._loop.intents = self._intents()
            self._log.info("operators' wishes are in force again", wishes=len(wishes))

    def standing(self) -> tuple[IntentView, ...]:
        """All wishes but drains, which are shown with their cells."""
        return tuple(
            IntentView(
                wish.kind.value, wish.subject, wish.weight, wish.sites, wish.cause, wish.by, iso_time(wish.at)
            )
            for key, wish in sorted(self._wishes.items())
            if wish.kind is not Kind.DRAIN
        )

    def use(self, settings: ControllerSettings) -> None:
        """Other settings are in force from now on."""
        self._settings = settings

    # Wishes.

    def drain(self, cell_id: str, cause: str, deadline_s: float | None, by: Actor) -> Kept:
        """Begin to drain a cell."""
        try:
            self._loop.drain(cell_id, cause, deadline_s)
        except IllegalTransition as error:
            raise Refused(str(error)) from error
        self._loop.events.add("operator", "drain", cause, cell=cell_id, by=by.name)
        return self._keep(self._mirror(cell_id))

    def undrain(self, cell_id: str, cause: str, by: Actor) -> Kept:
        """Take a drain back, also one whose cell has not been seen since the restart."""
        if self._pending.pop(cell_id, None) is not None and cell_id not in self._loop.fleet:
            self._wishes.pop((Kind.DRAIN, cell_id), None)
            self._loop.events.add("operator", "undrain", cause, cell=cell_id, by=by.name)
            return self._keep([(Kind.DRAIN, cell_id)])
        try:
            self._loop.undrain(cell_id, cause)
        except IllegalTransition as error:
            raise Refused(str(error)) from error
        self._loop.events.add("operator", "undrain", cause, cell=cell_id, by=by.name)
        return self._keep(self._mirror(cell_id))

    def shadow(self, on: bool, cause: str, by: Actor) -> Kept:
        """Compute weights and push none, or push again."""
        return self._set(Wish(kind=Kind.SHADOW, cause=cause), on, by)

    def freeze(self, on: bool, cause: str, by: Actor) -> Kept:
        """Hold the weights that are pushed, or let them go."""
        return self._set(Wish(kind=Kind.FREEZE, cause=cause), on, by)

    def picker(self, on: bool, cause: str, by: Actor) -> Kept:
        """Let the picker name cells, or leave all requests to the weights."""
        if not self._settings.picker.enabled:
            raise Refused("there is no picker; set picker.enabled and restart the controller")
        return self._set(Wish(kind=Kind.PICKER_OFF, cause=cause), not on, by)

    def override(self, cell_id: str, weight: int | None, cause: str, by: Actor) -> Kept:
        """Set a cell's weight; None leaves it to the pressures again."""
        most = self._settings.projection.max_weight
        if weight is None:
            if (Kind.OVERRIDE, cell_id) not in self._wishes and cell_id not in self._loop.fleet:
                raise KeyError(cell_id)
            return self._set(Wish(kind=Kind.OVERRIDE, subject=cell_id, cause=cause), False, by)
        if cell_id not in self._loop.fleet:
            raise KeyError(cell_id)
        if not 1 <= weight <= most:
            raise Refused(f"weight is {weight}; give 1 to {most} (projection.max_weight), or drain the cell")
        return self._set(Wish(kind=Kind.OVERRIDE, subject=cell_id, cause=cause, weight=weight), True, by)

    def cordon(self, site: str, on: bool, cause: str, by: Actor) -> Kept:
        """Send a site no new requests where another can take them, or lift that."""
        if (Kind.CORDON, site) not in self._wishes and site not in self._sites():
            raise KeyError(site)
        return self._set(Wish(kind=Kind.CORDON, subject=site, cause=cause), on, by)

    def pin(self, model: str, sites: Sequence[str] | None, cause: str, by: Actor) -> Kept:
        """Let only these sites serve a model; None lets any."""
        known = (Kind.PIN, model) in self._wishes or model in self._loop.fleet.pools().index
        if not known:
            raise KeyError(model)
        if sites is None:
            return self._set(Wish(kind=Kind.PIN, subject=model, cause=cause), False, by)
        strange = sorted(set(sites) - self._sites())
        if strange:
            raise Refused(
                f"there is no site {strange[0]!r}; the sites are {', '.join(sorted(self._sites()))}"
            )
        wish = Wish(kind=Kind.PIN, subject=model, cause=cause, sites=tuple(sorted(set(sites))))
        return self._set(wish, True, by)

    # The account.

    def account(self, actor: Actor, action: str, subject: str, detail: str, status: int) -> None:
        """Note an act of an operator, done or refused, in the log and in the store."""
        act = Act(
            self._clock.wall_ns() / 1e9, actor.name, actor.role, actor.source, action, subject[:256],
            detail[:1000], status,
        )  # fmt: skip
        self._log.info(
            "audit", who=act.who, role=act.role, source=act.source, action=action, subject=act.subject,
            detail=act.detail, status=status,
        )  # fmt: skip
        if self._writer is not None:
            self._writer.submit((), (act,))

    async def acts(self, limit: int, before: int | None) -> list[AuditView]:
        """The newest acts, newest first. Raises StoreError."""
        if self._writer is None:
            raise StoreError("acts are only in the log: this controller has no state_dir")
        rows = await self._writer.acts(limit, before)
        return [
            AuditView(
                number, iso_time(act.at), act.who, act.role, act.source, act.action, act.subject, act.detail,
                act.status,
            )
            for number, act in rows
        ]  # fmt: skip

    # control.witness.Witness

    def changed(self, entry: LoggedTransition) -> None:
        """Let a drain from before stand again, and mirror what became of one."""
        cell_id = entry.cell_id
        if cell_id not in self._loop.fleet:
            return
        wish = self._pending.pop(cell_id, None)
        if wish is not None and not self._loop.book.life(cell_id).drained:
            remaining = 0.0 if wish.finished else max(0.0, wish.deadline_at - self._clock.wall_ns() / 1e9)
            try:
                self._loop.drain(cell_id, wish.cause, remaining, wish.requested_by)
            except IllegalTransition as error:
                self._log.warning("a drain from before cannot stand again", cell=cell_id, error=str(error))
        self._submit(self._mirror(cell_id))

    def forgotten(self, cell_id: str, now: float) -> None:
        """A drain ends with its cell; a weight that was set waits for it to come back."""
        if self._wishes.pop((Kind.DRAIN, cell_id), None) is not None:
            self._submit([(Kind.DRAIN, cell_id)])

    def _set(self, wish: Wish, on: bool, by: Actor) -> Kept:
        """Put a wish in force, or take one back."""
        if self._settings.baseline is not None and on:
            raise Refused(
                f"the gateways are a plain Envoy (baseline {self._settings.baseline}): nothing steers their "
                "weights; start the controller without a baseline"
            )
        if on and wish.key not in self._wishes and self._count(wish.kind) >= MAX_WISHES:
            raise Refused(f"there are {MAX_WISHES} of these already; take some back")
        wish = wish.model_copy(update={"by": by.name, "at": self._clock.wall_ns() / 1e9})
        if on:
            self._wishes[wish.key] = wish
        else:
            self._wishes.pop(wish.key, None)
        self._loop.intents = self._intents()
        said = _said(wish) if on else f"{wish.kind.value} lifted"
        self._loop.events.add("operator", said, wish.cause, cell=_cell_of(wish), by=by.name)
        return self._keep([wish if on else wish.key])

    def _count(self, kind: Kind) -> int:
        return sum(1 for each, _ in self._wishes if each is kind)

    def _sites(self) -> frozenset[str]:
        fleet = self._loop.fleet
        return frozenset(fleet.facts_of(row).site for row in fleet.rows().tolist())

    def _intents(self) -> Intents:
        def of(kind: Kind) -> Mapping[str, Wish]:
            return {subject: wish for (each, subject), wish in self._wishes.items() if each is kind}

        return Intents(
            shadow=bool(of(Kind.SHADOW)),
            frozen=bool(of(Kind.FREEZE)),
            picker_off=bool(of(Kind.PICKER_OFF)),
            overrides={cell: wish.weight or 1 for cell, wish in of(Kind.OVERRIDE).items()},
            cordoned_sites=frozenset(of(Kind.CORDON)),
            pins={model: frozenset(wish.sites) for model, wish in of(Kind.PIN).items()},
        )

    def _mirror(self, cell_id: str) -> list[Change]:
        """What to write for a cell's drain to be kept as it is now; nothing where it is already."""
        life, key = self._loop.book.life(cell_id), (Kind.DRAIN, cell_id)
        before = self._wishes.get(key)
        if not life.drained or life.drain is None:
            return [] if self._wishes.pop(key, None) is None else [key]
        now, wall = self._clock.now(), self._clock.wall_ns() / 1e9
        wish = Wish(
            kind=Kind.DRAIN,
            subject=cell_id,
            cause=life.drain.cause,
            at=before.at if before is not None else wall,
            requested_by=life.drain.requested_by,
            target=life.drain.target,
            deadline_at=wall + max(0.0, life.drain.deadline - now),
            finished=life.state is CellState.TERMINATED,
        )
        if before is not None and _same_drain(before, wish):
            return []
        self._wishes[key] = wish
        return [wish]

    def _submit(self, changes: Sequence[Change]) -> None:
        if changes and self._writer is not None:
            self._writer.submit(changes)

    def _keep(self, changes: Sequence[Change]) -> Kept:
        return Kept(None) if self._writer is None else self._writer.keep(changes)


def _same_drain(a: Wish, b: Wish) -> bool:
    """Whether two say the same: of the deadline, what passing time alone has changed does not count."""
    ends = a.finished or abs(a.deadline_at - b.deadline_at) < 1.0
    said = ("requested_by", "target", "cause", "finished")
    return ends and all(getattr(a, name) == getattr(b, name) for name in said)


def _said(wish: Wish) -> str:
    if wish.kind is Kind.OVERRIDE:
        return f"override {wish.weight}"
    if wish.kind is Kind.PIN:
        return f"pin {wish.subject} to {', '.join(wish.sites) or 'no site'}"
    return f"{wish.kind.value} {wish.subject}".rstrip()


def _cell_of(wish: Wish) -> str:
    return wish.subject if wish.kind is Kind.OVERRIDE else ""
