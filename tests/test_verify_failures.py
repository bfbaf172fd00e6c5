"""Failures of translation: kinds, evidence, and judges that are asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import failures as bench
import pytest

from chat_helpers import KEY, Endpoint, Reply, failed, said
from conftest import json_of
from headscope.data.chat import ChatModel, default_cache
from headscope.pocket.sample import sample_pairs
from headscope.results.failures import KINDS
from headscope.runs import encode
from headscope.verify.failures_classes.backing import (
    Lexicon,
    Sentences,
    akin,
    learn,
    matches,
    plain_words,
)
from headscope.verify.failures_classes.classify import Row, classify, shares
from headscope.verify.failures_classes.judge import judge, question, read_verdict


def background(direction: str = "en-de", count: int = 60) -> list[Row]:
    """Rows that show how the languages go; they are adequate themselves."""
    source, _, target = direction.partition("-")
    return [
        Row(f"b{p.id}", p.source, p.target, p.target, p.target, direction, source, target, p.links)
        for p in sample_pairs(direction, "dev", count, 1).pairs
    ]


def row(source: str, reference: str, after: str, before: str | None = None, **more: object) -> Row:
    fields = {"direction": "en-de", "source_language": "en", "target_language": "de", **more}
    return Row("1", source, reference, reference if before is None else before, after, **fields)


S = "The old hunter bought a yellow bicycle yesterday."
R = "Der alte Jäger hat gestern ein gelbes Fahrrad gekauft."


def kind(after: str, language: str | None = None, before: str | None = None) -> str:
    rows = [row(S, R, after, before), *(background())]
    rows = [*rows[:1], *(Row(**{**vars(one), "links": None}) for one in rows[1:])]
    return classify(rows, [language] + [None] * (len(rows) - 1), align=False)[0].kind


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("", "no translation"),
        (" … ", "no translation"),
        (S, "no translation"),
        ("The old hunter bought a bicycle yesterday.", "no translation"),
        ("Der alte hunter bought a yellow bicycle yesterday.", "no translation"),
        ("Die Königin sitzt im Garten.", "hallucination"),
        (
            "Der alte Jäger hat gestern ein grünes Boot im Hafen der Insel verkauft, und seine "
            "Tochter tanzte auf dem Dampfer.",
            "hallucination",
        ),
        # One wrong word among right ones is not to be told from one put otherwise.
        ("Der alte Jäger hat gestern ein gelbes Boot gekauft.", "other"),
        ("Gestern erwarb der alte Jäger ein gelbes Rad.", "other"),
        ("Der alte Jäger hat gestern ein Fahrrad gekauft.", "missing details"),
        ("Der Jäger hat gestern ein gelbes Fahrrad gekauft.", "missing details"),
        ("Gestern hat der alte Jäger gekauft.", "missing details"),
        (R, "other"),
        ("Gestern hat der alte Jäger ein gelbes Fahrrad gekauft.", "other"),
        ("Der alten Jäger hat gestern ein gelbe Fahrrad kauft.", "other"),
    ],
)
def test_kinds_of_one_sentence(after: str, expected: str) -> None:
    assert kind(after) == expected


def test_words_of_the_translation_before_are_backed() -> None:
    before = "Der alte Jäger hat gestern ein gelbes Rad erworben."
    assert kind("Gestern hat der alte Jäger ein gelbes Rad erworben.", before=before) == "other"
    assert kind("Gestern hat der alte Jäger ein gelbes Rad erworben.") == "other"
    assert kind("Der alte Jäger hat ein gelbes Rad erworben.", before=before) == "missing details"
    # A translation before that is no good backs nothing.
    assert kind("Die Königin singt.", before="Die Königin singt.") == "hallucination"


def test_the_source_language_tells_no_translation_where_words_do_not() -> None:
    assert kind("They went home in the morning.", "en") == "no translation"
    assert kind("They went home in the morning.", None) == "hallucination"
    assert kind(R, "en") == "other"  # the identifier may err; words that are backed decide


def test_evidence_names_the_words() -> None:
    rows = [row(S, R, "Der alte Jäger hat ein grünes Boot gekauft."), *background()]
    rows = [rows[0], *(Row(**{**vars(one), "links": None}) for one in rows[1:])]
    case = classify(rows, align=False)[0]
    assert set(case.evidence.backing.unsupported_words) == {"grünes", "boot"}
    assert set(case.evidence.backing.missing_words) == {"gestern", "gelbes", "fahrrad"}
    assert "boot" in case.evidence.because
    flat = encode(case.evidence)
    assert flat["unsupported"] == pytest.approx(2 / 6) and "backing" not in flat
    assert flat["source_covered"] is None and case.links is None


def test_links_tell_how_much_of_the_source_is_covered() -> None:
    rows = background()
    whole = rows[4]
    words = whole.reference.split()
    cut = Row(**{**vars(whole), "id": "cut", "after": " ".join(words[:2])})
    cases = classify([*rows, cut])
    full, less = cases[4].evidence.backing, cases[-1].evidence.backing
    assert cases[-1].links == "given"
    assert full.source_covered == 1.0 and full.output_covered == 1.0
    assert less.source_covered is not None and 0 < less.source_covered < 1


def test_links_by_an_aligner_are_told_and_need_more_than_one() -> None:
    rows = [replace(one, aligner="eflomal") for one in background()]
    assert {case.links for case in classify(rows)} == {"eflomal"}
    texts = [Sentences("The dog", "Der Hund", None, frozenset({(1, 1)}), None, by)
             for by in (None, "eflomal")]  # fmt: skip
    given, made = (learn([text]).lexicon for text in texts)
    assert given is not None and given.sources("hund", ["the", "dog"]) == {1}
    assert made is not None and made.sources("hund", ["the", "dog"]) == set()


def test_words_without_spaces_are_compared_though_links_are_between_units() -> None:
    """Links count characters here; a piece of white space would be the whole sentence."""
    pair = ("The dog sleeps", "狗睡觉了。")
    units = (((0, 3), (4, 7), (8, 14)), ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5)))
    links = frozenset({(1, 0), (2, 1), (2, 2)})
    known = learn([Sentences(*pair, None, links, units)])
    assert not known.pieces and known.links is not None
    words = plain_words(pair[1], pieces=False)
    linked = {(i, words[j]) for i, j in known.links[0]}
    assert (1, "狗") in linked
    assert "".join(word for i, word in sorted(linked) if i == 2).startswith("睡")


def test_selection_is_apart_from_the_kind() -> None:
    cases = classify([row(S, R, "Die Königin.", "Die Königin."), row(S, R, "Die Königin.")])
    assert [case.kind for case in cases] == ["hallucination"] * 2
    assert [case.selected for case in cases] == [False, True]
    assert shares(cases, False)["hallucination"] == 1.0
    assert shares(cases[:1], True) == dict.fromkeys(KINDS)
    assert classify([]) == []


def test_forms_of_a_word() -> None:
    forms = ["Vater Väter", "geöffnet öffnet", "старая старую", "kanepe kanepeyi", "Kind Kindern"]
    for pair in [*forms, "estos estas", "trabajador trabajadores"]:
        assert akin(*pair.split()) and akin(*reversed(pair.split())), pair
    others = ["Hund Katze", "20170 20171", "der die", "Nase Hase", "spiegel spielen", "дом дым"]
    for pair in others:
        assert not akin(*pair.split()), pair


def test_words_are_matched_once_and_the_same_form_first() -> None:
    assert matches(["vater", "väter", "", "hund"], ["väter", "vater"]) == {0: 0, 1: 1}
    assert matches(["kind"], ["kindern", "kind"]) == {0: 1}
    assert plain_words("«Ja», sagt er.", pieces=True) == ["ja", "sagt", "er"]
    assert plain_words("Ja - nein.", pieces=False) == ["ja", "", "nein", ""]


def test_a_lexicon_needs_links_enough() -> None:
    pairs = [(["dog", "the"], ["hund"], {(0, 0)})] * 3 + [(["dog", "the"], ["hund"], {(1, 0)})]
    lexicon = Lexicon.of(pairs, least=2, share=0.3)
    assert lexicon.sources("hunde", ["the", "dog"]) == {1}
    assert lexicon.sources("katze", ["the", "dog"]) == set()


@pytest.mark.parametrize("links", ["given", "none"])
def test_made_cases_of_held_out_sentences_are_sorted_rightly(links: str) -> None:
    found = bench.accuracy(bench.judged("test", 6, 1, links))
    for kind_name in KINDS:
        assert found[kind_name]["cases"] == 48
        # Another sentence's translation may share most words with this one's.
        least = 0.75 if kind_name == "hallucination" else 0.95
        assert found[kind_name]["right"] >= least, (kind_name, found[kind_name])
    # One phrase of another sentence among right words looks like other words for the same.
    taken = found["one phrase replaced"]["taken_for"]
    assert max(taken, key=lambda one: taken[one]) == "other"


pytest.importorskip("openai")

ROW = Row("1", "The dog sleeps.", "Der Hund schläft.", "Der Hund schläft.", "The dog sleeps.",
          "en-de", "en", "de")  # fmt: skip
GOOD = json.dumps({"kind": "no translation", "reason": "It repeats the source."})


Serve = Callable[[Callable[[int], tuple[int, str]]], tuple[Endpoint, ChatModel]]


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Serve]:
    for name in ("OPENAI_API_KEY", "HEADSCOPE_BASE_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HEADSCOPE_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    started: list[Endpoint] = []

    def start(reply: Callable[[int], tuple[int, str]]) -> tuple[Endpoint, ChatModel]:
        def answer(number: int, _: Any) -> Reply:
            status, content = reply(number)
            return said(content) if status == 200 else failed(status)

        server = Endpoint(answer)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        started.append(server)
        options = {"retries": 2, "first_delay": 0.001, "workers": 1}
        return server, ChatModel("m", server.url, tmp_path / "cache", **options)

    yield start
    for server in started:
        server.shutdown()
        server.server_close()


def test_a_verdict_is_asked_for_once_and_kept(serve: Serve) -> None:
    server, options = serve(lambda number: (200, GOOD))
    found = judge([ROW], options)
    assert found.verdicts[0] is not None and found.verdicts[0].kind == "no translation"
    assert found.stats == {"cached": 0, "answered": 1, "invalid": 0, "retries": 0}
    again = judge([ROW], options)
    assert again.verdicts == found.verdicts and again.stats["cached"] == 1
    assert len(server.requests) == 1
    sent = server.requests[0][2]
    assert sent["response_format"]["json_schema"]["strict"] is True
    text = sent["messages"][1]["content"]
    assert "Source (English)" in text and "Reference (German)" in text and "Output to judge" in text
    # Another output, or another model, is another question.
    judge([replace(ROW, after="Der Hund.")], options)
    judge([ROW], replace(options, model="n"))
    assert len(server.requests) == 3


def test_unreadable_answers_are_asked_for_again_and_then_reported(serve: Serve) -> None:
    server, options = serve(lambda number: (200, "perhaps" if number < 3 else GOOD))
    found = judge([ROW], options)
    assert found.stats == {"cached": 0, "answered": 1, "invalid": 0, "retries": 2}
    server, options = serve(lambda number: (200, '{"kind": "bad", "reason": ""}'))
    found = judge([replace(ROW, after="x")], options)
    assert found.verdicts == (None,) and found.stats["invalid"] == 1
    assert len(server.requests) == 3


def test_answers_are_read_strictly() -> None:
    assert read_verdict(GOOD) is not None
    for text in ("", "[]", "{}", '{"kind": "other"}', '{"kind": 1, "reason": "x"}', "[" * 10**5):
        assert read_verdict(text) is None
    unknown = replace(ROW, source_language=None, target_language="xx-none")
    assert '\nReference: "Der' in question(unknown)[1]["content"]


def test_the_command_tells_agreement(
    serve: Serve, command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    server, _options = serve(lambda number: (200, GOOD))
    rows = [
        {"id": 1, "source": "The dog sleeps.", "reference": "Der Hund schläft.",
         "before": "Der Hund schläft.", "after": after}
        for after in ("The dog sleeps.", "Der Hund schläft.")
    ]  # fmt: skip
    rows[1]["id"] = 2
    file = tmp_path / "outputs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    out = tmp_path / "run"
    asked = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url]
    said = command("verify", "failures", "--outputs", file, "--out", out, *asked, "--json")
    assert said.code == 0, said.err
    result = json_of(said.out)
    assert result["judge"]["agreement"] == 0.5 and result["judge"]["answered"] == 2
    assert result["judge"]["rules_and_judge"]["other"]["no translation"] == 1
    assert [case["judge"]["kind"] for case in result["cases"]] == ["no translation"] * 2
    assert default_cache("failures").is_dir()
    without = command("verify", "failures", "--outputs", file, "--judge", "llm")
    assert without.code == 2 and "--llm-model" in without.err
