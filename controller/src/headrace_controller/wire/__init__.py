"""gRPC over HTTP/2 for the agents' streams, in the controller's own event loop.

Bytes in, bytes and calls out: `frames`, `messages`, `requests`, `windows`, `call` and `connection` know no
socket and no clock; `protocol` and `server` put them on asyncio. Why: docs/adr/0010-telemetry-transport.md.
"""
