"""Wires the controller: servers outside, the control loop inside, an orderly end."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict

import grpc
from aiohttp import web

from headrace_controller.admin import api
from headrace_controller.control.confirmation import EngineInquiry
from headrace_controller.control.fleet_view import Views
from headrace_controller.control.keeper import Keeper
from headrace_controller.control.kept_fleet import KeptFleetStore, load_within
from headrace_controller.control.loop import ControlLoop
from headrace_controller.control.metrics import Metrics
from headrace_controller.control.view import EventView, FleetView
from headrace_controller.ingest.intake import Intake
from headrace_controller.ingest.service import TelemetryService
from headrace_controller.lifecycle import Answer, IllegalTransition
from headrace_controller.projection import Plan
from headrace_controller.settings import ControllerSettings
from headrace_controller.xds.resources.endpoints import LeftOut
from headrace_controller.xds.server import Hooks, XdsServer
from headrace_controller.xds.snapshot import InconsistentSnapshot, SnapshotBuilder
from headrace_pb.v1 import telemetry_pb2 as pb
from headrace_pb.v1.telemetry_pb2_grpc import add_CellTelemetryServicer_to_server
from headrace_shared import log
from headrace_shared.clock import Clock, SystemClock
from headrace_shared.net import HostPort, PortInUseError, require_free
from headrace_shared.rpc import SERVER_OPTIONS
from headrace_shared.tasks import Supervisor
from headrace_shared.tls import TlsError, TlsSettings, server_credentials

STOP_GRACE_S = 0.3
LOAD_TIMEOUT_S = 2.0


class Controller:
    """The parts of a running controller; implements control.loop.Outside and admin.api.Controls."""

    def __init__(self, settings: ControllerSettings, clock: Clock) -> None:
        self._settings = settings
        self._log = log.get("controller")
        self._left_out: dict[str, tuple[LeftOut, ...]] = {}
        self.metrics = Metrics()
        epoch = clock.wall_ns()
        self.store = KeptFleetStore(settings.state_dir, settings.region) if settings.state_dir else None
        self.inquiry = EngineInquiry(self._engine_answered)
        self.xds = XdsServer(clock, [gateway.id for gateway in settings.gateways], self._hooks())
        self._builders = {
            gateway.id: SnapshotBuilder(gateway, settings.envoy, baseline=settings.baseline, epoch_ns=epoch)
            for gateway in settings.gateways
        }
        kept = load_within(self.store, LOAD_TIMEOUT_S) if self.store else None
        self.loop = ControlLoop(settings, clock, self.metrics, self, kept)
        self.keeper = Keeper(self.store, self.loop, settings.region) if self.store else None
        tls = settings.listen.telemetry_tls
        intake = Intake(
            self.loop,
            self._welcome,
            on_message=lambda kind: self.metrics.messages.labels(kind).inc(),
            on_rejection=lambda reason: self.metrics.rejections.labels(reason).inc(),
        )
        self.ingest = TelemetryService(intake, clock, check_identity=tls is not None and tls.ca is not None)
        self.views = Views(settings, clock, self.loop, self.xds)
        self.metrics.watch(self.views.fleet)

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

    def _note_left_out(self, gateway_id: str, left_out: tuple[LeftOut, ...]) -> None:
        """Say once which endpoints a gateway could not be told of."""
        if left_out != self._left_out.get(gateway_id, ()):
            self._left_out[gateway_id] = left_out
            for each in left_out:
                self._log.warning("endpoint left out", gateway=gateway_id, **asdict(each))

    def ask_engine(self, cell_id: str, address: HostPort, timeout_s: float) -> None:
        self.inquiry.ask(cell_id, address, timeout_s)

    def send(self, node: str, message: pb.ControllerMessage) -> bool:
        return self.ingest.send(node, message)

    # admin.api.Controls

    def fleet_view(self) -> FleetView:
        return self.views.fleet()

    def event_views(self, limit: int) -> Sequence[EventView]:
        return self.views.events(limit)

    def drain(self, cell_id: str, cause: str, deadline_s: float | None) -> None:
        try:
            self.loop.drain(cell_id, cause, deadline_s)
        except IllegalTransition as error:
            raise ValueError(str(error)) from error
        self.views.forget()

    def undrain(self, cell_id: str, cause: str) -> None:
        try:
            self.loop.undrain(cell_id, cause)
        except IllegalTransition as error:
            raise ValueError(str(error)) from error
        self.views.forget()

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

    def _hooks(self) -> Hooks:
        return Hooks(
            on_push=lambda gateway, kind: self.metrics.pushes.labels(gateway, kind).inc(),
            on_ack=lambda gateway, kind, seconds: self.metrics.acks.labels(kind).observe(seconds),
            on_nack=lambda gateway, kind, message: self.metrics.nacks.labels(gateway, kind).inc(),
            on_stranger=lambda node_id: self.metrics.rejections.labels("unknown_gateway").inc(),
        )


async def run(settings: ControllerSettings, stop: asyncio.Event) -> None:
    """Run a controller until `stop` is set. Raises PortInUseError and TlsError before serving.

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
        await _serve_grpc(stack, "listen.xds", listen.xds, listen.xds_tls, controller)
        await _serve_grpc(stack, "listen.telemetry", listen.telemetry, listen.telemetry_tls, controller)
        await _serve_admin(stack, listen.admin, controller)
        supervisor = await stack.enter_async_context(Supervisor())
        supervisor.spawn("control loop", controller.loop.run())
        if controller.keeper is not None:
            supervisor.spawn("keep fleet", controller.keeper.run())
        logger.info(
            "serving",
            region=settings.region,
            telemetry=str(listen.telemetry),
            xds=str(listen.xds),
            admin=str(listen.admin),
        )
        await supervisor.wait(stop)
        logger.info("stopping")


def check_tls(settings: ControllerSettings) -> None:
    """Raise TlsError where a listener's TLS files cannot be used; the message names file and remedy."""
    listen = settings.listen
    for field, tls in (
        ("listen.telemetry_tls", listen.telemetry_tls),
        ("listen.xds_tls", listen.xds_tls),
    ):
        if tls is None:
            continue
        server_credentials(tls, field)
        assert tls.cert is not None, "a server's credentials need one"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            # With a password at hand OpenSSL does not ask the terminal for that of an encrypted key.
            context.load_cert_chain(tls.cert, tls.key, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise TlsError(
                f"{field}: cert {tls.cert} and key {tls.key} do not work together ({error}); "
                "give a certificate chain and its own key, unencrypted, both PEM"
            ) from error
        try:
            if tls.ca is not None:
                context.load_verify_locations(tls.ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(
                f"{field}.ca: {tls.ca} holds no usable certificate ({error}); give a PEM file"
            ) from error


async def _serve_grpc(
    stack: AsyncExitStack, field: str, address: HostPort, tls: TlsSettings | None, controller: Controller
) -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS)
    for_agents = field == "listen.telemetry"
    if for_agents:
        add_CellTelemetryServicer_to_server(controller.ingest, server)
    else:
        controller.xds.add_to(server)
    try:
        if tls is None:
            server.add_insecure_port(str(address))
        else:
            server.add_secure_port(str(address), server_credentials(tls, f"{field}_tls"))
    except RuntimeError as error:
        # The port was free a moment ago, or both listeners were given the same.
        raise PortInUseError(field, address) from error
    await server.start()
    stack.push_async_callback(server.stop, STOP_GRACE_S)
    if not for_agents:
        stack.push_async_callback(controller.xds.close)


async def _serve_admin(stack: AsyncExitStack, address: HostPort, controller: Controller) -> None:
    runner = web.AppRunner(
        api.build(controller, controller.metrics.registry), access_log=None, shutdown_timeout=STOP_GRACE_S
    )
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    try:
        await web.TCPSite(runner, address.host, address.port).start()
    except OSError as error:
        raise PortInUseError("listen.admin", address) from error


def _warn_of_open_ports(settings: ControllerSettings) -> None:
    """Say which ports other machines can reach without a certificate or a token."""
    listen = settings.listen
    for field, tls in (("telemetry", listen.telemetry_tls), ("xds", listen.xds_tls), ("admin", None)):
        address: HostPort = getattr(listen, field)
        if not address.is_loopback and tls is None:
            log.get("controller").warning(
                "port is open to other machines without TLS", setting=f"listen.{field}", address=str(address)
            )
