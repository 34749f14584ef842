"""Takes what gateways report: finds the cell behind an address, keeps accounts, writes evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from headrace_controller.capability import SizeCounts
from headrace_controller.capability.sizes import ACCEPTED, REFUSED, Counts, bucket_of, no_counts
from headrace_controller.control.metrics import Metrics
from headrace_controller.gateway.accounts import Account, CellReport, report_of
from headrace_controller.gateway.clients import Clients
from headrace_controller.gateway.loads import Load
from headrace_controller.gateway.records import Outcome, Record, join_address
from headrace_controller.gateway.service import ACCESS_LOG, LOADS
from headrace_controller.inventory import Fleet
from headrace_controller.inventory.columns import NEVER
from headrace_controller.lifecycle import Answer
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.names import model_of
from headrace_shared import log
from headrace_shared.clock import Clock

REFUSALS_OF_THE_DEAD: Final = 3
"""So many connections in a row refused to gateways show that nothing listens there."""
NO_CELL: Final = ""
MAX_SIZES: Final = 4096
"""Lengths of models, of which the sizes of requests are counted; 2.6 KB each."""
PRUNE_INTERVAL_S: Final = 60.0
_SIZE_SAYS: Final = frozenset({400, 413})


class GatewayReports:
    """Implements headrace_controller.gateway.service.Sink; `on_news` is called when weights may follow.

    Everything is bounded by the cells that are known; what is told of other addresses counts as
    nobody's.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        fleet: Fleet,
        clock: Clock,
        metrics: Metrics,
        on_news: Callable[[], None],
    ) -> None:
        self._settings = settings.gateway_reports
        # An agent that ends leaves a gap of one interval of its own before its silence shows.
        self._surely_after_s = 2.0 * settings.cadence.liveness_s
        self._fleet = fleet
        self._clock = clock
        self._metrics = metrics
        self._on_news = on_news
        self._accounts: dict[str, dict[str, Account]] = {
            gateway.id: {NO_CELL: Account()} for gateway in settings.gateways
        }
        self._numbers = {gateway.id: number for number, gateway in enumerate(settings.gateways)}
        self._clients = Clients()
        self._cells: dict[str, str] = {}
        self._cells_of = (-1, -1)
        self._log = log.get("gateway_reports")
        self._sizes: dict[tuple[str, int], Counts] = {}
        self._sized_at: dict[tuple[str, int], float] = {}
        self._pruned_at = NEVER
        self._sizes_full = False
        self._sources: dict[tuple[str, int], set[str]] = {}
        self._open: dict[tuple[str, str], int] = {}
        # A counter that begins to exist with its first event hides it from rate().
        for gateway in self._accounts:
            for fate in ("read", "tries", "left_out"):
                metrics.gateway_records.labels(gateway, fate)
            for kind in (ACCESS_LOG, LOADS):
                metrics.gateway_streams.labels(gateway, kind)

    # What is reported.

    def requests(self, gateway: str, records: Sequence[Record], each: int, alone: bool) -> None:
        """Take requests; of those whose gateway logs its failed tries apart, these come from there."""
        now, accounts = self._clock.now(), self._accounts[gateway]
        self._find_cells()
        for record in records:
            cell = self._cells.get(record.upstream, NO_CELL)
            self._account(accounts, cell).add(record, each, now)
            if cell:
                self._note(gateway, cell, record, now, count_broken=alone)
        self._metrics.gateway_records.labels(gateway, "read").inc(len(records))
        self._on_news()

    def tries(self, gateway: str, records: Sequence[Record], share: float) -> None:
        """Take tries that ended without a whole answer, whatever became of the request.

        All of them come; beside requests of which a `share` is read, so much of each is evidence.
        """
        now, accounts = self._clock.now(), self._accounts[gateway]
        self._find_cells()
        for record in records:
            cell = self._cells.get(record.upstream)
            if cell is None or not record.broken or record.outcome is Outcome.CANCELLED:
                continue
            self._account(accounts, cell).failed_tries += 1
            self._note(gateway, cell, record, now, count_broken=True, part=share)
        self._metrics.gateway_records.labels(gateway, "tries").inc(len(records))
        self._on_news()

    def loads(self, gateway: str, source: int, loads: Sequence[Load]) -> None:
        """Take the load of the endpoints at one Envoy."""
        accounts, busy = self._accounts[gateway], set[str]()
        self._find_cells()
        for load in loads:
            cell = self._cells.get(load.upstream)
            if cell is None:
                continue
            account = self._account(accounts, cell)
            if cell not in busy:
                account.in_progress.pop(source, None)
            busy.add(cell)
            # A cell in several pools is an endpoint in each.
            account.issued += load.issued
            account.in_progress[source] = account.in_progress.get(source, 0) + load.in_progress
        self._idle(gateway, source, self._sources.get((gateway, source), set()) - busy)
        self._sources[gateway, source] = busy

    def left_out(self, gateway: str, count: int) -> None:
        """Count what sampling left out."""
        self._metrics.gateway_records.labels(gateway, "left_out").inc(count)

    def streams(self, gateway: str, kind: str, count: int) -> None:
        """Note the streams that are up; without any log the agents are believed again at once."""
        self._metrics.gateway_streams.labels(gateway, kind).set(count)
        self._open[gateway, kind] = count
        if kind == ACCESS_LOG and not any(n for (_, of), n in self._open.items() if of == ACCESS_LOG):
            self._fleet.gateway_told_at[:] = NEVER
            self._on_news()

    def source_ended(self, gateway: str, source: int) -> None:
        """An Envoy is gone, and its open requests with it."""
        self._idle(gateway, source, self._sources.pop((gateway, source), set()))

    # What it says.

    def sizes(self) -> SizeCounts:
        """Requests accepted and refused by the size of their bodies, for the boundaries of classes."""
        return self._sizes

    def prune_sizes(self, now: float) -> None:
        """Forget the sizes of lengths that no cell has had for the fleet's retention."""
        if now - self._pruned_at < PRUNE_INTERVAL_S:
            return
        self._pruned_at = now
        idle = [key for key, at in self._sized_at.items() if now - at >= self._fleet.retention_s]
        if not idle:
            return
        there = self._lengths()
        for key in idle:
            if key in there:
                self._sized_at[key] = now
            else:
                del self._sizes[key], self._sized_at[key]
        self._sizes_full = len(self._sizes) >= MAX_SIZES

    def _lengths(self) -> set[tuple[str, int]]:
        """The lengths that cells have, by model."""
        fleet = self._fleet
        facts = [fleet.facts_of(row) for row in fleet.rows().tolist()]
        found = {(model.id, cell.length_of(model.id)) for cell in facts for model in cell.models}
        return {(model, length) for model, length in found if length is not None}

    def answer_of(self, cell_id: str, now: float) -> tuple[Answer, str] | None:
        """What gateways know of the engine of a silent cell; None = nothing that decides.

        Only what came after the silence began counts: ALIVE by an answer, DEAD by connections refused
        in a row.
        """
        fleet, row = self._fleet, self._fleet.get(cell_id)
        if row is None:
            return None
        since = fleet.last_heard[row] + self._surely_after_s
        alive_at = float(fleet.gateway_alive_at[row])
        if alive_at > since and now - alive_at <= self._settings.alive_s:
            return Answer.ALIVE, f"a gateway had an answer {now - alive_at:.1f} s ago"
        refused = int(fleet.gateway_refused[row])
        if refused >= REFUSALS_OF_THE_DEAD and fleet.gateway_refused_at[row] > since:
            return Answer.DEAD, f"{refused} connections of gateways in a row were refused"
        return None

    def cell(self, cell_id: str) -> Mapping[str, CellReport]:
        """What each gateway saw of a cell; gateways that saw nothing are left out."""
        now = self._clock.now()
        return {
            gateway: report_of(accounts[cell_id], now)
            for gateway, accounts in self._accounts.items()
            if cell_id in accounts
        }

    def accounts(self) -> Mapping[str, Mapping[str, Account]]:
        """All accounts, by gateway and cell; "" is of requests that reached no known cell."""
        return self._accounts

    def forget(self, cell_id: str) -> None:
        """A cell is gone for good."""
        for accounts in self._accounts.values():
            accounts.pop(cell_id, None)
        for busy in self._sources.values():
            busy.discard(cell_id)
        self._clients.forget(cell_id)

    def _note(
        self, gateway: str, cell: str, record: Record, now: float, count_broken: bool, part: float = 1.0
    ) -> None:
        """Write what one request, or a `part` of one, says of its cell into the columns."""
        fleet, row = self._fleet, self._fleet.row(cell)
        outcome = record.outcome
        self._note_reach(self._numbers[gateway], row, record, now, count_broken)
        if outcome > Outcome.SERVER_ERROR or (record.broken and not count_broken):
            return
        fleet.gateway_told_at[row] = now
        fleet.gateway_version += 1
        model = model_of(record.cluster) or ""
        if not any(each.id == model for each in fleet.facts_of(row).models):
            model = ""
        refused = outcome in (Outcome.CLIENT_ERROR, Outcome.THROTTLED)
        charged = self._clients.charge(model, cell, record.client, refused, now)
        if refused:
            fleet.gateway_evidence[row, outcome] += part * charged
            fleet.gateway_evidence[row, Outcome.OK] += part * (1.0 - charged)
        else:
            fleet.gateway_evidence[row, outcome] += part
        self._note_size(row, model, record, now)

    def _note_reach(self, gateway: int, row: int, record: Record, now: float, count_broken: bool) -> None:
        """Whether the cell answers, to anyone and to this gateway."""
        fleet = self._fleet
        if record.refused:
            fleet.gateway_refused[row] += 1
            fleet.gateway_refused_at[row] = now
        if record.refused or (record.broken and count_broken and record.outcome is not Outcome.CANCELLED):
            fleet.unanswered[row, gateway] += 1
            fleet.unanswered_at[row, gateway] = now
        elif 0 < record.status < 500 and not record.broken and record.outcome <= Outcome.THROTTLED:
            # It may have waited in Envoy's buffer for as long as that.
            fleet.gateway_alive_at[row] = max(fleet.gateway_alive_at[row], now - self._settings.flush_s)
            fleet.gateway_refused[row] = 0
            fleet.unanswered[row, gateway] = 0

    def _note_size(self, row: int, model: str, record: Record, now: float) -> None:
        if not record.request_bytes or not model:
            return
        refused = record.status in _SIZE_SAYS
        if not refused and record.outcome is not Outcome.OK:
            return
        length = self._fleet.facts_of(row).length_of(model)
        if length is None:
            return
        counts = self._sizes.get((model, length))
        if counts is None:
            if len(self._sizes) >= MAX_SIZES:
                self._refuse_size(model, length)
                return
            counts = self._sizes[model, length] = no_counts()
        self._sized_at[model, length] = now
        counts[bucket_of(record.request_bytes), REFUSED if refused else ACCEPTED] += 1.0

    def _refuse_size(self, model: str, length: int) -> None:
        """Count it, and say so once until there is room again."""
        self._metrics.sizes_refused.inc()
        if not self._sizes_full:
            self._log.warning(
                "sizes of requests are not counted: too many lengths; boundaries of such classes stay",
                model=model,
                max_model_len=length,
                most=MAX_SIZES,
            )
        self._sizes_full = True

    def _account(self, accounts: dict[str, Account], cell: str) -> Account:
        account = accounts.get(cell)
        if account is None:
            account = accounts[cell] = Account()
        return account

    def _idle(self, gateway: str, source: int, cells: set[str]) -> None:
        accounts = self._accounts[gateway]
        for cell in cells:
            if cell in accounts:
                accounts[cell].in_progress.pop(source, None)

    def _find_cells(self) -> None:
        """Addresses are looked up anew when a cell came, went or moved."""
        fleet = self._fleet
        version = (fleet.rows_version, fleet.addresses_version)
        if version == self._cells_of:
            return
        self._cells_of = version
        # Of two at one address gateways are told of the first.
        facts = [fleet.facts_of(row) for row in reversed(fleet.rows().tolist())]
        self._cells = {join_address(each.host, each.port): each.cell_id for each in facts}
        self._cells.pop("", None)
