"""The explorer as a real process, and what it answers."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

START = "import sys; from headscope.cli import main; sys.exit(main(sys.argv[1:]))"


@dataclass
class Served:
    """A server's process, its address with the token, and the cookie that the token was worth."""

    process: subprocess.Popen[str]
    address: str
    cookie: str = ""

    @property
    def port(self) -> int:
        port = urlsplit(self.address).port
        assert port
        return port

    def request(
        self, method: str, path: str, body: str | bytes | None = None, **headers: str
    ) -> tuple[int, dict[str, str], str]:
        """Status, headers and text of one request; the cookie goes along unless it is given."""
        host = urlsplit(self.address).hostname or ""
        connection = http.client.HTTPConnection(host, self.port, timeout=60)
        given = {"Cookie": self.cookie, **{k.replace("_", "-"): v for k, v in headers.items()}}
        connection.request(method, path, body, {k: v for k, v in given.items() if v})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, text

    def ask(self, kind: str, **body: Any) -> list[dict[str, Any]]:
        """The events of an answer."""
        status, _, text = self.request("POST", f"/ask/{kind}", json.dumps(body))
        assert status == 200, text
        return events_in(text)

    def refused(self, kind: str, body: Any) -> tuple[int, str]:
        """Status and sentence of a question that is not answered."""
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        status, _, answer = self.request("POST", f"/ask/{kind}", text)
        return status, json.loads(answer)["error"]


def events_in(text: str) -> list[dict[str, Any]]:
    """The events of a stream."""
    return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part.strip()]


def one(events: list[dict[str, Any]], name: str, **more: Any) -> dict[str, Any]:
    """The single event of this name, and of this lane."""
    found = [each for each in events if each["event"] == name]
    found = [each for each in found if all(each[key] == value for key, value in more.items())]
    assert len(found) == 1, events
    return found[0]


@contextmanager
def explored(folder: Path, *arguments: str) -> Iterator[Served]:
    """`headscope explore` in a folder, ended by Ctrl-C, which it must obey."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, "explore", "--no-browser", *arguments],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stderr is not None
    try:
        line = process.stdout.readline()
        assert "http://" in line, process.stderr.read()
        served = Served(process, next(word for word in line.split() if word.startswith("http")))
        _, headers, _ = served.request("GET", served.address[served.address.index("/?") :])
        served.cookie = headers["set-cookie"].partition(";")[0]
        yield served
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
