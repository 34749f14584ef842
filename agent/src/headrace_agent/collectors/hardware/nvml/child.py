"""The program of the NVML process: answers the agent's requests, and tells of XIDs unasked.

It ends with its standard input, with the agent, and with any error after which NVML must be started
afresh. It keeps nothing that the agent could miss.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from typing import Any, Final

from headrace_agent.collectors.hardware.nvml import recorder, wire
from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.reader import Reader
from headrace_agent.collectors.hardware.nvml.xids import REARM_S, XidWaiter

NAME: Final = b"headrace-nvml"
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_ENDED_ITSELF: Final = 0
_LOST_ITS_AGENT: Final = 3


class Output:
    """Writes whole messages, from any thread, to what was standard output.

    Standard output itself leads nowhere from then on: a library that prints would break a message.
    """

    def __init__(self) -> None:
        self._fd = os.dup(1)
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)
        self._lock = threading.Lock()

    def write(self, message: wire.Message) -> None:
        """Raises OSError where the agent is gone."""
        rest = memoryview(wire.pack(message))
        with self._lock:
            while rest:
                rest = rest[os.write(self._fd, rest) :]


def main(agent_pid: int, recorder_fd: int) -> None:
    """Serve until the agent closes standard input. Never returns."""
    _belong_to(agent_pid)
    output = Output()
    try:
        _serve(output, recorder.Recorder(recorder_fd))
    except NvmlError as error:
        output.write({"error": str(error), "absent": error.absent})
    except Exception as error:  # noqa: BLE001 - the agent logs it; here is nobody to do so
        output.write({"error": f"unexpected {type(error).__name__}: {error}"[:256], "absent": False})
    # The library's own clean-up can hang as any of its calls can.
    os._exit(_ENDED_ITSELF)


def _belong_to(agent_pid: int) -> None:
    """Be listed by an own name, end with the agent, and leave signals to the whole group to it."""
    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != agent_pid:  # it ended before it could be watched
        os._exit(_LOST_ITS_AGENT)


def _serve(output: Output, calls: recorder.Recorder) -> None:
    try:
        import pynvml
    except ImportError as error:
        raise NvmlError("the NVML binding (nvidia-ml-py) is not installed", absent=True) from error
    reader = Reader(pynvml, calls.noter(recorder.READING))
    reader.start()
    output.write({"ready": True})
    waiter: XidWaiter | None = None
    while (request := _next_request()) is not None:
        if request.get("ask") == "describe":
            output.write(reader.describe())
            continue
        if waiter is None:  # armed before the first figures: what comes after them is not missed
            waiter = _watch_xids(pynvml, output, calls)
        without = [index for index in request.get("without", []) if isinstance(index, int)]
        watch = {"armed": waiter.armed, "turns": waiter.turns, "problem": waiter.problem[:200]}
        output.write(reader.read(without) | {"watch": watch})


def _watch_xids(api: Any, output: Output, calls: recorder.Recorder) -> XidWaiter:
    waiter = XidWaiter(api, output.write, calls.noter(recorder.WATCHING))
    first_rest_s = waiter.turn()

    def watch() -> None:
        rest_s = first_rest_s
        while True:
            time.sleep(rest_s)
            try:
                rest_s = waiter.turn()
            except OSError:
                return  # the agent is gone, and soon this process
            except Exception as error:  # noqa: BLE001 - told to the agent with the next figures
                waiter.problem, rest_s = f"unexpected {type(error).__name__}: {error}", REARM_S

    threading.Thread(target=watch, name="xids", daemon=True).start()
    return waiter


def _next_request() -> wire.Message | None:
    """The agent's next request; None when there is none any more."""
    header = _read(wire.HEADER.size)
    if header is None:
        return None
    body = _read(wire.size_of(header))
    return None if body is None else wire.unpack(body)


def _read(size: int) -> bytes | None:
    data = b""
    while len(data) < size:
        more = os.read(sys.stdin.fileno(), size - len(data))
        if not more:
            return None
        data += more
    return data
