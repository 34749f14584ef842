"""Wires the controller: servers outside, the control loop inside, an orderly end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from headrace_controller.admin.access import Access
from headrace_controller.admin.desk import Desk, Memory
from headrace_controller.control import garbage
from headrace_controller.control.confirmation import EngineInquiry, Question, check_pools
from headrace_controller.control.intents.migrate import with_drains
from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleetStore, load_within
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.control.picking import Picking
from headrace_controller.control.reload import Load, Reloader
from headrace_controller.gateway.identity import Doorkeeper
from headrace_controller.gateway.service import SERVICES as REPORT_SERVICES
from headrace_controller.gateway.service import GatewayService
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import SERVICE as TELEMETRY_SERVICE
from headrace_controller.ingest.service import TelemetryService
from headrace_controller.ingest.sites import Sites
from headrace_controller.inventory.known import FleetKnowledge
from headrace_controller.lifecycle import Answer
from headrace_controller.picker.service import SERVICE as PICKER_SERVICE
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_controller.settings import load as load_settings
from headrace_controller.wire.handlers import Handlers
from headrace_controller.wire.introspection import WireIntrospection
from headrace_controller.wire.limits import FOR_GATEWAYS
from headrace_controller.wire.server import WireServer
from headrace_controller.xds.resources.endpoints import LeftOut
from headrace_controller.xds.server import SERVICES as XDS_SERVICES
from headrace_controller.xds.server import Hooks, XdsServer
from headrace_controller.xds.snapshot import InconsistentSnapshot, SnapshotBuilder
from headrace_controller.xds.upstreams import read_upstreams
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_shared import log
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.config import ConfigError
from headrace_shared.net import HostPort, explain_listen, require_free
from headrace_shared.tasks import Supervisor
from headrace_shared.tls import ServerIdentity, TlsError, TlsSettings

STOP_GRACE_S = 0.3
LOAD_TIMEOUT_S = 2.0
RENEW_S = 5.0


class Controller:
    """The parts of a running controller; implements control.loop.Outside."""

    def __init__(self, settings: ControllerSettings, clock: Clock) -> None:
        self._settings = settings
        self.clock = clock
        self._log = log.get("controller")
        self._left_out: dict[str, tuple[LeftOut, ...]] = {}
        self._unverified: set[str] = set()
        self.metrics = Metrics()
        self.metrics.expect(gateway.id for gateway in settings.gateways)
        self.identities: list[ServerIdentity] = []
        self.store = KeptFleetStore(settings.state_dir, settings.region) if settings.state_dir else None
        self.inquiry = EngineInquiry(self._engine_answered, settings.pools)
        self.xds = XdsServer(
            clock,
            [gateway.id for gateway in settings.gateways],
            self._hooks(),
            {gateway.id: gateway.nodes for gateway in settings.gateways},
            check_identity=_demands_certificates(settings.listen.xds_tls),
        )
        self._builders = _snapshot_builders(settings, epoch_ns=clock.wall_ns())
        kept = load_within(self.store, LOAD_TIMEOUT_S) if self.store else None
        memory = Memory(settings, self.metrics)
        if kept is not None:
            kept = with_drains(kept, memory.wishes, clock.wall_ns() / 1e9)
        self.loop = ControlLoop(settings, clock, self.metrics, self, kept)
        self.keeper = Keeper(self.store, self.loop, settings.region) if self.store else None
        self.ingest = self._telemetry_service()
        known = [cell.id for cell in kept.cells] if kept else []
        self.gateways = self._gateway_service()
        self.picking = self._picking() if _picks(settings) else None
        feed = self.picking.feed if self.picking is not None else None
        self.desk = Desk(settings, clock, self.loop, self.xds, self.metrics, memory, known, feed)

    def _telemetry_service(self) -> TelemetryService:
        settings = self._settings
        intake = Intake(
            self.loop,
            self._welcome,
            on_message=self.metrics.count_message,
            on_rejection=lambda reason: self.metrics.rejections.labels(reason).inc(),
            sites=Sites(settings.sites),
            known=FleetKnowledge(self.loop.fleet),
        )
        check_identity = _demands_certificates(settings.listen.telemetry_tls)
        return TelemetryService(intake, self.clock, check_identity=check_identity)

    # control.loop.Outside

    def publish(self, plan: Plan) -> None:
        for gateway_id, builder in self._builders.items():
            try:
                snapshot = builder.build(plan)
            except InconsistentSnapshot as error:
                self.metrics.errors.inc()
                self._log.error(
                    "inconsistent snapshot; the last one stays", gateway=gateway_id, error=str(error)
                )
                continue
            self.xds.publish(gateway_id, snapshot)
            self._note_left_out(gateway_id, snapshot.left_out)
        self._note_unverified(plan)

    def _note_unverified(self, plan: Plan) -> None:
        """Say once of which pools gateways speak TLS with engines that anybody could pose as."""
        pools = self._settings.pools
        found = {
            model
            for model, shape in plan.shapes.items()
            if shape.tls and ((pool := pools.get(model)) is None or pool.tls is None)
        }
        for model in sorted(found - self._unverified):
            self._log.warning(
                "engines speak TLS and their certificates are not checked",
                model=model,
                remedy=f"set pools.{model}.tls.ca to the authority that signs them",
            )
        self._unverified = found

    def _note_left_out(self, gateway_id: str, left_out: tuple[LeftOut, ...]) -> None:
        """Say once which endpoints a gateway could not be told of."""
        if left_out != self._left_out.get(gateway_id, ()):
            self._left_out[gateway_id] = left_out
            for each in left_out:
                self._log.warning("endpoint left out", gateway=gateway_id, **asdict(each))

    def ask_engine(self, cell_id: str, question: Question, timeout_s: float) -> None:
        self.inquiry.ask(cell_id, question, timeout_s)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return self.ingest.send(node, message)

    def use(self, settings: ControllerSettings) -> None:
        """Put settings in force that differ only in what can change while it runs. Raises ConfigError, and
        nothing is changed then."""
        access = Access.of(settings.admin)
        if settings != self._settings:
            self._settings = settings
            self.loop.use(settings)
        self.desk.use(settings, access)
        log.configure(settings.log.level, settings.log.format)

    def _engine_answered(self, cell_id: str, answer: Answer, detail: str) -> None:
        self.loop.answered(cell_id, answer, detail)

    def _welcome(self) -> pb.Welcome:
        cadence = self._settings.cadence
        return pb.Welcome(
            telemetry_interval_ms=round(cadence.telemetry_s * 1000),
            liveness_interval_ms=round(cadence.liveness_s * 1000),
            gateways=[
                pb.Gateway(id=each.id, host=each.host, port=each.port) for each in self._settings.gateways
            ],
        )

    def _gateway_service(self) -> GatewayService | None:
        """What Envoys report to; None where the settings want no reports."""
        reports, tls = self._settings.gateway_reports, self._settings.listen.xds_tls
        if not reports.enabled:
            return None
        door = Doorkeeper(
            self.xds.gateway_of,
            on_refusal=lambda reason: self.metrics.rejections.labels(f"report_{reason}").inc(),
            check_identity=_demands_certificates(tls),
        )
        return GatewayService(reports, self.clock, door, self.loop.reports)

    def _picking(self) -> Picking:
        """The fast loop, which looks on as the slow one works."""
        settings = self._settings
        checked = _demands_certificates(settings.listen.xds_tls)
        picking = Picking(
            settings,
            self.clock,
            self.loop.fleet,
            self.metrics.registry,
            gateway_of=self.xds.gateway_of if checked else None,
            on_refused=lambda reason: self.metrics.rejections.labels(reason).inc(),
            on_standing=lambda said, _: self.loop.events.add(
                "picker", "names no cell" if said else "names cells", said
            ),
        )
        self.loop.witnesses.append(picking.feed)
        return picking

    def _hooks(self) -> Hooks:
        return Hooks(
            on_push=lambda gateway, kind: self.metrics.pushes.labels(gateway, kind).inc(),
            on_ack=lambda gateway, kind, seconds: self.metrics.acks.labels(kind).observe(seconds),
            on_nack=lambda gateway, kind, message: self.metrics.nacks.labels(gateway, kind).inc(),
            on_stranger=lambda node_id: self.metrics.rejections.labels("unknown_gateway").inc(),
            on_wrong_identity=lambda node_id: self.metrics.rejections.labels("xds_wrong_identity").inc(),
        )


def _snapshot_builders(settings: ControllerSettings, epoch_ns: int) -> dict[str, SnapshotBuilder]:
    """By gateway; all count their versions from one epoch."""
    reports = settings.gateway_reports if settings.gateway_reports.enabled else None
    upstreams = read_upstreams(settings.pools)
    return {
        gateway.id: SnapshotBuilder(
            gateway,
            settings.envoy,
            baseline=settings.baseline,
            epoch_ns=epoch_ns,
            aliases=settings.aliases,
            upstreams=upstreams,
            reports=reports if settings.baseline is None else None,
            picker=settings.picker if _picks(settings) else None,
        )
        for gateway in settings.gateways
    }


def _picks(settings: ControllerSettings) -> bool:
    return settings.picker.enabled and settings.baseline is None


def _demands_certificates(tls: TlsSettings | None) -> bool:
    return tls is not None and tls.ca is not None


async def run(
    settings: ControllerSettings,
    stop: asyncio.Event,
    reload_asked: asyncio.Event | None = None,
    load: Load | None = None,
) -> None:
    """Run a controller until `stop` is set; whenever `reload_asked` is set, take up what `load` gives.
    Raises PortInUseError and TlsError before serving.

    It ends in order: no more publications, then the operators' pages, the agents' streams and
    last the Envoys', which keep the weights they hold. A part that fails ends the whole: its
    exception is raised, after the same order.
    """
    logger = log.get("controller")
    listen = settings.listen
    check_tls(settings)
    for field in ("telemetry", "xds", "admin"):
        require_free(f"listen.{field}", getattr(listen, field))
    _warn_of_open_ports(settings)
    controller = Controller(settings, SystemClock())
    async with AsyncExitStack() as stack:
        stack.push_async_callback(controller.inquiry.close)
        await _serve_envoys(stack, listen.xds, listen.xds_tls, controller)
        await _serve_agents(stack, listen.telemetry, listen.telemetry_tls, controller)
        stack.callback(controller.desk.close)
        pages = _context(controller, listen.admin_tls, "listen.admin_tls", "http/1.1")
        await controller.desk.serve(stack, listen.admin, pages)
        supervisor = await stack.enter_async_context(Supervisor())
        supervisor.spawn("control loop", controller.loop.run())
        if controller.keeper is not None:
            supervisor.spawn("keep fleet", controller.keeper.run())
        if reload_asked is not None and load is not None:
            reloads = controller.metrics.reloads
            reloader = Reloader(
                settings, load, controller.use, reload_asked, lambda result: reloads.labels(result).inc()
            )
            supervisor.spawn("reload", reloader.run())
        supervisor.spawn("spare the fleet", garbage.spare(controller.loop.fleet))
        supervisor.spawn("renew certificates", _renew(controller.identities))
        logger.info(
            "serving",
            region=settings.region,
            telemetry=str(listen.telemetry),
            xds=str(listen.xds),
            admin=str(listen.admin),
        )
        await supervisor.wait(stop)
        logger.info("stopping")


async def _renew(identities: Sequence[ServerIdentity]) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        for identity in identities:
            identity.renew()


def load_checked(path: Path) -> ControllerSettings:
    """Read a settings file and check the files it names. Raises ConfigError and TlsError."""
    settings = load_settings(path)
    check_tls(settings)
    return settings


def check_tls(settings: ControllerSettings) -> None:
    """Raise TlsError where files that the settings name cannot be used; the message names each, and the
    remedy."""
    listen = settings.listen
    checks: list[Callable[[], object]] = [
        lambda: read_upstreams(settings.pools),
        lambda: check_pools(settings.pools),
        lambda: Access.of(settings.admin),
    ]
    for field in ("telemetry_tls", "xds_tls", "admin_tls"):
        tls: TlsSettings | None = getattr(listen, field)
        if tls is not None:
            checks.append(partial(ServerIdentity, tls, f"listen.{field}"))
    found = []
    for check in checks:
        try:
            check()
        except (TlsError, ConfigError) as error:
            found.append(str(error))
    if found:
        raise TlsError("\n".join(dict.fromkeys(found)))


async def _serve_envoys(
    stack: AsyncExitStack, address: HostPort, tls: TlsSettings | None, controller: Controller
) -> None:
    handlers, services = Handlers(), [*XDS_SERVICES]
    controller.xds.add_to(handlers)
    if controller.gateways is not None:
        controller.gateways.add_to(handlers)
        services += REPORT_SERVICES
    methods = handlers.methods()
    if controller.picking is not None:
        methods |= controller.picking.service.methods()
        services.append(PICKER_SERVICE)
    introspection = WireIntrospection(services)
    methods |= introspection.methods()
    context = _context(controller, tls, "listen.xds_tls")
    server = WireServer(methods, controller.clock, context, FOR_GATEWAYS)
    try:
        await server.start(address)
    except OSError as error:
        raise explain_listen("listen.xds", address, error) from error
    stack.push_async_callback(handlers.close)
    stack.push_async_callback(server.stop, STOP_GRACE_S)
    stack.callback(introspection.close)
    stack.push_async_callback(controller.xds.close)
    if controller.gateways is not None:
        stack.push_async_callback(controller.gateways.close)
    if controller.picking is not None:
        stack.callback(controller.picking.service.close)


async def _serve_agents(
    stack: AsyncExitStack, address: HostPort, tls: TlsSettings | None, controller: Controller
) -> None:
    introspection = WireIntrospection([TELEMETRY_SERVICE])
    methods = controller.ingest.methods() | introspection.methods()
    context = _context(controller, tls, "listen.telemetry_tls")
    server = WireServer(methods, controller.clock, context)
    try:
        await server.start(address)
    except OSError as error:
        raise explain_listen("listen.telemetry", address, error) from error
    stack.push_async_callback(server.stop, STOP_GRACE_S)
    stack.callback(introspection.close)


def _context(
    controller: Controller, tls: TlsSettings | None, field: str, protocol: str = "h2"
) -> Callable[[], ssl.SSLContext] | None:
    """What gives each new connection its context; None where a port speaks no TLS."""
    if tls is None:
        return None
    identity = ServerIdentity(tls, field, protocol)
    controller.identities.append(identity)
    return identity.context


def _warn_of_open_ports(settings: ControllerSettings) -> None:
    """Say which ports other machines can reach without a certificate or a token."""
    listen = settings.listen
    for field in ("telemetry", "xds", "admin"):
        address: HostPort = getattr(listen, field)
        tls: TlsSettings | None = getattr(listen, f"{field}_tls")
        if not address.is_loopback and tls is None:
            log.get("controller").warning(
                "port is open to other machines without TLS", setting=f"listen.{field}", address=str(address)
            )
