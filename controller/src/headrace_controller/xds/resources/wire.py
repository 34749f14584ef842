"""Small conversions into the protobuf types that Envoy's API is made of."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from envoy.config.core.v3 import base_pb2, config_source_pb2, extension_pb2
from google.protobuf import any_pb2, duration_pb2, wrappers_pb2


def seconds(value: float) -> duration_pb2.Duration:
    """A duration of `value` seconds, to the nanosecond."""
    whole, nanos = divmod(round(value * 1e9), 1_000_000_000)
    return duration_pb2.Duration(seconds=whole, nanos=nanos)


def u32(value: int) -> wrappers_pb2.UInt32Value:
    """A number that can also be absent."""
    return wrappers_pb2.UInt32Value(value=value)


def packed(message: Any) -> any_pb2.Any:
    """`message` in an Any; the same content gives the same bytes."""
    box = any_pb2.Any()
    box.Pack(message, deterministic=True)
    return box


def field_of(number: int, value: bytes) -> bytes:
    """`value`, a serialised message, as field `number` of the message around it: tag, length, value.

    What is made of many parts that seldom change is put together of their bytes, for Python's protobuf
    copies every part anew. https://protobuf.dev/programming-guides/encoding/#length-types
    """
    return tag_of(number) + varint(len(value)) + value


def tag_of(number: int) -> bytes:
    """What a field `number` that holds a message begins with."""
    return varint(number << 3 | 2)


@lru_cache(maxsize=4096)
def varint(value: int) -> bytes:
    """A whole number from 0 up, seven bits a byte."""
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def extension(name: str, message: Any) -> Any:
    """A named extension with its typed configuration."""
    return extension_pb2.TypedExtensionConfig(name=name, typed_config=packed(message))


def from_ads(initial_fetch_timeout_s: float) -> Any:
    """'Ask for this resource on the ADS stream'; 0 s = wait until it comes."""
    return config_source_pb2.ConfigSource(
        ads=config_source_pb2.AggregatedConfigSource(),
        resource_api_version=config_source_pb2.ApiVersion.V3,
        initial_fetch_timeout=seconds(initial_fetch_timeout_s),
    )


def bearer(key: str) -> Any:
    """The header that shows an API key to an engine."""
    return set_header("authorization", f"Bearer {literal(key)}")


def literal(text: str) -> str:
    """`text` for a place where Envoy reads commands between per cent signs."""
    return text.replace("%", "%%")


def set_header(key: str, value: str) -> Any:
    """A header that replaces one of the same name."""
    return base_pb2.HeaderValueOption(
        header=base_pb2.HeaderValue(key=key, value=value),
        append_action=base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD,
    )
