"""From a source's own words to what an operator does about them. Pure."""

from __future__ import annotations

from typing import Final

Remedies = tuple[tuple[str, str], ...]

_KEY: Final = "set the cell's api_key_file to a file with the engine's key"
_STUCK: Final = "the engine is stuck: look at its log, and restart it"
_INTERVAL: Final = "run the exporter with -c 500 (DCGM_EXPORTER_INTERVAL=500)"
_METRICS_OFF: Final = (
    "switch the engine's metrics on (vLLM: no --disable-log-stats; SGLang: --enable-metrics; llama.cpp: "
    "--metrics), or mend the cell's url"
)

# Looked for in this order, in lower case: the first that stands in the cause counts.
_ENGINE: Final[Remedies] = (
    (
        "certificate verify failed",
        "its certificate is not trusted here: name its authority in the cell's tls.ca, or mend it",
    ),
    ("wrong version number", "no TLS is spoken there: write http:// in the cell's url"),
    ("refused", "start the engine, or mend the cell's url: `ss -ltnp` shows who listens where"),
    ("resolved", "mend the host name in the cell's url, or write an IP address"),
    ("unreachable", "mend the address in the cell's url, or the route to it"),
    ("answered 401", _KEY),
    ("answered 403", _KEY),
    ("api_key_file", "make the file readable for the agent's user, with the key alone on one line"),
    ("answers nothing", _STUCK),
    ("not answered", "the engine is stuck or very slow: look at its log"),
    ("closed without an answer", "if TLS is spoken there, write https:// in the cell's url"),
    ("no answer", "mend the cell's url, or see whether the name server knows its host"),
    ("html", "that is a Web page: mend the cell's url"),
    ("answered 404", "there is no such page: mend the cell's url"),
    ("answered 503", "the engine is still loading, or its core has died: look at its log"),
)
_METRICS: Final[Remedies] = (
    ("answered 404", _METRICS_OFF),
    ("empty", _METRICS_OFF),
    ("no family of an engine", _METRICS_OFF),
    ("has moved for", "the engine is stuck: --warm-up asks it for a completion; look at its log"),
    ("missing", "an option hides them, or this version names them otherwise: see the engine's own page"),
    *_ENGINE,
)
_HARDWARE: Final[Remedies] = (
    ("collects every", _INTERVAL),
    ("stand still", f"the exporter collects too seldom, every 30 s by default: {_INTERVAL}"),
    ("refused", "start the exporter, or mend hardware.dcgm_url"),
    ("http 500", "the exporter fails to collect: look at its log, and restart it"),
    ("is it a dcgm exporter", "mend hardware.dcgm_url: that is no DCGM exporter's page, or an empty one"),
    ("no answer", "the exporter or a GPU hangs: see whether `nvidia-smi` answers"),
    ("not come back", "see whether `nvidia-smi` answers, and the name server knows the exporter's host"),
    ("resolved", "mend the host name in hardware.dcgm_url"),
    ("split by mig", "name the MIG instance in the cell's gpus, as UUID:INSTANCE"),
    ("fits several", "write more of the UUID in the cell's gpus"),
    ("has no figures", "mend the cell's gpus: `headrace-agent discover` lists those there"),
    ("no nvml library", "install the NVIDIA driver, or give the container its libnvidia-ml.so.1"),
    ("nvml does not start", "check the driver: `nvidia-smi` says what is wrong"),
    ("dram_active", "let the exporter collect DCGM_FI_PROF_DRAM_ACTIVE (it needs the right to profile)"),
    ("total_energy", "let the exporter collect DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"),
)


def for_engine(cause: str) -> str:
    """What to do about an engine's trouble; empty where nothing is known."""
    return _look_up(cause, _ENGINE)


def for_metrics(cause: str) -> str:
    """What to do about a metrics page's trouble."""
    return _look_up(cause, _METRICS)


def for_hardware(cause: str) -> str:
    """What to do about a GPU source's trouble."""
    return _look_up(cause, _HARDWARE)


def _look_up(cause: str, table: Remedies) -> str:
    lowered = cause.lower()
    return next((remedy for words, remedy in table if words in lowered), "")
