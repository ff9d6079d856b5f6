"""The server: who is answered, and what."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

import anabranch as ab
from anabranch import events
from anabranch.errors import EngineError
from anabranch.view.web import feed as feeds
from anabranch.view.web import serve
from anabranch.view.web.server import MOST_BODY, assets
from tests.view.web.made import Content, observed, paced_flow, small_change, small_seen, small_start

JSON = {"Content-Type": "application/json", "X-Anabranch": "1"}


@pytest.fixture
def page():
    with serve(port=0) as dashboard:
        dashboard.hear(small_start())
        dashboard.settle()
        yield dashboard


def ask(dashboard, path="/", headers=None, body=None, host=None):
    """Status, headers and body of an answer."""
    place = urlsplit(dashboard.url)
    connection = http.client.HTTPConnection(host or place.hostname, place.port, timeout=30)
    with closing(connection):
        method = "GET" if body is None else "POST"
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_the_page_and_all_it_needs_come_from_the_package(page):
    status, headers, body = ask(page)
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert b"<title>anabranch</title>" in body
    assert "default-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    for name, (content, kind) in assets().items():
        status, headers, body = ask(page, f"/static/{name}")
        assert (status, headers["Content-Type"], body) == (200, kind, content)
        assert b"//" not in content.replace(b"http://www.w3.org/2000/svg", b"").replace(b"// ", b"")


def test_the_page_is_small():
    assert sum(len(content) for content, _ in assets().values()) <= 64 * 1024


@pytest.mark.parametrize(
    "path", ["/static/../requests.py", "/static/", "/static/%2e%2e/feed.py", "/etc/passwd", "/api"]
)
def test_nothing_else_is_there(page, path):
    assert ask(page, path)[0] == 404


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example"])
def test_another_site_cannot_pass_as_this_machine(page, host):
    for path in ("/", "/static/main.js", "/api/history", "/api/stream", "/metrics"):
        assert ask(page, path, {"Host": host})[0] == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:1", "127.0.0.1:1", "[::1]:1"])
def test_this_machine_has_several_names(page, host):
    assert ask(page, "/api/history", {"Host": host})[0] == 200


def test_history_and_news(page):
    page.hear(observed(1.0))
    page.settle()
    history = json.loads(ask(page, "/api/history")[2])
    assert history["started"]["flow"] == "small"
    assert not history["controls"]
    with stream(page, history["id"]) as lines:
        page.hear(small_change())
        news = next(json.loads(line[6:]) for line in lines if line.startswith(b"data: "))
    assert (news["kind"], news["plan"]["replicas"]["count"]) == ("changed", 2)


def test_a_server_that_is_closed_answers_nobody_on_a_connection_that_was_kept():
    def asked():
        kept.request("GET", "/api/history")
        return kept.getresponse().read()

    with serve(port=0) as dashboard:
        place = urlsplit(dashboard.url)
        kept = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        assert asked()
    with closing(kept), pytest.raises(ConnectionError):
        asked()


class stream:
    """The lines of server-sent events."""

    def __init__(self, dashboard, since):
        place = urlsplit(dashboard.url)
        self._connection = http.client.HTTPConnection(place.hostname, place.port, timeout=30)
        self._connection.request("GET", f"/api/stream?since={since}")
        self._answer = self._connection.getresponse()
        assert self._answer.getheader("Content-Type") == "text/event-stream"

    def __enter__(self):
        return iter(self._answer.readline, b"")

    def __exit__(self, *error):
        self._answer.close()
        self._connection.close()


def test_too_many_browsers_are_told_so(page, monkeypatch):
    monkeypatch.setattr(feeds, "MOST_BROWSERS", 1)
    with stream(page, "") as lines:
        next(lines)
        assert ask(page, "/api/stream")[0] == 503


def test_metrics_can_be_scraped(page):
    status, headers, body = ask(page, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain")
    assert b"anabranch_" in body


REFUSED = {
    "no mark": ({"Content-Type": "application/json"}, 403),
    "a form": ({"Content-Type": "text/plain", "X-Anabranch": "1"}, 415),
    "another site": ({**JSON, "Origin": "http://evil.example"}, 403),
    "another port": ({**JSON, "Origin": "http://127.0.0.1:1"}, 403),
    "as the browser says": ({**JSON, "Sec-Fetch-Site": "cross-site"}, 403),
    "another host": ({**JSON, "Host": "evil.example"}, 403),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_web_pages_cannot_change_anything(page, case):
    headers, status = REFUSED[case]
    for path in ("/api/plan", "/api/adaptation"):
        assert ask(page, path, headers, b'{"paused": true}')[0] == status


@pytest.mark.parametrize(
    ("body", "status"), [(b"{", 400), (b"[]", 400), (b"1", 400), (b"x" * (MOST_BODY + 1), 413)]
)
def test_what_is_no_wish_is_refused(page, body, status):
    assert ask(page, "/api/plan", JSON, body)[0] == status


def test_a_request_of_unknown_length_is_refused(page):
    place = urlsplit(page.url)
    with socket.create_connection((place.hostname, place.port), 10) as raw:
        raw.sendall(b"POST /api/plan HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n")
        assert raw.recv(1000).startswith(b"HTTP/1.1 413 ")


MALFORMED = {
    "a length of 5,000 digits": ("POST", "/api/plan", {"Content-Length": "9" * 5_000}, "", 413),
    "half a host": ("GET", "/", {"Host": "["}, "", 403),
    "half an address": ("GET", "http://[/", {}, "", 400),
    "half an origin": ("POST", "/api/plan", {**JSON, "Origin": "http://["}, "{}", 403),
    "a well of brackets": ("POST", "/api/plan", JSON, "[" * 60_000, 400),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_malformed_requests_are_refused_and_leave_the_terminal_alone(page, capfd, case):
    method, path, headers, body, status = MALFORMED[case]
    told = {"Host": "localhost", "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    place = urlsplit(page.url)
    with socket.create_connection((place.hostname, place.port), 10) as raw:
        raw.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n{body}".encode())
        assert raw.recv(1000).startswith(f"HTTP/1.1 {status} ".encode())
    assert ask(page, "/api/history")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_journal_cannot_be_controlled(page):
    status, _, body = ask(page, "/api/plan", JSON, b'{"region": "count", "replicas": 2}')
    assert status == 409
    assert "a run that is going on" in json.loads(body)["error"]


def test_beyond_this_machine_nothing_is_answered_without_the_token():
    with serve(port=0, address="0.0.0.0") as dashboard:
        token = urlsplit(dashboard.url).query.removeprefix("token=")
        assert len(token) >= 32
        for host in ("127.0.0.1", "127.0.0.2"):
            for path in ("/", "/static/main.js", "/api/history", "/api/stream", "/metrics", "/x"):
                for shown in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "anabranch=1"}):
                    assert ask(dashboard, path, shown, host=host)[0] == 401
            assert ask(dashboard, "/?token=wrong", host=host)[0] == 401
            assert ask(dashboard, "/api/adaptation", JSON, b"{}", host=host)[0] == 401
            bearer = {"Authorization": f"Bearer {token}"}
            assert ask(dashboard, "/metrics", bearer, host=host)[0] == 200


def test_a_browser_shows_the_token_once_and_keeps_a_cookie():
    with serve(port=0, address="0.0.0.0", token="open sesame") as dashboard:
        status, headers, _ = ask(dashboard, "/?token=open%20sesame", host="127.0.0.2")
        assert status == 200
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        kept = {"Cookie": cookie.partition(";")[0]}
        assert ask(dashboard, "/api/history", kept, host="127.0.0.2")[0] == 200


def test_a_token_that_is_asked_for_is_needed_on_this_machine_too():
    with serve(port=0, token="open sesame") as dashboard:
        assert ask(dashboard, "/")[0] == 401
        assert "token=open" in dashboard.url


@pytest.mark.parametrize("token", ["a&b=c#d/e f", "100 % safe?", "schlüssel+=;"])
def test_the_address_that_is_told_can_be_opened_whatever_the_token(token):
    with serve(port=0, token=token) as dashboard:
        place = urlsplit(dashboard.url)
        assert (place.path, place.fragment) == ("/", "")
        status, headers, _ = ask(dashboard, f"/?{place.query}")
        kept = {"Cookie": headers["Set-Cookie"].partition(";")[0]}
        assert (status, ask(dashboard, "/api/history", kept)[0]) == (200, 200)


def test_a_page_that_only_shows_changes_nothing():
    with serve(port=0, controls=False) as dashboard:
        run = ab.start(paced_flow(), engine="local", policy=Content(), listener=dashboard.hear)
        dashboard.control(run)
        assert not json.loads(ask(dashboard, "/api/history")[2])["controls"]
        for path in ("/api/plan", "/api/adaptation"):
            status, _, body = ask(dashboard, path, JSON, b'{"paused": true}')
            assert (status, "changes nothing" in json.loads(body)["error"]) == (403, True)
        assert run.adapting
        run.stop()


def test_how_it_stood_under_an_earlier_plan_can_be_asked_for(page):
    for event in (small_seen(1.0), small_change(3.0), small_seen(4.0)):
        page.hear(event)
    page.settle()
    then = json.loads(ask(page, "/api/plans/1")[2])
    assert (then["number"], then["at_s"], then["seen"]["at_s"]) == (1, 0, 1)
    assert then["plan"]["replicas"]["count"] == 1
    now = json.loads(ask(page, "/api/plans/2")[2])
    assert (now["at_s"], now["seen"]["at_s"], now["plan"]["replicas"]["count"]) == (3, 4, 2)
    for number in ("0", "3", "-1", "", "x", "9" * 5_000, "1/2"):
        assert ask(page, f"/api/plans/{number}")[0] == 404


def test_a_short_token_is_refused():
    with pytest.raises(EngineError, match="at least 8 letters"):
        serve(port=0, token="short")


@pytest.mark.parametrize(("address", "port"), [("127.0.0.1", 70_000), ("192.0.2.1", 0)])
def test_a_place_that_is_not_there_is_refused(address, port):
    with pytest.raises(EngineError, match="a port that is free"):
        serve(port=port, address=address)


def test_a_port_that_is_taken_is_named(page):
    with pytest.raises(EngineError, match=f"127.0.0.1:{urlsplit(page.url).port}"):
        serve(port=urlsplit(page.url).port)


@pytest.fixture(scope="module")
def running():
    heard = []
    with serve(port=0) as dashboard:
        run = ab.start(
            paced_flow(), engine="local", policy=Content(), listener=[dashboard.hear, heard.append]
        )
        dashboard.control(run)
        yield dashboard, run, heard
        run.stop()


BAD = {
    "replicas of a sink": (
        {"region": "out", "replicas": 2},
        "one replica, as it takes a changelog",
    ),
    "none at all": ({"region": "count", "replicas": 0}, "at least one replica"),
    "a million": ({"region": "count", "replicas": 10**6}, "replicas by hand"),
    "half a one": ({"region": "count", "replicas": 1.5}, "a whole number"),
    "true": ({"region": "count", "replicas": True}, "a whole number"),
    "no such region": ({"region": "nowhere", "replicas": 2}, "a region among"),
    "no region": ({"replicas": 2}, "a region, and one of replicas, split_before"),
    "nothing": ({"region": "count"}, "a region, and one of replicas, split_before"),
    "both": ({"region": "even", "replicas": 2, "split_before": "positive"}, "and one of replicas"),
    "before the first": ({"region": "even", "split_before": "even"}, "among positive, count.comb"),
    "of another region": ({"region": "even", "merge_before": "count"}, "among positive, count."),
    "no step": ({"region": "even", "split_before": ["positive"]}, "a step with one before it"),
    "of a source": ({"region": "numbers", "split_before": "numbers"}, "a region among"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_plan_that_cannot_be_is_refused_with_the_reason(running, case):
    dashboard, run, _ = running
    wish, reason = BAD[case]
    before = run.plan
    status, _, body = ask(dashboard, "/api/plan", JSON, json.dumps(wish))
    assert (status, reason in json.loads(body)["error"]) == (422, True)
    assert run.plan == before


def test_wishes_build_on_each_other(running):
    dashboard, run, heard = running
    wishes = [
        {"region": "numbers", "replicas": 2},
        {"region": "even", "split_before": "positive"},
    ]
    will = [json.loads(ask(dashboard, "/api/plan", JSON, json.dumps(w))[2])["will"] for w in wishes]
    (words,) = will[1]
    assert words.endswith("even · positive · count.combine → even | positive · count.combine")
    for _ in range(600):
        if len(run.plan.region("even").pipelines) == 2 and run.plan.source("numbers").replicas == 2:
            break
        run.await_termination(0.05)
    assert run.plan.source("numbers").replicas == 2
    assert run.plan.region("even").pipelines[0] == ("even",)
    assert [d.why for d in run.decisions if d.policy == "by hand"][-1] == words
    told = [e for e in heard if isinstance(e, events.Reconfiguration) or by_hand(e)]
    first = next(n for n, event in enumerate(told) if isinstance(event, events.Reconfiguration))
    assert by_hand(told[first - 1])  # a change of plan is explained before it is told


def by_hand(event):
    applied = isinstance(event, events.Decision) and event.outcome is events.Kind.APPLIED
    return applied and event.policy == "by hand"


def test_adaptation_is_paused_and_goes_on(running):
    dashboard, run, _ = running
    for paused in (True, False):
        body = json.dumps({"paused": paused})
        status, _, answer = ask(dashboard, "/api/adaptation", JSON, body)
        assert (status, json.loads(answer)["adapting"], run.adapting) == (
            200,
            not paused,
            not paused,
        )
    assert ask(dashboard, "/api/adaptation", JSON, b'{"paused": 1}')[0] == 422


def test_where_nobody_tunes_there_is_nothing_to_pause(page):
    run = ab.start(paced_flow(), engine="local", policy="none", listener=page.hear)
    page.control(run)
    history = json.loads(ask(page, "/api/history")[2])
    assert (history["controls"], history["adapting"]) == (True, None)
    status, _, body = ask(page, "/api/adaptation", JSON, b'{"paused": true}')
    assert (status, "one that nobody tunes" in json.loads(body)["error"]) == (409, True)
    run.stop()
