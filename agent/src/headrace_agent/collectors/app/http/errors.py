"""Why a call to an engine has no usable answer, by what that says of the engine."""

from __future__ import annotations

from typing import Final

# The caller is not known, or may not do this.
REFUSED: Final = (401, 403)


class CallError(Exception):
    """A call without a usable answer; the text is the cause, for people."""


class RefusedError(CallError):
    """Nothing listens: the engine is not there."""


class SilentError(CallError):
    """No answer in time."""


class BrokenError(CallError):
    """The connection ended, or what came over it is no HTTP."""


class ClosedError(BrokenError):
    """The connection ended without a byte: on one that was used before, it may just have been tidied up."""


class UnreachableError(CallError):
    """No connection for a reason that says nothing of the engine: names, routes, certificates."""


class OwnTroubleError(CallError):
    """No connection for want of something on this host (descriptors, memory): no word on the engine."""


class AnswerError(CallError):
    """An answer came, and is not what was asked for."""


def hint(status: int) -> str:
    """What to do about a status of the engine's API, where that is known; else nothing."""
    return "; give the cell's api_key_file a valid key" if status in REFUSED else ""
