"""An admin port that answers what it is told to, well or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Admin:
    """Answers by `(method, path)`; a list is given out one by one, its last entry for ever.

    An answer is `(status, body)`; a body that is no bytes is sent as JSON.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], list[tuple[int, Any]]] = {}
        self.asked: list[tuple[str, str, Any]] = []
        self.tokens: list[str | None] = []
        self.promise = 0
        """Bytes that the Content-Length promises beyond those that come."""
        self.url = ""

    def answer(self, path: str, *bodies: Any, method: str = "GET", status: int = 200) -> None:
        self.answers[method, path] = [(status, body) for body in bodies]

    def take(self, method: str, path: str, body: Any) -> tuple[int, bytes]:
        self.asked.append((method, path, body))
        found = self.answers.get((method, path), [(404, {"error": "there is nothing here"})])
        status, said = found.pop(0) if len(found) > 1 else found[0]
        return status, said if isinstance(said, bytes) else json.dumps(said).encode()


@contextmanager
def serving() -> Iterator[Admin]:
    """The port, open."""
    admin = Admin()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            admin.tokens.append(self.headers.get("Authorization"))
            status, said = admin.take(self.command, self.path, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(said) + admin.promise))
            self.end_headers()
            self.wfile.write(said)

        do_GET = do_POST = do_PUT = do_DELETE = _answer  # noqa: N815 (the library names them so)

        def log_message(self, format: str, *_: Any) -> None:  # noqa: A002 (the library names it so)
            """Nothing on the tests' terminal."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    admin.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), name="admin port")
    thread.start()
    try:
        yield admin
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
