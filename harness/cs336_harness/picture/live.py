"""The live page: the latest verdict on 127.0.0.1, pushed to every tab that is open on it.

Two paths are served, the page and its stream of server-sent events, and only to whom asks for this very host: a page
of another site that has its name point here (DNS rebinding) is refused, and so is its reach for the stream. A stream
begins with the verdict that stands, so that a reload, a second tab or a machine that wakes up misses nothing.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import secrets
import socket
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from cs336_harness.picture.page import content, face, render

HOST = "127.0.0.1"

BEAT = 10.0
"""Seconds between two signs of life; a tab that hears none for a while asks anew (script.js)."""

MOST_STREAMS = 16
"""Tabs that are served at once."""

STALLED = 10.0
"""Seconds after which a tab that takes nothing is given up."""


class Live:
    """A server of the latest verdict, in threads of its own. It begins when it is made, and ends with :meth:`close`."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._changed = threading.Condition()
        self._token = secrets.token_hex(4)
        self._number = self._verdicts = 0
        self._data = data
        self._judging: str | None = None
        self._closing = False
        self._drawing, self._drawn = threading.Lock(), ("", b"")
        self.streams = 0
        self._server = _Server((HOST, 0), _Handler)
        self._server.live = self
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port, which the system chose among the free ones."""
        return self._server.server_address[1]

    @property
    def address(self) -> str:
        """What a browser is to open."""
        return f"http://{HOST}:{self.port}/"

    def judging(self, why: str) -> None:
        """Says on the page that the next verdict is on its way, and because of what."""
        with self._changed:
            self._judging = why
            self._number += 1
            self._changed.notify_all()

    def show(self, data: Mapping[str, Any]) -> None:
        """Shows a verdict, the JSON result of it, in every tab."""
        with self._changed:
            self._data, self._judging = data, None
            self._verdicts += 1
            self._number += 1
            self._changed.notify_all()

    def page(self) -> bytes:
        """The whole page as it stands now."""
        with self._changed:
            data, name = self._data, self._name()
        return render(data, live=name).encode()

    def _name(self) -> str:
        """What the verdict that stands is called in the stream, so that nobody is told it twice."""
        return f"{self._token}-{self._verdicts}"

    def events(self, seen: str | None) -> Iterator[bytes]:
        """What one tab is told, from now until the end; ``seen`` is the last that it was told before it lost us."""
        told = -1
        while True:
            with self._changed:
                self._changed.wait_for(lambda told=told: self._closing or self._number != told, BEAT)
                closing, number, data, judging, name = (
                    self._closing,
                    self._number,
                    self._data,
                    self._judging,
                    self._name(),
                )
            if closing:
                yield _event("end", {})
                return
            if number == told:
                yield _event("beat", {})
                continue
            if name != seen:
                yield self._verdict(name, data)
            yield _event("judging", {"why": judging})
            told, seen = number, name

    def _verdict(self, name: str, data: Mapping[str, Any]) -> bytes:
        """The event of a verdict, drawn once for all tabs."""
        with self._drawing:
            if self._drawn[0] != name:
                self._drawn = name, _event("verdict", {"content": content(data), **face(data)}, name)
            return self._drawn[1]

    def admit(self) -> bool:
        """Whether one more tab may listen; it is counted until :meth:`dismiss`."""
        with self._changed:
            free = self.streams < MOST_STREAMS
            self.streams += free
            return free

    def dismiss(self) -> None:
        """One tab has gone."""
        with self._changed:
            self.streams -= 1

    def close(self) -> None:
        """Tells every tab that this is the end, and gives the port back."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _event(kind: str, data: Mapping[str, Any], name: str | None = None) -> bytes:
    """One server-sent event; JSON keeps it on one line."""
    identity = f"id: {name}\n" if name is not None else ""
    return f"{identity}event: {kind}\nretry: 1000\ndata: {json.dumps(data)}\n\n".encode()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    live: Live

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A tab that goes away in the middle is no error of ours."""


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = STALLED

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the terminal is the watch's."""

    def version_string(self) -> str:
        """Nobody's business."""
        return "cs336"

    def do_GET(self) -> None:
        assert isinstance(self.server, _Server)
        live = self.server.live
        hosts = self.headers.get_all("Host") or []
        if hosts not in ([f"{HOST}:{live.port}"], [f"localhost:{live.port}"]):
            self._answer(403, "text/plain", b"not this host\n")
        elif self.path == "/":
            self._answer(200, "text/html; charset=utf-8", live.page())
        elif self.path != "/events":
            self._answer(404, "text/plain", b"there is nothing but the page at /\n")
        elif self.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            self._answer(403, "text/plain", b"only for the page itself\n")
        else:
            self._stream(live)

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self._headers(kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _headers(self, kind: str) -> None:
        self.send_header("Content-Type", kind)
        self.send_header("Connection", "close")  # no thread waits for a second request
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "frame-ancestors 'none'")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")

    def _stream(self, live: Live) -> None:
        if not live.admit():
            self._answer(503, "text/plain", b"too many tabs\n")
            return
        try:
            self.send_response(200)
            self._headers("text/event-stream")
            self.end_headers()
            for event in live.events(self.headers.get("Last-Event-ID")):
                self.wfile.write(event)
        except OSError:
            pass  # the tab is gone
        finally:
            live.dismiss()
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
