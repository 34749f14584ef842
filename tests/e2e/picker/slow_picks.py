"""A real controller in which a fault is planted: its first picks seem to take a second each.

Run with the arguments of `headrace-controller`. Once the guard has had the picker stand aside, which here
is for some seconds, all is as it was.
"""

from __future__ import annotations

from headrace_controller import cli
from headrace_controller.picker import guards

REST_S = 4.0
TOO_LONG_S = 1.0


def plant() -> None:
    """Let each guard see slow picks until it acts."""
    guards.REST_S = REST_S  # type: ignore[misc]
    took = guards.Guard.took
    acted = set[int]()

    def seen(guard: guards.Guard, seconds: float, now: float) -> str:
        said = took(guard, seconds if id(guard) in acted else TOO_LONG_S, now)
        if said:
            acted.add(id(guard))
        return said

    guards.Guard.took = seen  # type: ignore[method-assign]


if __name__ == "__main__":
    plant()
    cli.main()
