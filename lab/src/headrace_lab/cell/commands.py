"""The command line of a cell."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from headrace_lab.cell.service import serve
from headrace_lab.cell.settings import LOADING_MODES, CellSettings, LoadingMode
from headrace_lab.cell.versions import read_dialect
from headrace_lab.engine import EngineParameters
from headrace_lab.engine.profiles import profile as find_profile
from headrace_lab.engine.profiles import split
from headrace_lab.servers import refusal, run_server
from headrace_shared import log
from headrace_shared.clock import SystemClock

Option = typer.Option


def cell(
    port: Annotated[int, Option(help="Port to serve on; 0 = the system chooses.", min=0, max=65535)] = 8000,
    host: Annotated[str, Option(help="Address to serve on.")] = "127.0.0.1",
    cell_id: Annotated[str, Option(help="Name that answers carry in x-headrace-cell.")] = "cell",
    model: Annotated[str, Option(help="Name of the model served.")] = "lab-model",
    max_model_len: Annotated[int, Option(help="Most tokens of prompt and answer together.")] = 8192,
    engine_version: Annotated[str, Option(help="vLLM version to play.")] = "0.32.0",
    prefill_tokens_per_s: Annotated[float, Option(help="Prompt tokens computed per second.")] = 16_000.0,
    decode_ms: Annotated[float, Option(help="Milliseconds of a decode step.")] = 20.0,
    decode_per_sequence_ms: Annotated[float, Option(help="Milliseconds each sequence adds to it.")] = 0.2,
    max_num_seqs: Annotated[int, Option(help="Most sequences that run at once.")] = 256,
    max_num_batched_tokens: Annotated[int, Option(help="Token budget of a step.")] = 2048,
    kv_tokens: Annotated[
        int | None, Option(help="Tokens that the KV cache holds; default 65536 or 2 x max-model-len.")
    ] = None,
    speed: Annotated[float, Option(help="Relative speed; 0.5 = half as fast.")] = 1.0,
    step_jitter: Annotated[float, Option(help="Noise on a step's duration, as a share of it.")] = 0.02,
    stop_chance: Annotated[float, Option(help="Chance that a token ends its answer early.")] = 0.0,
    bytes_per_token: Annotated[float, Option(help="Bytes of text that make one token.")] = 4.0,
    loading_seconds: Annotated[float, Option(help="Seconds from start to serving.")] = 0.0,
    loading_mode: Annotated[str, Option(help="While loading: answer (503) or refuse.")] = "answer",
    profile: Annotated[
        str,
        Option(
            help="Play a known engine, GPU/MODEL as in h100/70b-awq: all figures but length and speed "
            "come from it."
        ),
    ] = "",
    pcie_contention: Annotated[
        float, Option(help="With --profile: share of the host link that a neighbour takes.")
    ] = 0.0,
    refuse_share: Annotated[float, Option(help="Share of requests answered with 400.")] = 0.0,
    keep_alive: Annotated[float, Option(help="Seconds until an idle connection is closed.")] = 5.0,
    seed: Annotated[int, Option(help="Seed of all randomness.")] = 0,
) -> None:
    """Run a simulated cell: vLLM's API and metrics over a model of an engine."""
    log.configure()
    try:
        if profile:
            engine = profiled(profile, max_model_len, speed, pcie_contention)
        else:
            engine = EngineParameters(
                prefill_tokens_per_s=prefill_tokens_per_s,
                decode_base_s=decode_ms / 1000,
                decode_per_sequence_s=decode_per_sequence_ms / 1000,
                max_num_seqs=max_num_seqs,
                max_num_batched_tokens=max_num_batched_tokens,
                kv_capacity_tokens=max(65_536, 2 * max_model_len) if kv_tokens is None else kv_tokens,
                max_model_len=max_model_len,
                speed=speed,
                step_jitter=step_jitter,
                stop_chance=stop_chance,
            )
        settings = CellSettings(
            cell_id=cell_id,
            model=model,
            engine_version=read_dialect(engine_version).version,
            engine=engine,
            bytes_per_token=bytes_per_token,
            loading_s=loading_seconds,
            loading_mode=_read_mode(loading_mode),
            refuse_share=refuse_share,
            keep_alive_s=keep_alive,
            seed=seed,
        )
    except ValueError as error:
        raise refusal("cell", error) from error
    run_server("cell", host, port, lambda sock, stop: serve(settings, sock, SystemClock(), stop))


def profiled(name: str, max_model_len: int, speed: float, pcie_contention: float) -> EngineParameters:
    """The engine of a profile GPU/MODEL, slowed by a neighbour on its host link. Raises ValueError."""
    gpu, model = split(name)
    if not 0 <= pcie_contention < 1:
        raise ValueError(f"--pcie-contention is {pcie_contention}; give a share from 0 to below 1")
    found = find_profile(gpu, model, max_model_len=max_model_len, speed=speed)
    slowdown = 1 + found.pcie_share * pcie_contention / (1 - pcie_contention)
    return replace(found.engine, speed=speed / slowdown)


def _read_mode(text: str) -> LoadingMode:
    for mode in LOADING_MODES:
        if text == mode:
            return mode
    raise ValueError(f"--loading-mode is {text!r}; write one of {', '.join(LOADING_MODES)}")
