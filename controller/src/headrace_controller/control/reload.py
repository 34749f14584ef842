"""Takes up a changed settings file while the controller runs: whole, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from headrace_controller.settings import ControllerSettings
from headrace_shared import log
from headrace_shared.config import ConfigError
from headrace_shared.tls import TlsError

LOAD_TIMEOUT_S: Final = 10.0
"""A disk that does not answer must not keep later reloads waiting for ever."""
LIVE: Final = frozenset({"pressure", "projection", "lifecycle", "log", "admin", "recording"})
_FIXED_WITHIN: Final = {"admin": {"account_acts"}, "recording": {"enabled", "max_bytes"}}

Load = Callable[[], ControllerSettings]
"""Reads and checks the settings and the files they name; may block. Raises ConfigError or TlsError."""
Apply = Callable[[ControllerSettings], None]
"""Puts settings, and the files that they name, in force. Raises ConfigError or TlsError, and nothing is
changed then."""


class NeedsRestartError(Exception):
    """Some of what has changed is read at the start only; the message names it."""


def check_live(old: ControllerSettings, new: ControllerSettings) -> list[str]:
    """The keys that differ, sorted. Raises NeedsRestartError where one of them is fixed."""
    changed, fixed = [], []
    for name in sorted(ControllerSettings.model_fields):
        for key in _differences(name, getattr(old, name), getattr(new, name)):
            changed.append(key)
            within = key.split(".")[1] if "." in key else ""
            if name not in LIVE or within in _FIXED_WITHIN.get(name, ()):
                fixed.append(key)
    if fixed:
        raise NeedsRestartError(
            f"{', '.join(fixed)}: read at the start only; restart the controller, which moves no traffic"
        )
    return changed


def _differences(name: str, old: Any, new: Any) -> list[str]:
    """`name`, or its keys that differ where it has any."""
    if old == new:
        return []
    if not hasattr(type(old), "model_fields") or type(old) is not type(new):
        return [name]
    return [f"{name}.{key}" for key in type(old).model_fields if getattr(old, key) != getattr(new, key)]


class Reloader:
    """Reloads once for every time that `asked` was set, one after the other. `on_result` hears how each
    ended: applied, unchanged, refused (the file, or a change that needs a restart) or failed (a fault of
    the controller). The settings of before stay in force unless it was applied."""

    def __init__(
        self,
        settings: ControllerSettings,
        load: Load,
        apply: Apply,
        asked: asyncio.Event,
        on_result: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.settings = settings
        self._load = load
        self._apply = apply
        self._asked = asked
        self._on_result = on_result
        self._log = log.get("reload")

    async def run(self) -> None:
        """Reload whenever asked, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._on_result(await self.reload())

    async def reload(self) -> str:
        """Reload once; how it ended."""
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                new = await asyncio.to_thread(self._load)
            changed = check_live(self.settings, new)
            self._apply(new)  # also where nothing differs: the files that the settings name may
        except (ConfigError, TlsError, NeedsRestartError, TimeoutError) as error:
            said = str(error) or f"the file could not be read within {LOAD_TIMEOUT_S:g} s"
            self._log.error("reload refused; the settings of before stay in force", why=said.splitlines())
            return "refused"
        except Exception as error:  # noqa: BLE001 - a reload that breaks must not end the controller
            self._log.exception("reload failed; the settings of before stay in force", error=repr(error))
            return "failed"
        self.settings = new
        self._log.info("settings reloaded", changed=changed or "nothing")
        return "applied" if changed else "unchanged"
