"""The GPUs of this host, described once: for commands that propose or check a config."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from subprocess import DEVNULL, PIPE
from typing import Any, Final

from headrace_agent.collectors.hardware.nvml import recorder, wire
from headrace_agent.collectors.hardware.nvml.calls import NvmlError
from headrace_agent.collectors.hardware.nvml.link import command
from headrace_agent.collectors.hardware.nvml.rows import MIB

TIMEOUT_S: Final = 15.0
KILL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A GPU instance: cells name it `UUID:INSTANCE`, or by one of its MIG `uuids`. `memory_mib` in MiB."""

    instance: str
    uuids: tuple[str, ...] = ()
    memory_mib: int | None = None
    pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class GpuDescription:
    """One GPU. `gpm`: NVML tells its SM, tensor and DRAM activity; `lost`: it is off the bus.

    `pids` compute on it, as the agent's pid namespace counts them; those of its instances stand there.
    """

    index: int
    uuid: str = ""
    name: str = ""
    memory_mib: int | None = None
    gpm: bool = False
    lost: bool = False
    pids: tuple[int, ...] = ()
    instances: tuple[MigInstance, ...] = ()


@dataclass(frozen=True, slots=True)
class NvmlHost:
    """What NVML says of this host; `driver` and `library` are versions."""

    driver: str = ""
    library: str = ""
    gpus: tuple[GpuDescription, ...] = ()


def describe_gpus(timeout_s: float = TIMEOUT_S) -> tuple[GpuDescription, ...]:
    """The GPUs of this host. Blocks for up to `timeout_s`. Raises NvmlError."""
    return describe_host(timeout_s).gpus


def describe_host(timeout_s: float = TIMEOUT_S) -> NvmlHost:
    """The driver and the GPUs of this host, asked in a process of its own.

    Blocks for up to `timeout_s`, and a little more where that process cannot be ended. Raises
    NvmlError, `absent` where this host has no NVML.
    """
    for message in _answers(_run(timeout_s)):
        if "error" in message:
            raise NvmlError(str(message["error"])[:256], message.get("absent") is True)
        if "gpus" in message:
            return _host(message)
    raise NvmlError("the NVML process gave no answer")


def _run(timeout_s: float) -> bytes:
    """All that the process writes before it ends."""
    try:
        fd = recorder.create()
    except OSError as error:
        raise NvmlError(f"the NVML process cannot be started: {error}") from error
    calls = recorder.Recorder(fd)
    try:
        process = subprocess.Popen(
            command(fd), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, pass_fds=(fd,), start_new_session=True
        )
        try:
            said, _ = process.communicate(wire.pack({"ask": "describe"}), timeout_s)
        except subprocess.TimeoutExpired as error:
            _end(process)
            raise NvmlError(f"NVML hangs in {_whose(calls)}") from error
        if process.returncode:
            raise NvmlError(f"NVML crashed in {_whose(calls)}")
        return said
    except OSError as error:
        raise NvmlError(f"the NVML process cannot be started: {error}") from error
    finally:
        calls.close()
        os.close(fd)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill; a process that is stuck in the driver is not waited for."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(KILL_S)


def _whose(calls: recorder.Recorder) -> str:
    return recorder.words(calls.read(recorder.READING)) or "the start of its process"


def _answers(raw: bytes) -> Iterator[wire.Message]:
    at = 0
    try:
        while at + wire.HEADER.size <= len(raw):
            start = at + wire.HEADER.size
            at = start + wire.size_of(raw[at:start])
            yield wire.unpack(raw[start:at])
    except wire.WireError as error:
        raise NvmlError(f"the NVML process sent {error}") from error


def _host(message: wire.Message) -> NvmlHost:
    gpus: dict[int, GpuDescription] = {}
    slices: dict[int, list[MigInstance]] = {}
    for row in message["gpus"]:
        if row.get("instance"):
            slices.setdefault(row["index"], []).append(_instance(row))
        else:
            gpus[row["index"]] = _gpu(row)
    with_slices = (replace(gpu, instances=tuple(slices.get(index, ()))) for index, gpu in gpus.items())
    return NvmlHost(message.get("driver", ""), message.get("library", ""), tuple(with_slices))


def _gpu(row: Mapping[str, Any]) -> GpuDescription:
    return GpuDescription(
        row["index"],
        row.get("uuid", ""),
        row.get("name", ""),
        row.get("total", 0) // MIB or None,
        row.get("gpm") is True,
        row.get("lost") is True,
        tuple(row.get("pids", ())),
    )


def _instance(row: Mapping[str, Any]) -> MigInstance:
    return MigInstance(
        row["instance"],
        tuple(row.get("aliases", ())),
        row.get("total", 0) // MIB or None,
        tuple(row.get("pids", ())),
    )
