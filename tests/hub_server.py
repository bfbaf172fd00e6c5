"""A Hub on this machine that speaks the part of the protocol that pushing and fetching need.

Repositories, branches, tags and commits live in memory. Regular files come with the commit,
safetensors by LFS: a batch request, an upload, a verification, then the commit names the digest.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

WRITER, READER = "hf_writer", "hf_reader"
REPOSITORY = r"(?P<name>[^/]+/[^/]+)"


class Repository:
    """Branches that point at commits; a commit is the content of every file."""

    def __init__(self, private: bool = False) -> None:
        self.private = private
        self.gated = False
        self.commits: dict[str, dict[str, bytes]] = {}
        self.refs: dict[str, str] = {}
        self.messages: list[str] = []
        self.commit("main", {".gitattributes": b"*.safetensors filter=lfs\n"}, "initial commit")

    def commit(self, branch: str, files: dict[str, bytes], message: str) -> str:
        """Add files to a branch; returns the commit."""
        content = {**self.files(branch), **files}
        self.messages.append(message)
        made = hashlib.sha1(repr((len(self.messages), sorted(content))).encode()).hexdigest()
        self.commits[made] = content
        self.refs[branch] = made
        return made

    def files(self, revision: str) -> dict[str, bytes]:
        return self.commits.get(self.refs.get(revision, revision), {})


class Refusal(Exception):
    """An answer with an error: status, the Hub's code for it, its words."""

    def __init__(self, status: int, code: str = "", words: str = "") -> None:
        super().__init__(status, code, words)
        self.status, self.code, self.words = status, code, words


class Hub(ThreadingHTTPServer):
    """The server; `lfs` holds uploaded blobs, `asked` every request."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.lfs: dict[str, bytes] = {}
        self.verified: set[str] = set()
        self.asked: list[str] = []
        #: Parts of an address that are answered with a status of their own.
        self.failing: dict[str, int] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def environment(self, home: Path, **more: str) -> dict[str, str]:
        """The environment of a process for which this is the Hub and `home` its cache."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        return {
            **kept,
            "HF_HOME": str(home),
            "HF_ENDPOINT": self.url,
            "HF_HUB_DISABLE_XET": "1",  # chunks go to another server, which this one is not
            "HF_HUB_DISABLE_PROGRESS_BARS": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            **more,
        }


@contextmanager
def running() -> Iterator[Hub]:
    """A server on a free port, answering in a thread."""
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()


def run(script: str, environment: dict[str, str], *arguments: str) -> list[str]:
    """What a Python script prints as a JSON list: the client reads its settings on import."""
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answers: list[str] = json.loads(result.stdout.splitlines()[-1])
    return answers


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.server.asked.append(f"{self.command} {path}")
        body = self.body()
        try:
            for part, status in self.server.failing.items():
                if part in path:
                    raise Refusal(status)
            for method, pattern, reply in ROUTES:
                match = re.fullmatch(pattern, path)
                if match is not None and self.command in method.split():
                    reply(self, body, **match.groupdict())
                    return
            raise Refusal(404, "", f"no such address: {path}")
        except Refusal as error:
            headers = {"X-Error-Code": error.code, "X-Error-Message": error.words}
            self.reply(b"{}", error.status, **{k: v for k, v in headers.items() if v})

    do_GET = do_HEAD = do_POST = do_PUT = answer

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def reply(self, content: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def json(self, value: Any, status: int = 200) -> None:
        self.reply(json.dumps(value).encode(), status, Content_Type="application/json")

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the test output free of the server's log."""

    # Who asks, and for what

    def token(self) -> str:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token not in ("", WRITER, READER):
            raise Refusal(401, "", "Invalid credentials in Authorization header")
        return token

    def writer(self) -> None:
        token = self.token()
        if token != WRITER:
            raise Refusal(403 if token else 401, "", "You do not have the rights to write here")

    def repository(self, name: str) -> Repository:
        token = self.token()
        found = self.server.repositories.get(name)
        if found is None or (found.private and not token):
            raise Refusal(404 if token else 401, "RepoNotFound", "Repository not found")
        if found.gated and token != WRITER:
            raise Refusal(403, "GatedRepo", "Access to it is restricted")
        return found

    def commit_of(self, name: str, revision: str) -> tuple[str, dict[str, bytes]]:
        repository = self.repository(name)
        commit = repository.refs.get(revision, revision)
        if commit not in repository.commits:
            raise Refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit, repository.commits[commit]

    # Reading

    def info(self, body: bytes, name: str, revision: str | None = None) -> None:
        commit, files = self.commit_of(name, revision or "main")
        siblings = [{"rfilename": path} for path in sorted(files)]
        private = self.server.repositories[name].private
        self.json({"id": name, "sha": commit, "private": private, "siblings": siblings})

    def tree(self, body: bytes, name: str, revision: str) -> None:
        _, files = self.commit_of(name, revision)
        self.json([entry(path, content) for path, content in sorted(files.items())])

    def resolve(self, body: bytes, name: str, revision: str, path: str) -> None:
        commit, files = self.commit_of(name, revision)
        if path not in files:
            raise Refusal(404, "EntryNotFound", "Entry not found")
        etag = entry(path, files[path])["oid"]
        self.reply(files[path], ETag=f'"{etag}"', X_Repo_Commit=commit)

    # Writing

    def create(self, body: bytes) -> None:
        self.writer()
        asked = json.loads(body)
        name = f"{asked['organization']}/{asked['name']}"
        if asked["organization"] != "me":
            raise Refusal(403, "", "You do not have the rights to create a model there")
        known = name in self.server.repositories
        if not known:
            self.server.repositories[name] = Repository(asked.get("visibility") == "private")
        self.json({"url": f"{self.server.url}/{name}"}, 409 if known else 200)

    def branch(self, body: bytes, name: str, revision: str) -> None:
        self.writer()
        repository = self.repository(name)
        known = revision in repository.refs
        repository.refs.setdefault(revision, repository.refs["main"])
        self.json({}, 409 if known else 200)

    def validate(self, body: bytes) -> None:
        front = json.loads(body)["content"].split("---\n")
        fine = len(front) >= 3 and "library_name: headscope" in front[1]
        self.json({"errors": [] if fine else [{"message": "no front matter"}], "warnings": []})

    def preupload(self, body: bytes, name: str, revision: str) -> None:
        self.writer()
        _, files = self.commit_of(name, revision)
        said = []
        for file in json.loads(body)["files"]:
            path = file["path"]
            mode = "lfs" if path.endswith(".safetensors") else "regular"
            known = entry(path, files[path])["oid"] if path in files else None
            said.append({"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": known})
        self.json({"files": said})

    def batch(self, body: bytes, name: str) -> None:
        self.writer()
        objects = []
        for blob in json.loads(body)["objects"]:
            actions = {
                "upload": {"href": f"{self.server.url}/lfs/{blob['oid']}"},
                "verify": {"href": f"{self.server.url}/lfs/{blob['oid']}/verify"},
            }
            known = blob["oid"] in self.server.verified
            objects.append(blob if known else {**blob, "actions": actions})
        self.json({"transfer": "basic", "objects": objects})

    def upload(self, body: bytes, oid: str) -> None:
        self.server.lfs[oid] = body
        self.reply(b"")

    def verify(self, body: bytes, oid: str) -> None:
        if hashlib.sha256(self.server.lfs.get(oid, b"")).hexdigest() != oid:
            raise Refusal(422, "", "the digest of the upload is another")
        self.server.verified.add(oid)
        self.json({})

    def commit(self, body: bytes, name: str, revision: str) -> None:
        self.writer()
        repository = self.repository(name)
        message, files = "", {}
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            if item["key"] == "header":
                message = value["summary"]
            elif item["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                assert item["key"] == "lfsFile", item
                assert value["oid"] in self.server.verified
                files[value["path"]] = self.server.lfs[value["oid"]]
        made = repository.commit(revision, files, message)
        self.json({"commitUrl": f"{self.server.url}/{name}/commit/{made}", "commitOid": made})


def entry(path: str, content: bytes) -> dict[str, Any]:
    """What the Hub's listing says of a file; large ones are stored as pointers to their digest."""
    if not path.endswith(".safetensors"):
        blob = b"blob %d\0" % len(content) + content
        oid = hashlib.sha1(blob).hexdigest()
        return {"type": "file", "path": path, "size": len(content), "oid": oid}
    oid = hashlib.sha256(content).hexdigest()
    lfs = {"oid": oid, "size": len(content), "pointerSize": 130}
    return {"type": "file", "path": path, "size": len(content), "oid": oid, "lfs": lfs}


ROUTES = (
    ("POST", "/api/repos/create", Handler.create),
    ("POST", "/api/validate-yaml", Handler.validate),
    ("GET", f"/api/models/{REPOSITORY}", Handler.info),
    ("GET", f"/api/models/{REPOSITORY}/revision/(?P<revision>.+)", Handler.info),
    ("GET", f"/api/models/{REPOSITORY}/tree/(?P<revision>[^/]+)", Handler.tree),
    ("POST", f"/api/models/{REPOSITORY}/branch/(?P<revision>.+)", Handler.branch),
    ("POST", f"/api/models/{REPOSITORY}/preupload/(?P<revision>.+)", Handler.preupload),
    ("POST", f"/api/models/{REPOSITORY}/commit/(?P<revision>.+)", Handler.commit),
    ("GET HEAD", f"/{REPOSITORY}/resolve/(?P<revision>[^/]+)/(?P<path>.+)", Handler.resolve),
    ("POST", f"/{REPOSITORY}.git/info/lfs/objects/batch", Handler.batch),
    ("PUT", "/lfs/(?P<oid>[0-9a-f]{64})", Handler.upload),
    ("POST", "/lfs/(?P<oid>[0-9a-f]{64})/verify", Handler.verify),
)
