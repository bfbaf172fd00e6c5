"""How well TRater finds documents that carry their own translation, on the bundled model, as JSON.

    python bench/trater.py --out bench/results/trater-pocket.json

Of every language's documents (test split) a known share says the same again in another language.
The score of the heads found on the dev split stands beside the same score of random heads, any
and of the same layers, and beside plain rankers: the loss by itself, either sign; the length; a
line break; and the share of letters in sentences that are identified as another language. AUC and
precision at the true share have bootstrap intervals. Then variants in place of the translations:
only the first sentence translated, the same text again, another text of another language, and the
document itself on two lines. The losses are kept in --runs, and a second run goes on there.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from machine import machine, tell

import headscope
from headscope.evidence.controls import DEFAULT, sets_of
from headscope.heads import HeadSet, resolve_heads
from headscope.heads.store import write_bytes
from headscope.lm import LanguageModel
from headscope.measure.identify import identifier_name, identify, same_language
from headscope.measure.ranking import auc, ranking
from headscope.pocket.mixture import (
    BILINGUAL_SHARE,
    SENTENCES,
    CorpusDocument,
    corpus_documents,
    say,
    topic_sentences,
)
from headscope.pocket.world.languages import CODES
from headscope.studies.bars import progress
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.pairs import PairsChoice
from headscope.use.rating import Rated, rate_texts

SHARE = "15%"
SENTENCE = re.compile(r"[^.!?\n]+[.!?]*")
Losses = list[tuple[float, float, int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=1000, help="of each language")
    parser.add_argument("--share", type=float, default=BILINGUAL_SHARE, help="with a translation")
    parser.add_argument("--languages", nargs="+", default=list(CODES))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--k", type=int, nargs="*", default=[5, 10, 20, 30], help="besides 15 %%")
    parser.add_argument("--bootstrap", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--heads", help="without it found on the dev split, all directions")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-trater"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    lm = headscope.load("pocket", device="cpu")
    with progress() as update:
        spec = given.heads
        if spec is None:
            config = FindTranslation(pairs=PairsChoice(pair=("all",)))
            spec = str(find_translation(config, given.runs / "find", update).run)
        sets = {f"found {SHARE}": resolve_heads(spec, SHARE, lm.geometry, by="score")}
        chosen = sets[f"found {SHARE}"]
        for control in DEFAULT:
            drawn = sets_of(control, chosen, given.draws, given.seed)
            sets |= {f"{control} {number}": heads for number, heads in enumerate(drawn)}
        sets |= {f"found {k}": resolve_heads(spec, k, lm.geometry, by="score") for k in given.k}
        corpora = {code: documents(given, code) for code in given.languages}
        told: dict[str, Callable[[int, int], None]] = {}
        losses: dict[str, dict[str, Losses]] = {code: {} for code in corpora}
        # All languages of one set of heads before the next set, the found ones first.
        for name, heads in sets.items():
            for code, kinds in corpora.items():
                # The variants show what the found heads are blind to; draws need the main part.
                texts = [t for kind, some in kinds.items() if kind in needed(name) for t in some]
                title = f"{name} on {code}"
                told[title] = lambda done, total, title=title: update(title, done, total)
                losses[code][name] = rated(lm, texts, heads, given.runs, told[title])
    tell(
        {
            "command": "bench/trater.py",
            "machine": before,
            "documents": given.documents,
            "share": given.share,
            "seed": given.seed,
            "identifier": identifier_name(),
            "heads": {name: ",".join(heads.keys) for name, heads in sets.items()},
            "languages": {
                code: figures(code, kinds, losses[code], given) for code, kinds in corpora.items()
            },
        },
        given.out,
    )


def needed(name: str) -> tuple[str, ...]:
    """The kinds of documents that a set of heads is tried on."""
    main = ("bilingual", "monolingual")
    return (*main, "first", "repeated", "unrelated", "lines") if name == f"found {SHARE}" else main


def documents(given: argparse.Namespace, code: str) -> dict[str, list[str]]:
    """The texts of one language by kind: the corpus, then as many variants as translations."""
    wanted = {"bilingual": max(1, round(given.share * given.documents))}
    wanted["monolingual"] = given.documents - wanted["bilingual"]
    found: dict[str, list[str]] = {kind: [] for kind in wanted}
    stream = corpus_documents("test", given.seed, given.share, (code,))
    while any(len(found[kind]) < count for kind, count in wanted.items()):
        record: CorpusDocument = next(stream)
        if len(found[record.kind]) < wanted[record.kind]:
            found[record.kind].append(record.text)
    return found | variants(code, wanted["bilingual"], given.seed)


def variants(code: str, count: int, seed: int) -> dict[str, list[str]]:
    """Documents of as many sentences as those of the corpus that only look like translations."""
    rng = random.Random(f"variants {code} {seed}")
    found: dict[str, list[str]] = {"first": [], "repeated": [], "unrelated": [], "lines": []}
    for _ in range(count):
        size, to = (
            rng.randint(*SENTENCES),
            rng.choice([target for target in CODES if target != code]),
        )
        said = topic_sentences(rng, "test", 2 * size - 1)
        own = " ".join(say(sentence, code) for sentence in said)
        found["first"].append(f"{own}\n{say(said[0], to)}")
        half = " ".join(say(sentence, code) for sentence in said[:size])
        found["repeated"].append(f"{half}\n{half}")
        other = topic_sentences(rng, "test", size)
        found["unrelated"].append(f"{half}\n" + " ".join(say(sentence, to) for sentence in other))
        same = topic_sentences(rng, "test", 2 * size)
        lines = (same[:size], same[size:])
        found["lines"].append("\n".join(" ".join(say(s, code) for s in some) for some in lines))
    return found


def rated(
    lm: LanguageModel,
    texts: Sequence[str],
    heads: HeadSet,
    runs: Path,
    told: Callable[[int, int], None],
) -> Losses:
    """Both losses and the predicted tokens of every text, computed once for the same model."""
    said = json.dumps([lm.digest, ",".join(heads.keys), *texts])
    file = runs / "losses" / f"{hashlib.sha256(said.encode()).hexdigest()[:16]}.json"
    if file.is_file():
        kept: Losses = json.loads(file.read_bytes())
        return kept
    found: Losses = []
    for text, rated in zip(
        texts, rate_texts(lm, texts, heads.removed(), progress=told), strict=True
    ):
        if not isinstance(rated, Rated):
            raise SystemExit(f"{rated.reason}: {text!r}")
        found.append((rated.nll_full, rated.nll_removed, rated.tokens))
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, json.dumps(found).encode())
    return found


def other_language(text: str, code: str) -> float:
    """The share of a text's letters that stand in sentences identified as another language."""
    parts = [part.strip() for part in SENTENCE.findall(text) if part.strip()]
    said = identify(parts)
    sizes = [sum(c.isalpha() for c in part) for part in parts]
    there = zip(sizes, said, strict=True)
    other = sum(n for n, guess in there if guess is not None and not same_language(guess, code))
    return other / max(1, sum(sizes))


def figures(
    code: str,
    kinds: Mapping[str, list[str]],
    losses: Mapping[str, Losses],
    given: argparse.Namespace,
) -> dict[str, Any]:
    """AUC and precision of every ranker of one language, and what the variants score."""

    def of(name: str, value: Callable[[tuple[float, float, int]], float]) -> dict[str, list[float]]:
        rest = iter(losses[name])
        return {k: [value(row) for row in islice(rest, len(kinds[k]))] for k in needed(name)}

    found = f"found {SHARE}"
    rankers = {
        name: of(name, lambda text_losses: text_losses[1] - text_losses[0]) for name in losses
    } | {
        "nll_full, high": of(found, lambda text_losses: text_losses[0]),
        "nll_full, low": of(found, lambda text_losses: -text_losses[0]),
        "tokens, high": of(found, lambda text_losses: text_losses[2]),
        "another language": {
            kind: [other_language(text, code) for text in texts] for kind, texts in kinds.items()
        },
        "line break": {kind: [float("\n" in t) for t in texts] for kind, texts in kinds.items()},
    }  # fmt: skip  # one ranker a line
    share = len(kinds["bilingual"]) / (len(kinds["bilingual"]) + len(kinds["monolingual"]))
    single = {
        name: ranking(
            of_ranker["bilingual"], of_ranker["monolingual"], share, given.bootstrap, given.seed
        )._asdict()
        for name, of_ranker in rankers.items()
    }
    own = single[found]["auc"]
    draws = [
        of_ranker["auc"]
        for name, of_ranker in single.items()
        if name.startswith(("random ", "same layers "))
    ]
    against: dict[str, Any] = {}
    for name in (found, "another language", "line break", "nll_full, low"):
        figures = rankers[name]
        against[name] = {
            kind: {
                "mean": fmean(figures[kind]),
                "auc over monolingual": auc(figures[kind], figures["monolingual"]),
                "auc of bilingual over it": auc(figures["bilingual"], figures[kind]),
            }
            for kind in kinds
        }
    return {
        "bilingual": len(kinds["bilingual"]),
        "monolingual": len(kinds["monolingual"]),
        "tokens": {
            kind: fmean(some)
            for kind, some in of(found, lambda text_losses: text_losses[2]).items()
        },
        "rankers": single,
        "above_best_draw": own - max(draws) if draws else None,
        "variants": against,
    }


if __name__ == "__main__":
    main()
