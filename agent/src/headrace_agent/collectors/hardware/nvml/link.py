"""One NVML process as the agent holds it: requests with a time-out, messages unasked, and its end."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from headrace_agent.collectors.containment import describe
from headrace_agent.collectors.hardware.nvml import recorder, wire
from headrace_agent.collectors.hardware.nvml.calls import NvmlError

_PROGRAM: Final = (
    "import sys; sys.path += sys.argv[3:]; "
    "from headrace_agent.collectors.hardware.nvml import child; "
    "child.main(int(sys.argv[1]), int(sys.argv[2]))"
)
_NO_START: Final = "the NVML process cannot be started"


class LinkError(Exception):
    """The process has failed; `blamed` is the GPU whose call it was, where that is known."""

    def __init__(self, message: str, blamed: int | None = None) -> None:
        super().__init__(message)
        self.blamed = blamed


def command(recorder_fd: int) -> list[str]:
    """The command line of an NVML process. Raises NvmlError where it cannot be started.

    The interpreter runs without site packages: the process takes two of them, by their folders.
    """
    binding = importlib.util.find_spec("pynvml")
    if not sys.executable or binding is None or binding.origin is None:
        missing = "the NVML binding (nvidia-ml-py)" if sys.executable else "the Python interpreter's path"
        raise NvmlError(f"{missing} is not there, so NVML cannot be read", absent=True)
    ours = Path(__file__).parents[4]
    folders = dict.fromkeys((str(ours), str(Path(binding.origin).parent)))
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), str(recorder_fd), *folders]


class Link(asyncio.SubprocessProtocol):
    """A running NVML process. One request at a time; `on_message` is called for what it tells unasked."""

    def __init__(self, on_message: Callable[[wire.Message], None]) -> None:
        """Raises LinkError."""
        self._on_message = on_message
        try:
            self._fd = recorder.create()
        except OSError as error:
            raise LinkError(f"{_NO_START}: {error}") from error
        self._calls = recorder.Recorder(self._fd)
        self._transport: asyncio.SubprocessTransport | None = None
        self._exited = asyncio.Event()
        self._answer: asyncio.Future[wire.Message] | None = None
        self._received = bytearray()
        self._broken: LinkError | None = None

    @property
    def pid(self) -> int:
        """The process's id; 0 before it runs."""
        return 0 if self._transport is None else self._transport.get_pid() or 0

    @property
    def ended(self) -> bool:
        """Whether no process of it runs."""
        return self._transport is None or self._exited.is_set()

    async def start(self, timeout_s: float) -> None:
        """Start the process and NVML in it. Raises NvmlError and LinkError."""
        self._answer = asyncio.get_running_loop().create_future()
        arguments = command(self._fd)
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *arguments,
                stdin=PIPE,
                stdout=PIPE,
                stderr=DEVNULL,
                pass_fds=(self._fd,),
                start_new_session=True,
            )
        except OSError as error:
            raise LinkError(f"{_NO_START}: {error}") from error
        await self._outcome(self._answer, timeout_s)

    async def ask(self, request: wire.Message, timeout_s: float) -> wire.Message:
        """The answer to a request. Raises NvmlError as the process says, LinkError where it fails."""
        stdin = None if self._transport is None else self._transport.get_pipe_transport(0)
        if self._broken is not None or self.ended or not isinstance(stdin, asyncio.WriteTransport):
            raise self._broken or self._end()
        self._answer = asyncio.get_running_loop().create_future()
        stdin.write(wire.pack(request))
        return await self._outcome(self._answer, timeout_s)

    async def close(self, timeout_s: float) -> bool:
        """Kill the process; False where it has not ended in time, because it is stuck in the driver."""
        self._answer = None
        if self._transport is not None:
            if not self._exited.is_set():
                with suppress(ProcessLookupError):
                    self._transport.kill()
                with suppress(TimeoutError):
                    async with asyncio.timeout(timeout_s):
                        await self._exited.wait()
            self._transport.close()
        if self._fd >= 0:
            self._calls.close()
            os.close(self._fd)
            self._fd = -1
        return self.ended

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the loop when the process runs."""
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._transport = transport

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Called by the loop with what the process writes."""
        if self._broken is not None:
            return
        self._received += data
        try:
            while (message := self._next()) is not None:
                self._take(message)
        except wire.WireError as error:
            self._fail(LinkError(f"the NVML process sent {error}"))
        except Exception as error:  # noqa: BLE001 - a listener's mistake must not look like a hang
            self._fail(LinkError(describe(error)))

    def process_exited(self) -> None:
        """Called by the loop when the process has ended; what it wrote before may still come."""
        self._exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the loop when the process has ended and all that it wrote has been read."""
        if self._broken is None and self._answer is not None:
            self._fail(self._end())

    async def _outcome(self, answer: asyncio.Future[wire.Message], timeout_s: float) -> wire.Message:
        await asyncio.wait([answer], timeout=timeout_s)
        self._answer = None
        if not answer.done():
            call = self._calls.read(recorder.READING)
            where = recorder.words(call) or "the start of its process"
            raise LinkError(f"NVML hangs in {where}", recorder.blame(call)[0])
        message = answer.result()
        if "error" in message:
            raise NvmlError(str(message["error"])[:256], message.get("absent") is True)
        return message

    def _next(self) -> wire.Message | None:
        """The next whole message of what has been received."""
        start = wire.HEADER.size
        if len(self._received) < start:
            return None
        end = start + wire.size_of(bytes(self._received[:start]))
        if len(self._received) < end:
            return None
        body = bytes(self._received[start:end])
        del self._received[:end]
        return wire.unpack(body)

    def _take(self, message: wire.Message) -> None:
        if "xid" in message:
            self._on_message(message)
        elif self._answer is not None and not self._answer.done():
            self._answer.set_result(message)

    def _fail(self, error: LinkError) -> None:
        self._broken = error
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _end(self) -> LinkError:
        code = None if self._transport is None else self._transport.get_returncode()
        if code is not None and code < 0:
            call = self._calls.read(recorder.READING)
            where = recorder.words(call) or "the wait for XIDs"
            return LinkError(f"NVML crashed in {where} ({_signal(-code)})", recorder.blame(call)[0])
        return LinkError(f"the NVML process ended (exit code {code})")


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
