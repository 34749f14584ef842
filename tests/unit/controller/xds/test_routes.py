"""Routes by model, alias and size."""

from __future__ import annotations

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.config.route.v3 import route_pb2
from envoy.extensions.filters.http.transform.v3 import transform_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace_controller.capability import SizeBound
from headrace_controller.projection.plan import ClassShape, PoolShape
from headrace_controller.settings import EnvoySettings
from headrace_controller.xds.names import class_name, cluster_name, model_of
from headrace_controller.xds.resources.routes import TRANSFORM_FILTER, RouteBuilder
from headrace_controller.xds.upstreams import Upstream

BOUNDS = (SizeBound(None, None, 1440), SizeBound(0, 128, 1248))
TWO_CLASSES = PoolShape(max_model_len=32768, classes=(ClassShape(1024, BOUNDS), ClassShape(32768)))


def routes(*models: str, shapes: dict[str, PoolShape] | None = None, **more: Any) -> dict[str, Any]:
    value = RouteBuilder(EnvoySettings(), **more).build(models, shapes or {}).value
    made = route_pb2.RouteConfiguration.FromString(value)
    found = {route.name: route for route in made.virtual_hosts[0].routes}
    assert len(found) == len(made.virtual_hosts[0].routes), "each route has a name of its own"
    return found


def test_small_requests_go_to_the_small_class_and_all_others_to_the_last() -> None:
    found = routes("m", shapes={"m": TWO_CLASSES})
    names = [name for name in found if name.startswith("class/")]
    assert names == ["class/1024/m/0", "class/1024/m/1", "class/32768/m"]
    silent, asked, last = (found[name] for name in names)
    assert {silent.route.cluster, asked.route.cluster} == {"class/1024/m"}
    assert last.route.cluster == "class/32768/m"
    for route, end in ((silent, 1440), (asked, 1248)):
        (length,) = route.match.headers
        assert (length.name, length.range_match.start, length.range_match.end) == ("content-length", 0, end)
    _, no_output = silent.match.dynamic_metadata
    assert (no_output.path[0].key, no_output.invert, no_output.value.present_match) == (
        "max_tokens",
        True,
        True,
    )
    _, output = asked.match.dynamic_metadata
    assert (output.value.double_match.range.start, output.value.double_match.range.end) == (0, 128)
    assert not last.match.headers
    # How long a form is says nothing of its tokens.
    assert found["header/m"].route.cluster == "class/32768/m"


def test_an_alias_has_the_routes_of_its_model_and_puts_its_name_into_the_body() -> None:
    aliases = {"gpt-4": "m", "gone": "nobody", "other": "m"}
    found = routes("m", "other", shapes={"m": TWO_CLASSES}, aliases=aliases)
    of_alias = [name for name in found if name.startswith("alias/")]
    assert of_alias == [
        "alias/gpt-4/class/1024/m/0",
        "alias/gpt-4/class/1024/m/1",
        "alias/gpt-4/class/32768/m",
    ]
    for name in of_alias:
        made = transform_pb2.TransformConfig()
        assert found[name].typed_per_filter_config[TRANSFORM_FILTER].Unpack(made)
        body = made.request_transformation.body_transformation
        assert dict(body.body_format.json_format) == {"model": "m"}
        assert body.action == transform_pb2.BodyTransformation.MERGE
    assert not found["class/32768/m"].typed_per_filter_config


def test_the_key_of_a_pool_goes_with_its_requests_alone() -> None:
    found = routes("a", "b", upstreams={"a": Upstream(api_key="k")})
    (header,) = found["pool/a"].request_headers_to_add
    assert (header.header.key, header.header.value) == ("authorization", "Bearer k")
    assert not found["pool/b"].request_headers_to_add


def test_a_model_is_listed_under_its_name_and_percent_encoded() -> None:
    found = routes("org/m 1", "plain")
    assert [name for name in found if name.startswith("models/")] == [
        "models/org/m 1",
        "models/org/m%201",
        "models/org%2Fm%201",
        "models/plain",
    ]


@pytest.mark.parametrize("model", ["m", "org/m", "class/1024/m", "pool/x", "1/2", ""])
def test_the_model_of_a_cluster_is_read_back(model: str) -> None:
    assert model_of(cluster_name(model)) == model
    assert model_of(class_name(model, 1024)) == model


@given(st.text(max_size=20), st.integers(1, 10**9), st.text(max_size=20))
def test_no_class_is_taken_for_a_pool(model: str, length: int, other: str) -> None:
    assert class_name(model, length) != cluster_name(other)


@pytest.mark.parametrize("cluster", ["", "headrace-controller", "class/x/m", "class/12", "pools/m"])
def test_other_clusters_are_of_no_model(cluster: str) -> None:
    assert model_of(cluster) is None


def test_a_plain_envoy_tries_again_only_where_that_was_asked_for() -> None:
    """The lab's second row of baselines has our retries and nothing else of ours."""

    def retries(baseline: str | None, asked: bool) -> int:
        settings = EnvoySettings(baseline_retries=asked)
        value = RouteBuilder(settings, baseline).build(["m"], {}).value
        made = route_pb2.RouteConfiguration.FromString(value)
        (route,) = [r for r in made.virtual_hosts[0].routes if r.name == "pool/m"]
        return int(route.route.retry_policy.num_retries.value)

    assert retries(None, False) == retries("rr", True) == EnvoySettings().retries
    assert retries("rr", False) == 0


def test_of_the_same_requests_those_for_a_stream_are_hedged() -> None:
    found = routes("m", shapes={"m": TWO_CLASSES})
    names = list(found)
    for name in ("class/1024/m/0", "class/1024/m/1", "class/32768/m"):
        plain, streamed = found[name], found[f"stream/{name}"]
        assert names.index(f"stream/{name}") == names.index(name) - 1
        *matches, stream = streamed.match.dynamic_metadata
        assert list(plain.match.dynamic_metadata) == matches
        assert list(plain.match.headers) == list(streamed.match.headers)
        assert (stream.path[0].key, stream.value.bool_match) == ("streams", True)
        assert streamed.route.hedge_policy.hedge_on_per_try_timeout
        assert streamed.route.retry_policy.per_try_timeout.ToTimedelta().total_seconds() == 1.0
        # How late an answer begins that is not streamed says nothing of the engine.
        assert not plain.route.HasField("hedge_policy")
        assert not plain.route.retry_policy.HasField("per_try_timeout")
        # Its retries are not of those that the hedges' bound counts.
        assert (streamed.route.priority, plain.route.priority) == (base_pb2.DEFAULT, base_pb2.HIGH)
    assert not found["header/m"].route.HasField("hedge_policy")
    assert found["header/m"].route.priority == base_pb2.HIGH


@pytest.mark.parametrize(
    ("settings", "baseline"),
    [
        (EnvoySettings(hedge_after_s=0), None),
        (EnvoySettings(retries=0), None),
        (EnvoySettings(baseline_retries=True), "rr"),
    ],
)
def test_nothing_is_hedged_where_that_is_off_or_the_gateway_is_a_plain_one(
    settings: EnvoySettings, baseline: Any
) -> None:
    value = RouteBuilder(settings, baseline).build(["m"], {}).value
    made = route_pb2.RouteConfiguration.FromString(value)
    assert not [route for route in made.virtual_hosts[0].routes if route.route.HasField("hedge_policy")]
