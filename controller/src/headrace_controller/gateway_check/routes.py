"""What of listeners and routes cuts answers, refuses long prompts or repeats requests."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from headrace_controller.gateway_check.dump import Site
from headrace_controller.gateway_check.findings import (
    Finding,
    Tree,
    branch,
    duration,
    items,
    number,
    number_or,
    said,
    text,
)
from headrace_controller.xds.names import STREAMS_KEY

DEFAULT_BUFFER_BYTES = 1 << 20

NEEDED_BYTES = 4 << 20
"""A prompt of 128K tokens, every character of it escaped in JSON."""

PATIENCE_S = 600.0
CLOSE_S = 0.5
"""Several round trips to any client that is near enough to wait for the end of its connection."""
BUFFERING = ("JsonToMetadata", "JsonToStruct", "Buffer")
RESET = {"reset", "5xx", "gateway-error"}
"""Each of them repeats a request whose engine gave no answer."""

REPEATING = ("5xx", "gateway-error", "retriable-4xx", "retriable-status-codes", "retriable-headers")
PREVIOUS_HOSTS = "envoy.retry_host_predicates.previous_hosts"


def check_site(site: Site, clusters: Collection[str]) -> Iterator[Finding]:
    """All findings of a listener, if requests to one of `clusters` come in there."""
    leading = [
        (host, route)
        for host in items(site.routes, "virtual_hosts")
        for route in items(host, "routes")
        if clusters_of(route) & set(clusters)
    ]
    if not leading:
        return
    yield from _manager(site)
    yield from _buffers(site)
    for host, route in leading:
        yield from _route(site, host, route)


def clusters_of(route: Tree) -> set[str]:
    """The clusters that a route may send requests to."""
    action = branch(route, "route")
    weighted = items(action, "weighted_clusters", "clusters")
    return {name for name in (text(action, "cluster"), *(text(each, "name") for each in weighted)) if name}


def _manager(site: Site) -> Iterator[Finding]:
    options = branch(site.manager, "common_http_protocol_options")
    if duration(options, "max_stream_duration"):
        yield Finding(
            "error",
            f"listener {site.name}",
            "common_http_protocol_options.max_stream_duration",
            f"{text(options, 'max_stream_duration')}: longer answers are cut",
            "leave it out",
        )
    late = duration(site.manager, "delayed_close_timeout")
    if late is None or late > CLOSE_S:
        yield Finding(
            "warning",
            f"listener {site.name}",
            "delayed_close_timeout",
            f"{said(late, '1', ' s')}: a client whose answer a dying engine cut off hears of it so late",
            "delayed_close_timeout: 0.1s",
        )


def _buffers(site: Site) -> Iterator[Finding]:
    limit = number(site.listener, "per_connection_buffer_limit_bytes")
    filters = [branch(each, "typed_config") for each in items(site.manager, "http_filters")]
    kinds = [text(each, "@type").rpartition(".")[2] for each in filters]
    holding = next((kind for kind in kinds if kind in BUFFERING), None)
    if (DEFAULT_BUFFER_BYTES if limit is None else limit) < NEEDED_BYTES:
        yield Finding(
            "error" if holding else "warning",
            f"listener {site.name}",
            "per_connection_buffer_limit_bytes",
            f"{said(limit, str(DEFAULT_BUFFER_BYTES), ' bytes')}: "
            + (f"{holding} answers longer prompts by 413" if holding else "longer prompts are not retried"),
            "per_connection_buffer_limit_bytes: 33554432",
        )
    for each, kind in zip(filters, kinds, strict=True):
        if kind == "Buffer" and number_or(each, "max_request_bytes", 0) < NEEDED_BYTES:
            yield Finding(
                "error",
                f"listener {site.name}",
                "http_filters.buffer.max_request_bytes",
                f"{said(number(each, 'max_request_bytes'), '0')}: longer prompts are answered by 413",
                "max_request_bytes: 33554432",
            )


def _route(site: Site, host: Tree, route: Tree) -> Iterator[Finding]:
    action = branch(route, "route")
    where = f"route {_name(route)} of {text(site.routes, 'name') or site.name}"
    timeout = duration(action, "timeout")
    if timeout != 0:
        yield Finding(
            "error",
            where,
            "route.timeout",
            f"{said(timeout, '15', ' s')}: longer answers are cut",
            "timeout: 0s",
        )
    longest = branch(action, "max_stream_duration")
    if duration(longest, "max_stream_duration"):
        yield Finding(
            "error",
            where,
            "route.max_stream_duration",
            f"{text(longest, 'max_stream_duration')}: longer answers are cut",
            "leave it out",
        )
    yield from _idle(site, where, action)
    yield from _body_limit(where, host, route)
    policy = branch(action, "retry_policy") or branch(host, "retry_policy")
    hedging = branch(action, "hedge_policy") or branch(host, "hedge_policy")
    yield from _retries(where, policy, cuts=not hedging.get("hedge_on_per_try_timeout"))
    if hedging and not _streams_only(route):
        yield Finding(
            "warning",
            where,
            "hedge_policy",
            "set: slow prompts are worked on twice",
            "leave it out, or set it for requests of a stream alone, which begin before their first token",
        )


def _streams_only(route: Tree) -> bool:
    """Whether it takes only requests whose body asks for a stream, as the generated routes do."""
    fields = items(branch(route, "match"), "dynamic_metadata")
    keys = [text(segment, "key") for each in fields for segment in items(each, "path")]
    return STREAMS_KEY in keys


def _name(route: Tree) -> str:
    match = branch(route, "match")
    paths = (text(match, key) for key in ("path", "prefix", "path_separated_prefix"))
    return text(route, "name") or next(filter(None, paths), "without a name")


def _idle(site: Site, where: str, action: Tree) -> Iterator[Finding]:
    own = duration(action, "idle_timeout")
    of_listener = duration(site.manager, "stream_idle_timeout")
    idle = own if own is not None else of_listener
    if idle == 0 or (idle is not None and idle >= PATIENCE_S):
        return
    yield Finding(
        "warning",
        where if own is not None else f"listener {site.name}",
        "route.idle_timeout" if own is not None else "stream_idle_timeout",
        f"{said(idle, '300', ' s')}: a request that waits longer for its first token is cut",
        "stream_idle_timeout: 900s" if own is None else "idle_timeout: 900s",
    )


def _body_limit(where: str, host: Tree, route: Tree) -> Iterator[Finding]:
    for holder in (route, host):
        for key in ("request_body_buffer_limit", "per_request_buffer_limit_bytes"):
            if key in holder and number_or(holder, key, NEEDED_BYTES) < NEEDED_BYTES:
                yield Finding(
                    "warning",
                    where,
                    key,
                    f"{said(number(holder, key), '')}: longer prompts are not retried, or get 413",
                    f"leave it out, or {key}: 33554432",
                )


def _retries(where: str, policy: Tree, cuts: bool) -> Iterator[Finding]:
    if not policy:
        yield Finding(
            "error",
            where,
            "route.retry_policy",
            "not set: what a dying engine had not begun to answer fails",
            "retry_on: connect-failure,refused-stream,reset, to another host",
        )
        return
    on = {each.strip() for each in text(policy, "retry_on").split(",")}
    if not on & RESET:
        yield Finding(
            "error",
            where,
            "route.retry_policy.retry_on",
            "without reset: what a dying engine had not begun to answer fails",
            "retry_on: connect-failure,refused-stream,reset",
        )
    if repeating := sorted(on.intersection(REPEATING)):
        yield Finding(
            "warning",
            where,
            "route.retry_policy.retry_on",
            f"{', '.join(repeating)}: what an engine refuses for good reason is asked of all the others, "
            "and load grows when it is too high",
            "retry_on: connect-failure,refused-stream,reset",
        )
    yield from _attempts(where, policy, cuts)


def _attempts(where: str, policy: Tree, cuts: bool) -> Iterator[Finding]:
    # Where it hedges, the time-out ends no attempt.
    if cuts and duration(policy, "per_try_timeout"):
        yield Finding(
            "error",
            where,
            "route.retry_policy.per_try_timeout",
            f"{text(policy, 'per_try_timeout')}: slow prompts are cut and worked on again elsewhere",
            "leave it out",
        )
    predicates = [text(each, "name") for each in items(policy, "retry_host_predicate")]
    attempts = number_or(policy, "host_selection_retry_max_attempts", 1)
    if PREVIOUS_HOSTS not in predicates or attempts < 2:
        yield Finding(
            "warning",
            where,
            "route.retry_policy.retry_host_predicate",
            "does not look for another host, more than once: a retry may meet the dead engine again"
            if PREVIOUS_HOSTS in predicates
            else "has no previous_hosts: a retry may meet the dead engine again",
            f"retry_host_predicate: [{{name: {PREVIOUS_HOSTS}}}] and host_selection_retry_max_attempts: 256",
        )
