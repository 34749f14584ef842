"""`headrace-lab load`: send a load somewhere and say what came back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer


def load(
    url: Annotated[
        str, typer.Option(help="Base URL of a gateway or an engine, as in http://127.0.0.1:10000.")
    ],
    model: Annotated[str, typer.Option(help="The model to ask for.")],
    rps: Annotated[float, typer.Option(help="Requests per second, on average.", min=0.01, max=10000)] = 10,
    seconds: Annotated[float, typer.Option(help="How long to send.", min=0.1, max=86400)] = 30,
    seed: Annotated[int, typer.Option(help="Fixes times and sizes of all requests.", min=0)] = 1,
    out: Annotated[Path | None, typer.Option(help="Write one JSON line per request to this file.")] = None,
    arrivals: Annotated[
        Literal["poisson", "constant"], typer.Option(help="Spacing of the requests.")
    ] = "poisson",
    short_tokens: Annotated[int, typer.Option(help="Prompt tokens of a short request.", min=1)] = 200,
    long_tokens: Annotated[int, typer.Option(help="Prompt tokens of a long request.", min=1)] = 1500,
    long_share: Annotated[float, typer.Option(help="Share of long requests.", min=0, max=1)] = 0.0,
    max_tokens: Annotated[int, typer.Option(help="Output tokens to ask for.", min=1)] = 32,
    in_flight: Annotated[
        int, typer.Option(help="Most requests open at once; more are not sent.", min=1)
    ] = 512,
    timeout: Annotated[float, typer.Option(help="Seconds allowed for one request.", min=0.1)] = 30,
    load_name: Annotated[
        str,
        typer.Option(
            "--load", help="A class or trace of the scenario file; it replaces the sizes given here."
        ),
    ] = "",
    most_tokens: Annotated[
        int, typer.Option(help="With --load: most tokens of prompt and answer together.", min=2)
    ] = 32768,
    bytes_per_token: Annotated[
        float, typer.Option(help="Size of prompt text for a token; 0 = one word a token.", min=0, max=100)
    ] = 0.0,
    attempts: Annotated[
        int, typer.Option(help="How often a request that failed is tried in all.", min=1, max=1000)
    ] = 1,
) -> None:
    """Send open-loop completions and report success, TTFT and shares.

    Requests are sent when they are due and never wait for answers, so a slow server meets the
    same load as a fast one; latencies count from when a request was due. A request counts as
    good when it ends with status 200 and its stream's [DONE]. Exit status 1 if no request was
    good.
    """
    from headrace_lab.load.arrivals import Mix, schedule
    from headrace_lab.load.classes import generate
    from headrace_lab.load.driver import Limits, Target
    from headrace_lab.load.report import send
    from headrace_lab.scenarios import packaged

    mix = Mix((short_tokens,) * 2, (long_tokens,) * 2, long_share, (max_tokens,) * 2)
    try:
        if load_name:
            planned = generate(
                packaged().load(load_name),
                rps=rps,
                seconds=seconds,
                seed=seed,
                process=arrivals,
                most_tokens=most_tokens,
            )
        else:
            planned = schedule(rps=rps, seconds=seconds, seed=seed, mix=mix, process=arrivals)
        if out is not None:
            out.touch()
    except KeyError as error:
        raise typer.BadParameter(str(error.args[0]), param_hint="--load") from error
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    except OSError as error:
        raise typer.BadParameter(f"{out}: {error.strerror or error}", param_hint="--out") from error
    limits = Limits(in_flight=in_flight, request_s=timeout, drain_s=timeout + 1, attempts=attempts)
    target = Target(url.rstrip("/"), model, bytes_per_token=bytes_per_token)
    any_good = send(planned, target, limits, seed, out)
    raise typer.Exit(0 if any_good else 1)
