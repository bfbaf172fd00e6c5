"""A server of the explorer's page without a model: every answer is scripted."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headscope.live import page
from headscope.report.parts import ends

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
TYPES = {"js": "text/javascript", "css": "text/css"}
INPUT = {
    "sentence": "You think that Daniel broke a sofa slowly.",
    "pair": "en-de",
    "reference": "Du denkst, dass Daniel gemächlich ein Sofa zerbrochen hat.",
}
ORIGINAL = ["Du", " denkst", ",", " dass", " Daniel", " gemächlich", " ein", " Sofa", " hat", "."]
GATED = ["Du", " denkst", ",", " dass", " Peter", " ein", " Sofa", " sofa", "."]
RANDOM = [*ORIGINAL[:5], " langsam", *ORIGINAL[6:]]
CHANGE = [-0.02, 0.1, 0.0, -0.3, -3.4, -1.6, 0.4, -0.9, None, 0.05]

Event = dict[str, Any]
Answer = Callable[[str, dict[str, Any]], Iterator[Event]]


def column(key: str, title: str, values: list[float | None]) -> dict[str, Any]:
    """A column of scores as the page is told of it."""
    high, signed = ends(values)
    return {"key": key, "title": title, "values": values, "high": high, "signed": signed}


def about(**changed: Any) -> dict[str, Any]:
    """A model of 6 layers with 16 heads, the third without any, and one run of scores."""
    counts = [16, 16, 0, 16, 16, 16]
    total = sum(counts)
    score = [round(0.75 * (1 - abs(at - 65) / 80) ** 4, 3) for at in range(total)]
    chance = [round(value * 0.7, 3) for value in score]
    above = [round(a - b, 3) for a, b in zip(score, chance, strict=True)]
    above[0] = None
    order = sorted(range(total), key=lambda at: (-(above[at] or 0.0), at))
    rank = [0] * total
    for place, at in enumerate(order, 1):
        rank[at] = place
    columns = [
        column("score", "TS", score),
        column("above_chance", "TS \u2212 chance", above),
        column("low", "low", [value - 0.03 for value in score]),
        column("high", "high", [value + 0.03 for value in score]),
        column("chance", "chance", chance),
    ]
    scores = {
        "name": "runs/ts", "title": "Translation scores, English \u2192 German",
        "by": "above_chance", "threshold": 0.1, "columns": columns, "rank": rank,
        "classes": ["token alignment" if (v or 0) > 0.1 else "inactive" for v in above],
        "k": 5, "sentences": True, "by_size": False,
    }  # fmt: skip
    prompt = {"prompt": "The capital of France is", "reference": None, "language": None,
              "chat": False}  # fmt: skip
    return {
        "model": "pocket", "layers": 6, "counts": counts, "gate": [-1, 5], "new_tokens": 64,
        "scores": [scores],
        "examples": [{"title": "Translation, English to German", "input": INPUT},
                     {"title": "Completion", "input": prompt}],
        "data": {"name": "pairs.tsv",
                 "directions": [{"pair": "en-de", "title": "English \u2192 German",
                                 "sentences": 3}]},
        "lesson": [],
        "pairs": [{"pair": "en-de", "title": "English \u2192 German"}],
        "sets": [{"title": "runs/mask", "gates": {"1.1": 0, "3.2": 2}}], "pinned": None,
        "chat": False, "draws": 20, **changed,
    }  # fmt: skip


def lane(name: str, tokens: list[str], diverges: int | None, **changed: Any) -> Event:
    """A finished output."""
    return {
        "event": "lane", "lane": name, "text": "".join(tokens), "tokens": tokens,
        "diverges": diverges, "ended": "eos", "language": {"code": "de", "name": "German"},
        "candidates": [[[text.strip(), 0.7], ["Daniel", 0.2]] for text in tokens],
        "wanted": True, "copied": 0.1, "chrf": 94.7, "reference_logprob": -4.2, **changed,
    }  # fmt: skip


def spans(text: str, start: int = 0) -> list[list[int]]:
    """The spans of the words of a text, each with the space before it."""
    found, at = [], start
    for word in text.split(" "):
        end = at + len(word) + (at > start)
        found.append([at, end])
        at = end
    return found


def prompt(body: dict[str, Any]) -> Event:
    """The prompt of an input, whose tokens and words are what stands between spaces."""
    given = body["input"]
    asked = given.get("sentence") or given["prompt"]
    before = "English: " if "sentence" in given else ""
    text = f"{before}{asked}\nGerman:" if before else asked
    source = [len(before), len(before) + len(asked)] if before else None
    cut = len(before)
    words = [[a + (text[a] == " "), b] for a, b in spans(asked, cut)]
    tokens = [*([[0, cut]] if cut else []), *spans(asked, cut)]
    if cut:
        tokens.append([cut + len(asked), len(text)])
    heads = [f"4.{(3 * at + body['draw']) % 16}" for at in range(len(body["gates"]))]
    return {
        "event": "prompt", "text": text, "source": source, "tokens": tokens, "words": words,
        "reference": given.get("reference"), "control": heads or None, "control_note": None,
    }  # fmt: skip


#: After each word what is drafted, how many tokens of it are written, and where the heads look.
ARRIVING = [
    (["Du"], 0, [0]), (["Du", " denkst", "."], 1, [0, 1, 1]), ([" denkst", ","], 0, [1, 2]),
    ([" denkst", ", dass", " Daniel", " kam"], 2, [1, 1, 3, 3]),
    ([" Daniel", " zerbrach"], 1, [3, 4]), ([" zerbrach"], 0, [4]), ([], 0, []),
    ([" gemächlich", " ein", " Sofa", " zerbrach", "."], 5, [7, 5, 6, 4, 7]),
]  # fmt: skip


def interpreted(body: dict[str, Any]) -> Iterator[Event]:
    """The translation of a source of eight words while it arrives."""
    text = body["input"]["sentence"]
    words = [[a + (text[a] == " "), b] for a, b in spans(text)]
    yield {"event": "source", "text": text, "words": words}
    for drafted, count, looks in ARRIVING:
        yield {"event": "read", "tokens": drafted, "written": count, "looks": looks}
    delays = [2, 4, 4, 5, 8, 8, 8, 8]
    made = "Du denkst, dass Daniel gemächlich ein Sofa zerbrach."
    yield {"event": "interpreted", "text": made, "delays": delays, "lag": 2.5}
    yield {"event": "done", "seconds": 0.1}


def answer(kind: str, body: dict[str, Any]) -> Iterator[Event]:
    """What a model would say."""
    if kind == "sentence":
        given = {**INPUT, "sentence": f"Sentence {body['at'] + 1}."}
        yield {"event": "sentence", "input": given, "at": body["at"], "of": 3}
    elif kind == "best":
        yield best(body["head"])
    elif kind == "copy":
        yield {
            "event": "copy",
            "command": "headscope use adapt pocket",
            "python": "import headscope",
        }
    elif kind == "save":
        yield {"event": "saved", "run": "runs/use-adapt-1"}
    elif kind == "interpret":
        yield from interpreted(body)
    elif kind == "run":
        yield from run(body)


def run(body: dict[str, Any]) -> Iterator[Event]:
    """A run in the order of the protocol."""
    shown = prompt(body)
    yield shown
    yield lane("original", ORIGINAL, None)
    outputs = {"gated": (GATED, 4), "random": (RANDOM, 5)}
    if not body["gates"]:
        yield {"event": "same"}
        outputs = {}
    for name in outputs:
        share = 1.0 if name == "gated" else 0.1
        change = [None if value is None else share * value for value in CHANGE]
        total = sum(value or 0 for value in change)
        yield {"event": "shift", "lane": name, "change": change, "total": total,
               "reference": 0.9 * total}  # fmt: skip
    for at in range(10 if outputs else 0):
        for name, (tokens, diverges) in outputs.items():
            if at < len(tokens):
                yield {"event": "token", "lane": name, "at": at, "text": tokens[at],
                       "diverges": at == diverges}  # fmt: skip
    for name, (tokens, diverges) in outputs.items():
        yield lane(name, tokens, diverges)
    if outputs:
        yield {"event": "place", "of": "reference", "selected": -5.1,
               "random": [-0.1 * at + 0.3 for at in range(20)], "as_much": 0,
               "control": body["control"]}  # fmt: skip
    if body["pinned"]:
        yield {"event": "head", "head": body["pinned"],
               "alone": {"change": CHANGE, "total": -5.7, "reference": -2.1}}  # fmt: skip
        many = len(shown["tokens"])
        for name, tokens in {"original": ORIGINAL, **{k: v[0] for k, v in outputs.items()}}.items():
            words = len(shown["words"])
            yield {"event": "attention", "lane": name, "head": body["pinned"],
                   "peaks": [1 + at % max(1, many - 2) if at != 3 else many + 1
                             for at in range(len(tokens))],
                   "weights": [[[(at + j) % words, 0.6 / (1 + j)] for j in range(min(5, words))]
                               for at in range(len(tokens))],
                   "every": [[{at % words: 0.6, (at + 1) % words: 0.3}.get(word, 0.0)
                              for word in range(words)] for at in range(len(tokens))]
                   if words < 100 else None}  # fmt: skip
    if body.get("effects"):
        effects = [0.01] * 80
        effects[3:5] = [-2.0, 1.0]
        yield {"event": "effects", "of": "reference", "values": effects, "high": 2.0,
               "signed": True}  # fmt: skip
    yield {"event": "done", "seconds": 0.1}


def best(head: str) -> Event:
    """Ten sentences of a run; in each a hit, a miss and tokens without a link."""
    source, target = INPUT["sentence"], INPUT["reference"]
    each = {
        "part": "en-de", "source": source, "target": target, "hits": 4, "of": 5,
        "words": [[a + (source[a] == " "), b] for a, b in spans(source)], "tokens": spans(target),
        "peaks": [0, 1, 2, 3, 7, 5, 6, -1, 4],
        "hit": [True, True, None, True, False, True, True, None, True][: len(spans(target))],
    }  # fmt: skip
    each["peaks"] = each["peaks"][: len(each["tokens"])]
    each["hit"] = each["hit"][: len(each["tokens"])]
    rows = [{**each, "id": str(at)} for at in range(10)]
    return {"event": "best", "head": head, "sentences": rows}


@dataclass
class Served:
    """A running server: its address and what it was asked."""

    address: str
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)

    def runs(self) -> list[dict[str, Any]]:
        return [body for kind, body in self.asked if kind == "run"]


@contextmanager
def serving(model: dict[str, Any], answers: Answer = answer) -> Iterator[Served]:
    """Serve the page of a model with these answers; an answer of one `status` is a refusal."""
    served = Served("")
    documents = {f"/{name}": text for name, text in page.assets().items()}
    documents["/"] = page.page(model)

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def start(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-security-policy", POLICY)
            self.end_headers()

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path not in documents:
                return self.send_error(404)
            kind = TYPES.get(path.rpartition(".")[2], "text/html")
            self.start(200, f"{kind}; charset=utf-8")
            self.wfile.write(documents[path].encode())

        def do_POST(self) -> None:
            kind = self.path.removeprefix("/ask/")
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            served.asked.append((kind, body))
            events = answers(kind, body)
            first = next(events)
            if "status" in first:
                self.start(first["status"], "application/json")
                self.wfile.write(json.dumps({"error": first["error"]}).encode())
                return
            self.start(200, "text/event-stream")
            try:
                for event in itertools.chain((first,), events, ({"event": "end"},)):
                    # In two parts, as a network may deliver them.
                    message = f"data: {json.dumps(event)}\n\n".encode()
                    for part in (message[:9], message[9:]):
                        self.wfile.write(part)
                        self.wfile.flush()
            except (BrokenPipeError, ConnectionResetError):
                served.asked.append(("cancelled", body))

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    served.address = f"http://127.0.0.1:{server.server_port}/"
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
