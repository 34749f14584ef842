"""One controller's stream: connect, converse, and come back when it breaks, for ever.

Every controller has its own connection, backoff and fate. Nothing here ever waits on behalf of
another part of the agent: `offer` returns at once, whatever the controller does.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final

import grpc

from headrace_agent.collectors.containment import Mishaps
from headrace_agent.collectors.readings import CellEvent
from headrace_agent.heartbeat.alarm import Alarm
from headrace_agent.heartbeat.build import build_goodbye
from headrace_agent.heartbeat.cadence import Backoff
from headrace_agent.heartbeat.conversation import CONNECT_TIMEOUT_S, Conversation, NoAnswerError
from headrace_agent.heartbeat.outbox import Outbox, Reporter
from headrace_agent.heartbeat.reach import reached
from headrace_agent.heartbeat.trouble import Trouble, explain
from headrace_agent.settings import ControllerSettings
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import CellTelemetryStub
from headrace_shared import log
from headrace_shared.clock import Clock
from headrace_shared.tls import TlsError, channel_credentials

# A connection that lived this long was a good one: the next attempt comes soon.
GOOD_AFTER_S: Final = 5.0
# A cell that another node holds is asked for again, in case that node has left.
REFUSED_AGAIN_S: Final = 30.0
MAX_GATEWAYS: Final = 256
MAX_TROUBLES: Final = 8
# Of so many attempts in vain one is a call, which says whether the reason is still the same.
ASK_WHY_EVERY: Final = 32

_OPTIONS: Final = (
    # A fresh channel must not inherit the reconnect backoff of the one before.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2000),
    ("grpc.enable_retries", 0),
    # The address is the operator's word; a proxy meant for the Web would take beats elsewhere.
    ("grpc.enable_http_proxy", 0),
    # A host that vanished without a word is noticed by its silence.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 3_000),
    ("grpc.http2.max_pings_without_data", 0),
)


@dataclass(frozen=True, slots=True)
class Handlers:
    """What a controller's words do. All return at once; the first argument is the controller."""

    gateways: Callable[[str, Sequence[pb.Gateway]], None]
    drain: Callable[[str, pb.Drain], None]
    undrain: Callable[[str, pb.Undrain], None]


class ControllerStream:
    """Streams one agent's reports to one controller.

    `connected` is True between a Welcome and the end of its stream; `beats_sent` counts telemetry
    and liveness beats; `events_unacked` and `events_dropped` count events.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        reporter: Reporter,
        handlers: Handlers,
        clock: Clock,
        rng: Callable[[], float] = random.random,
        mishaps: Mishaps | None = None,
        last_event_id: int = 0,
    ) -> None:
        """`last_event_id`: the last one that this agent told this controller, on an earlier stream.

        Raises headrace_shared.tls.TlsError where the TLS files cannot be used.
        """
        self.name = str(settings.address)
        self.connected = False
        self.beats_sent = 0
        self._part = f"stream to {self.name}"
        self._settings = settings
        self._handlers = handlers
        self._clock = clock
        self._mishaps = mishaps if mishaps is not None else Mishaps()
        self._outbox = Outbox(reporter, last_id=last_event_id)
        self._backoff = Backoff(rng)
        self._wake = Alarm()
        self._leaving = False
        self._ended = asyncio.Event()
        self._conversation: Conversation | None = None
        self._welcomed_at: float | None = None
        self._refused: dict[str, str] = {}
        self._ask_again: asyncio.TimerHandle | None = None
        self._said: set[str] = set()
        self._in_vain = 0
        self._trouble: Trouble | None = None
        self._log = log.get("stream").bind(controller=self.name)
        self._credentials()

    @property
    def events_unacked(self) -> int:
        """Events that the controller has not acknowledged."""
        return self._outbox.unacked

    @property
    def events_dropped(self) -> int:
        """Events lost to the bound on how many are kept."""
        return self._outbox.dropped

    @property
    def last_event_id(self) -> int:
        """The id of the newest event; ids are never used twice within an agent's life."""
        return self._outbox.last_id

    def retarget(self, settings: ControllerSettings) -> None:
        """Speak to the same controller under other settings, from the next `run` on. What it has
        not been told stays to be told. Call it while `run` does not run."""
        self._settings = settings
        self.connected = False
        self._said.clear()
        self._in_vain = 0
        self._backoff.reset()

    def tell_facts(self, gone: Collection[str] = ()) -> None:
        """The facts changed: say Hello and a full beat now, and nothing more of the cells in `gone`."""
        self._outbox.forget(gone)
        self._outbox.want_hello()
        self._outbox.want_telemetry()
        self._wake.set()

    def offer(self, event: CellEvent) -> None:
        """Tell the controller at once, or as soon as it is back."""
        if not self._outbox.add(event, self._clock.now()) and "full" not in self._said:
            self._say("full", "too many events unacknowledged; the oldest moot ones are dropped")
        self._wake.set()

    async def leave(self, planned: bool, grace_s: float, reason: str, withdraw: bool = False) -> None:
        """Say Goodbye and wait until the controller has ended the stream; at once if not connected.

        With `withdraw` the controller is told first that this agent speaks for no cell any more.
        """
        self._leaving = True
        if not self.connected:
            return
        self._outbox.leave(build_goodbye(planned, grace_s, reason), withdraw=withdraw)
        self._wake.set()
        await self._ended.wait()

    async def run(self) -> None:
        """Stream until cancelled, or until `leave` is done."""
        while True:
            trouble, lost = await self._attempt()
            if self._leaving:
                return
            self._note(trouble, lost)
            await asyncio.sleep(self._backoff.next_s())

    async def _attempt(self) -> tuple[Trouble, bool]:
        """One connection, from dialling to its end: why it ended, and whether it had been welcomed."""
        trouble = self._trouble = await self._connection()
        lost, self.connected = self.connected, False
        self._in_vain = 0 if lost else self._in_vain + 1
        return trouble, lost

    async def _connection(self) -> Trouble:
        self._ended.clear()
        try:
            channel = self._dial()
            try:
                if (trouble := await self._still_away(channel)) is not None:
                    return trouble
                await self._converse(channel)
            finally:
                await channel.close()
        except (grpc.aio.BaseError, grpc.RpcError, NoAnswerError, TlsError, OSError) as error:
            return explain(error)
        except Exception as error:  # noqa: BLE001 - one stream's trouble must not end the agent
            why = self._mishaps.note(self._part, error)
            return Trouble(why, why, "this is a fault of the agent: please report it")
        else:
            return Trouble("closed", "the controller ended the stream", "")
        finally:
            self._close_books()

    async def _still_away(self, channel: grpc.aio.Channel) -> Trouble | None:
        """The reason known, while the controller still cannot be reached; None: call it."""
        if self._trouble is None or self._in_vain % ASK_WHY_EVERY == 0:
            return None
        return None if await reached(channel, CONNECT_TIMEOUT_S) else self._trouble

    def _close_books(self) -> None:
        if self._welcomed_at is not None and self._clock.now() - self._welcomed_at >= GOOD_AFTER_S:
            self._backoff.reset()
            self._mishaps.clear(self._part)
        self._welcomed_at = None
        self._conversation = None
        if self._ask_again is not None:
            self._ask_again.cancel()
        self._ended.set()

    def _credentials(self) -> grpc.ChannelCredentials | None:
        tls = self._settings.tls
        return channel_credentials(tls, f"controllers ({self.name}): tls") if tls is not None else None

    def _dial(self) -> grpc.aio.Channel:
        # The files are read anew each time, so that renewed certificates need no restart.
        credentials = self._credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(self.name, options=_OPTIONS)
        return grpc.aio.secure_channel(self.name, credentials, options=_OPTIONS)

    async def _converse(self, channel: grpc.aio.Channel) -> None:
        call = CellTelemetryStub(channel).Stream()
        self._conversation = Conversation(
            call, self._outbox, self._wake, self._clock, self._take, self._count_beat
        )
        try:
            await self._conversation.run(self.name)
        finally:
            call.cancel()

    def _count_beat(self) -> None:
        self.beats_sent += 1

    def _take(self, message: pb.ControllerMessage) -> None:
        """Act on one message of the controller; an unknown kind is ignored."""
        kind = message.WhichOneof("body")
        if kind == "welcome":
            self._take_welcome(message.welcome)
        elif kind == "ack":
            self._outbox.acknowledge(message.ack.event_id)
        elif kind == "directive":
            self._take_directive(message.directive)

    def _take_welcome(self, welcome: pb.Welcome) -> None:
        if not self.connected:
            self.connected = True
            self._welcomed_at = self._clock.now()
            self._said.clear()
            self._log.info("controller connected", session=welcome.session[:128])
        self._set_cadence(welcome.telemetry_interval_ms, welcome.liveness_interval_ms)
        self._note_refused({cell.cell_id: cell.reason for cell in welcome.refused})
        self._handlers.gateways(self.name, welcome.gateways[:MAX_GATEWAYS])

    def _take_directive(self, directive: pb.Directive) -> None:
        kind = directive.WhichOneof("body")
        if kind == "drain":
            self._handlers.drain(self.name, directive.drain)
        elif kind == "undrain":
            self._handlers.undrain(self.name, directive.undrain)
        elif kind == "cadence":
            self._set_cadence(directive.cadence.telemetry_interval_ms, directive.cadence.liveness_interval_ms)

    def _set_cadence(self, telemetry_ms: int, liveness_ms: int) -> None:
        if self._conversation is not None:
            self._conversation.cadence.ask(telemetry_ms, liveness_ms, self._clock.now())
            self._wake.set()

    def _note_refused(self, refused: dict[str, str]) -> None:
        for cell_id, reason in refused.items():
            if self._refused.get(cell_id) != reason:
                self._log.warning("cell refused by the controller", cell=cell_id, why=reason[:512])
        self._refused = refused
        if self._ask_again is not None:
            self._ask_again.cancel()
        if refused:
            self._ask_again = asyncio.get_running_loop().call_later(REFUSED_AGAIN_S, self._hello_again)

    def _hello_again(self) -> None:
        self._outbox.want_hello()
        self._wake.set()

    def _note(self, trouble: Trouble, lost: bool) -> None:
        """Say each reason once until the controller has been there again."""
        if trouble.key in self._said or len(self._said) >= MAX_TROUBLES:
            return
        what = "controller lost" if lost else "controller unreachable"
        self._say(trouble.key, what, why=trouble.why, remedy=f"retrying; {trouble.remedy}".rstrip("; "))

    def _say(self, key: str, what: str, **details: str) -> None:
        self._said.add(key)
        self._log.warning(what, **details)
