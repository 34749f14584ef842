"""XIDs that are new: the exporter's gauge keeps the last one, so only a change says anything."""

from __future__ import annotations

from collections.abc import Sequence

from headrace_agent.collectors.hardware.figures import GpuFigures


class XidWatch:
    """Remembers each GPU's last XID over the good reads."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def changes(self, gpus: Sequence[GpuFigures]) -> list[tuple[str, int]]:
        """GPUs and MIG instances with a new XID, as (`UUID` or `UUID:INSTANCE`, XID).

        A GPU seen for the first time tells nothing: its XID may be days old. An absent figure
        means none, so one that appears later is new. A GPU's XID is news for all its instances,
        whether or not their own rows repeat it.
        """
        before, self._last = self._last, {gpu.key: gpu.health.last_xid or 0 for gpu in gpus}
        new = {key: xid for key, xid in self._last.items() if xid and before.get(key, xid) != xid}
        for gpu in gpus:
            if gpu.uuid in new and gpu.key in before:
                new.setdefault(gpu.key, new[gpu.uuid])
        return list(new.items())
