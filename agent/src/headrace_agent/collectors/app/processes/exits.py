"""Tells when processes end, at once and without asking: one pidfd each, watched by the event loop."""

from __future__ import annotations

import asyncio
import errno
import os
import select
from collections.abc import Callable
from typing import Final

from headrace_agent.collectors.app.processes.listing import read_process
from headrace_agent.collectors.app.processes.table import Process

# Of all descriptors that a service may open (1,024 by default), the other parts need most.
MAX_DESCRIPTORS: Final = 384


class Allowance:
    """How many processes may be watched at once, by all engines of an agent together."""

    def __init__(self, most: int = MAX_DESCRIPTORS) -> None:
        self._left = most

    def take(self) -> bool:
        """Take one; False where none is left."""
        if self._left <= 0:
            return False
        self._left -= 1
        return True

    def give_back(self) -> None:
        """One is no longer used."""
        self._left += 1


class Exits:
    """Watches processes of which `ended` is called once, from the event loop, when they end.

    `trouble` says why some cannot be watched; "" where all can.
    """

    def __init__(self, ended: Callable[[Process], None], allowance: Allowance) -> None:
        self._ended = ended
        self._allowance = allowance
        self._descriptors: dict[Process, int] = {}
        self.trouble = ""

    def __len__(self) -> int:
        return len(self._descriptors)

    def watch(self, process: Process) -> None:
        """Watch one from now on; one that has ended already is told of at once."""
        if process in self._descriptors:
            return
        if not self._allowance.take():
            self.trouble = "too many processes to watch them all"
            return
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError as error:
            self._allowance.give_back()
            if error.errno == errno.ESRCH:
                self._ended(process)
            else:
                self.trouble = f"processes cannot be watched: pidfd_open: {error.strerror}"
            return
        self._descriptors[process] = descriptor
        # The pid may be another's by now: the descriptor is looked at before the name is believed.
        if read_process(process.pid) != process:
            self._tell(process)
            return
        asyncio.get_running_loop().add_reader(descriptor, self._tell, process)

    def sweep(self) -> None:
        """Tell of those that have ended and that the event loop has not come to yet."""
        if not self._descriptors:
            return
        poll = select.poll()
        by_descriptor = {descriptor: process for process, descriptor in self._descriptors.items()}
        for descriptor in by_descriptor:
            poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(0):
            self._tell(by_descriptor[descriptor])

    def close(self) -> None:
        """Watch none any longer."""
        for process in list(self._descriptors):
            self._drop(process)

    def _tell(self, process: Process) -> None:
        if process in self._descriptors:
            self._drop(process)
            self._ended(process)

    def _drop(self, process: Process) -> None:
        descriptor = self._descriptors.pop(process)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        self._allowance.give_back()
