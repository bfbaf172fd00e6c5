"""Which texts need the heads (Tables 2 and 3)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.heads import resolve_heads
from headscope.heads.draws import draw_heads
from headscope.heads.store import write_bytes
from headscope.measure.intervals import wilson_interval
from headscope.measure.statistics import p_draws
from headscope.papers.claims import LEVEL, with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.token_alignment_heads.cells import (
    cell,
    hundred,
    lines_of,
    sentence,
    text,
)
from headscope.papers.token_alignment_heads.setting import ranked_by, top
from headscope.papers.token_alignment_heads.steps import score_steps
from headscope.papers.token_alignment_heads.trater import POCKET_TOKENS
from headscope.papers.trater.evidence import published_selection
from headscope.pocket.corpus import corpus_documents
from headscope.runs import Run, carry_out, dump_json, encode
from headscope.shown.blocks import NOT_RUN, Claim, Findings, Row, Table
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress
from headscope.studies.use.rate import UseRate, use_rate
from headscope.use.rating import Rating

#: Documents of the pocket corpus, and how many of them carry a translation.
DOCUMENTS, BILINGUAL = 2000, 0.05
#: Documents of each of anybody's files that are rated, and tokens of one.
LIMIT, TOKENS = 2000, 500
#: Random sets of heads by which documents are rated too: the fewest by which p over draws can be
#: 0.05.
DRAWS = 19
#: Characters of a text that are shown.
SHOWN = 240


def _rating_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    if not setting.pocket and not setting.data.documents:
        return Missing(
            "the paper rates 300B tokens of its own multilingual web text, which is not published",
            "documents of each language, such as --documents de=FILE --documents fr=FILE",
        )
    corpus: tuple[Step, ...] = ()
    number, tokens = LIMIT * len(setting.data.documents), TOKENS
    if not setting.data.documents:
        corpus = (Step("corpus", "a corpus of the pocket world", _corpus, Work()),)
        number, tokens = DOCUMENTS, POCKET_TOKENS
    rows = max(1.0, setting.batch_tokens / tokens)
    work = Work(forward=2.0 * number * tokens, length=tokens, rows=rows, calls=2 * number / rows)
    before = ("scores", *(one.name for one in corpus))
    draws = setting.steering.draws or DRAWS
    return score_steps(
        setting,
        *corpus,
        Step("rated", "documents rated by the heads", _rate, work, before),
        Step("rated-random", "documents rated by random heads", _rate_random, work * draws, before),
    )


def _corpus(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    settings = {"documents": DOCUMENTS, "bilingual": BILINGUAL, "seed": setting.seed}

    def write(run: Run) -> Mapping[str, Any]:
        drawn = list(islice(corpus_documents("test", setting.seed, BILINGUAL), DOCUMENTS))
        lines = "".join(f"{dump_json(document.record)}\n" for document in drawn)
        write_bytes(run.path / "corpus.jsonl", lines.encode())
        bilingual = sum(bool(document.to) for document in drawn)
        return {"documents": len(drawn), "bilingual": bilingual}

    return carry_out("reproduce corpus", out, settings, {}, write)


def _rate(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    return encode(use_rate(_rating(setting), out, progress))


def _rate_random(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    """The same documents rated by as many random heads: what the best of them carry."""
    rank, k = ranked_by(setting), top(setting)
    chosen = resolve_heads(str(setting.at("scores")), k, setting.geometry, by=rank)
    drawn = draw_heads(chosen, setting.steering.draws or DRAWS, setting.seed)
    sets = [",".join(map(str, one.heads)) for one in drawn]
    settings = {"heads": sets, "share": _share(setting), "rating": _rating(setting)}

    def rate(run: Run) -> Mapping[str, Any]:
        draws = []
        for number, heads in enumerate(sets):
            place = run.path / f"draw-{number:02d}"
            rated = encode(use_rate(replace(_rating(setting), heads=heads), place, progress))
            best = best_documents(_documents(place), _share(setting))
            means = {name: one["mean"] for name, one in rated["languages"].items()}
            kinds = {name: [one.get("kind") for one in own] for name, own in best.items()}
            draws.append({"heads": heads, "means": means, "kinds": kinds})
        return {"draws": draws}

    return carry_out("reproduce rated", out, settings, {}, rate)


def _rating(setting: Setting) -> UseRate:
    own = setting.data.documents
    return UseRate(
        own or (str(setting.at("corpus") / "corpus.jsonl"),),
        str(setting.at("scores")),
        top(setting),
        setting.model,
        limit=setting.steering.limit or (LIMIT if own else None),
        rating=Rating(batch_tokens=setting.batch_tokens),
        rank=ranked_by(setting),
    )


def _share(setting: Setting) -> float:
    """The share of each language's documents that is selected: the paper's, where there are many
    heads."""
    theirs = published_selection()
    return theirs if theirs is not None and not setting.small else BILINGUAL


def _documents(place: Path) -> list[Mapping[str, Any]]:
    return [
        one for file in sorted((place / "documents").rglob("*.jsonl")) for one in lines_of(file)
    ]


def best_documents(
    rows: Sequence[Mapping[str, Any]], share: float
) -> dict[str, list[Mapping[str, Any]]]:
    """Of every language the share of its documents with the highest scores, at least one."""
    languages: dict[str, list[Mapping[str, Any]]] = {}
    for one in rows:
        if one.get("score") is not None:
            languages.setdefault(str(one.get("language") or ""), []).append(one)
    return {
        name: heapq.nlargest(max(1, round(share * len(own))), own, key=lambda one: one["score"])
        for name, own in sorted(languages.items())
    }


def _tell_rated(setting: Setting) -> Findings:
    found = setting.result("rated")
    if found is None:
        return Findings()
    rows = _documents(setting.at("rated"))
    theirs, share = published_selection(), _share(setting)
    best = best_documents(rows, share)
    random = (setting.result("rated-random") or {"draws": []})["draws"]
    known = any("kind" in one for one in rows)
    table = Table(
        "Documents by language",
        (
            "documents",
            "mean score",
            "by random heads",
            "selected",
            "selected with translation %",
            "by random heads %",
            "of all %",
        ),
        tuple(
            _language(name, one, best.get(name, []), rows, random, known)
            for name, one in found["languages"].items()
        ),
        note=sentence(
            f"Selected: the {share:.1%} of each language with the highest scores (nats a token "
            "that the heads are worth).",
            f"That is the share of documents that were made with a translation; the paper selects "
            f"{theirs:.1%}."
            if theirs is not None and share != theirs and not setting.data.documents
            else "",
            f"Random heads: the mean of {len(random)} sets of as many of the other heads."
            if random
            else "",
        ),
    )
    examples = Table(
        "The document of each language with the highest score",
        ("score", "text"),
        tuple(
            Row(name, (cell(one["score"]), text(_cut(str(one["text"])))))
            for name, own in best.items()
            for one in own[:1]
        ),
        note="The paper's examples are mostly texts with their translation behind them, in "
        "seven languages.",
    )
    said, sure = rated_words(best, rows, random)
    return Findings((table, examples), (), said, sure, rated_claim(best, rows, random))


def rated_claim(
    best: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    random: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """That the texts which need the heads carry translations; empty where no text says so.

    It holds where the interval of their share lies above that of all texts, and p over random
    heads is at most 0.05.
    """
    chosen = [one for own in best.values() for one in own]
    if not chosen or not any("kind" in one for one in rows):
        return {}
    (share, low, high), every = _bilingual(chosen), _bilingual(rows)[0]
    holds = True if low > every else False if high < every else None
    by = f"{share:.0%} of the {len(chosen)} selected carry one, {every:.0%} of all"
    decides = "" if holds is not None else "more texts"
    shares = random_shares(random)
    if shares:
        p = p_draws(-share, [-one for one in shares])
        by += f", {fmean(shares):.0%} of those that random heads select"
        by += f"; p over {len(shares)} draws {p:.2g}"
    if holds and (not shares or p > LEVEL):
        holds, decides = None, "random heads beside" if not shares else "more random sets"
    name = "texts that need the heads carry translations"
    tested = "an interval of a share and random sets"
    return with_claims(Claim(name, holds, by, tested, decides=decides))


def random_shares(random: Sequence[Mapping[str, Any]]) -> list[float]:
    """Of the documents that each random set of heads selects, the share with a translation."""
    kinds = [[kind for own in one["kinds"].values() for kind in own] for one in random]
    return [own.count("bilingual") / len(own) for own in kinds if own]


def _language(
    name: str,
    about: Mapping[str, Any],
    best: Sequence[Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    random: Sequence[Mapping[str, Any]],
    known: bool,
) -> Row:
    means = [one["means"][name] for one in random]
    kinds = [kind for one in random for kind in one["kinds"].get(name, ())]
    own = [one for one in rows if str(one.get("language") or "") == name]
    why = "the data do not say"
    chosen, low, high = _bilingual(best) if known and best else (None, None, None)
    every = _bilingual(own)[0] if known and own else None
    return Row(
        name or "-",
        (
            cell(about["documents"], digits=0),
            cell(about["mean"], about["low"], about["high"]),
            cell(fmean(means) if means else None),
            cell(len(best), digits=0),
            hundred(chosen, low, high, why=why),
            hundred(
                kinds.count("bilingual") / len(kinds) if known and kinds else None,
                why=NOT_RUN if known else why,
            ),
            hundred(every, why=why),
        ),
    )


def _bilingual(rows: Sequence[Mapping[str, Any]]) -> tuple[float, float, float]:
    number = sum(one.get("kind") == "bilingual" for one in rows)
    low, high = wilson_interval(number, len(rows))
    return number / len(rows), low, high


def _cut(words: str) -> str:
    plain = " / ".join(words.splitlines())
    return plain if len(plain) <= SHOWN else f"{plain[: SHOWN - 1].rstrip()}…"


def rated_words(
    best: Mapping[str, Sequence[Mapping[str, Any]]],
    rows: Sequence[Mapping[str, Any]],
    random: Sequence[Mapping[str, Any]],
) -> tuple[str, str]:
    """Whether the selected documents carry translations more often than all do."""
    chosen = [one for own in best.values() for one in own]
    if not chosen:
        return "", ""
    if not any("kind" in one for one in rows):
        return (
            f"{len(chosen)} documents were selected; whether they carry translations the data do "
            "not say.",
            "The examples are for reading; nothing was counted.",
        )
    share, low, high = _bilingual(chosen)
    every = _bilingual(rows)[0]
    said = (
        f"{share:.0%} of {len(chosen)} selected documents carry their translation, and {every:.0%} "
        f"of all {len(rows)}."
    )
    shares = random_shares(random)
    if shares:
        said += (
            f" Of those that {len(shares)} sets of random heads select {fmean(shares):.0%} do on "
            f"average, {max(shares):.0%} at most."
        )
    return said, f"The share among the selected lies between {low:.0%} and {high:.0%}."


RATED = Experiment(
    "table-2", ("Table 2", "Table 3"), "Which texts need these heads", _rating_steps, _tell_rated
)
