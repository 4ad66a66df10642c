"""The server of the live page, without a browser: who is answered, with what, and what is left when it ends."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Generator
from typing import Any

import pytest
from test_picture import judged, verdict

from cs336_harness.picture import live as live_page
from cs336_harness.picture.live import Live


@pytest.fixture
def live() -> Generator[Live]:
    server = Live(verdict(judged(message="the first")))
    try:
        yield server
    finally:
        server.close()


def get(live: Live, path: str = "/", **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of an answer; a header is named with underscores."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request("GET", path, headers=named)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return told


class Stream:
    """One tab's stream."""

    def __init__(self, live: Live, **headers: str) -> None:
        self.connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request("GET", "/events", headers=named)
        self.answer = self.connection.getresponse()

    def next(self) -> tuple[str, Any, str]:
        """Kind, data and id of the next event."""
        fields: dict[str, str] = {}
        while line := self.answer.readline().decode().rstrip("\n"):
            name, _, value = line.partition(": ")
            fields[name] = value
        return fields["event"], json.loads(fields["data"]), fields.get("id", "")

    def close(self) -> None:
        self.answer.close()
        self.connection.close()


def test_it_listens_on_this_machine_only_and_serves_the_page(live: Live) -> None:
    assert live.address == f"http://127.0.0.1:{live.port}/"
    assert live._server.server_address[0] == "127.0.0.1"
    status, html, headers = get(live)
    assert status == 200
    assert "the first" in html
    assert "connect-src &#39;self&#39;" in html
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example", ""])
@pytest.mark.parametrize("path", ["/", "/events"])
def test_a_name_that_points_here_is_not_answered(live: Live, host: str, path: str) -> None:
    status, text, _ = get(live, path, Host=host)
    assert status == 403
    assert "the first" not in text


def test_localhost_is_this_host(live: Live) -> None:
    assert get(live, Host=f"localhost:{live.port}")[0] == 200


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "/../../etc/passwd", "/%2e%2e/adapters.py", "/index.html", "/?", "/events/", "/favicon.ico"],
)
def test_no_other_path_is_there(live: Live, path: str) -> None:
    assert get(live, path)[0] == 404


def test_another_site_does_not_get_the_stream(live: Live) -> None:
    assert get(live, "/events", Sec_Fetch_Site="cross-site")[0] == 403


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])
def test_it_can_only_be_read(live: Live, method: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=10)
    connection.request(method, "/")
    assert connection.getresponse().status == 501
    connection.close()


def test_a_stream_begins_with_what_stands_and_then_tells_what_changes(live: Live) -> None:
    stream = Stream(live)
    kind, told, first = stream.next()
    assert (kind, told["title"]) == ("verdict", "✗ adapters.py")
    assert "the first" in told["content"]
    assert stream.next()[:2] == ("judging", {"why": None})
    live.judging("model.py saved")
    assert stream.next()[:2] == ("judging", {"why": "model.py saved"})
    live.show(verdict(judged(outcome="passed")))
    kind, told, second = stream.next()
    assert (kind, told["title"]) == ("verdict", "✓ adapters.py")
    assert second != first
    stream.close()
    again = Stream(live, Last_Event_ID=second)
    assert again.next()[0] == "judging"  # it has the verdict already
    again.close()


def test_a_silent_watch_gives_signs_of_life(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "BEAT", 0.05)
    stream = Stream(live)
    kinds = [stream.next()[0] for _ in range(4)]
    assert kinds == ["verdict", "judging", "beat", "beat"]
    stream.close()


def test_the_end_is_told_and_leaves_no_thread(live: Live) -> None:
    stream = Stream(live)
    stream.next(), stream.next()
    live.close()
    assert stream.next()[0] == "end"
    stream.close()
    until = time.monotonic() + 10
    while live.streams and time.monotonic() < until:
        time.sleep(0.01)
    assert live.streams == 0
    assert not live._thread.is_alive()


def test_tabs_that_go_away_are_forgotten(live: Live) -> None:
    threads = threading.active_count()
    for _ in range(live_page.MOST_STREAMS + 4):
        stream = Stream(live)
        stream.next()
        stream.close()
        until = time.monotonic() + 10
        while live.streams and time.monotonic() < until:
            live.judging("so that the stream notices")
            time.sleep(0.01)
    assert live.streams == 0
    assert threading.active_count() <= threads + 1


def test_too_many_tabs_are_refused(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "MOST_STREAMS", 1)
    stream = Stream(live)
    stream.next()
    assert get(live, "/events")[0] == 503
    stream.close()
