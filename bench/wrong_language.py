"""Whether heads that look at a language's name tell of outputs in another language, as JSON.

    python bench/wrong_language.py MODEL --data FOLDER --work FOLDER --out FILE

FOLDER has a TSV a language, `en-XX.tsv`, with columns source and target. The languages, by the
alphabet, are two halves in turn. On each half heads are found (`headscope find language-name`) and
a way to warn is chosen; both are judged on the other half, on other sentences, each asked for in
one language. An output is wrong if it is identified as another language or as none.

Warning, from what the model makes of the prompt's last token: little attention to the name
(`attention`); the chosen heads' outputs along the mean of prompts for the language minus that of
all prompts (`own`), or along right minus wrong ones of the half they were found on (`right`). Each
is the AUROC over all prompts and over pairs of prompts for one language (`within`), beside the
probability that the first token is of the language (by the first tokens of other references), and
beside as many random heads, of any layer and of the same ones, and all heads.

Repair (`--repair`): the chosen heads' gates at each of `DOSES`, and their mean output in right
answers to other prompts for the language. What does most on one half is judged on the other, beside
random sets: wrong outputs, and chrF++ of those that were right and that were wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine, tell
from numpy.typing import NDArray
from timing import say

import headscope
from headscope.data.languages import same_language
from headscope.data.pairs import PairFile, SentencePair
from headscope.evidence.runner import prompts_of
from headscope.find.language_name_scores import (
    LanguageName,
    language_name,
    last_tokens,
    named_prompts,
)
from headscope.heads import Gate, Head, HeadSet
from headscope.heads.draws import draw_sets
from headscope.lm import LanguageModel
from headscope.lm.generation import GenerateConfig
from headscope.lm.replacement import Mean, head_means
from headscope.measure.identify import identifier_name, identify
from headscope.measure.metrics import sentence_chrf
from headscope.measure.ranking import auc

CONTROLS = ("random", "same layers")
DOSES = (1.5, 2.0, 3.0, 5.0)
#: Sentences of each language that heads are found on, tokens of an output, words of a sentence.
FOUND_ON, NEW, WORDS = 6, 32, (4, 24)
#: A head is chosen whose patch moves the answer so much of the way more than its control.
CLEAR = 0.1
RESAMPLES, MEAN, SHUFFLES = 2000, "mean output", 100
Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Language:
    """The sentences of one language, in three parts; `read` is what was read of the tested ones."""

    code: str
    find: PairFile
    means: PairFile
    tested: PairFile


@dataclass(frozen=True, eq=False)
class Read:
    """What the model made of N tested prompts: outputs float32 (N, L, W, D), attention (N, L, W),
    the texts and the languages they are in, `wrong` bool (N,), the chance (N,) that the first token
    is of the language; and the mean output (L, W, D) over other prompts for it."""

    outputs: Array
    attention: Array
    texts: tuple[str, ...]
    wrong: Array
    first: Array
    mean: Array


def languages_of(folder: Path, sentences: int, means: int, shots: int) -> list[Language]:
    """Other sentences for each language, so that prompts are independent."""
    found = []
    for number, path in enumerate(sorted(folder.glob("en-*.tsv"))):
        code = path.stem.split("-", 1)[1]
        _, *rows = (line.split("\t") for line in path.read_text("utf-8").splitlines())
        fit = [row for row in rows if WORDS[0] <= len(row[0].split()) <= WORDS[1]]
        sizes = (shots, FOUND_ON, means, sentences)
        start, parts = number * sum(sizes), []
        for size in sizes:
            some = fit[start : start + size]
            parts.append(tuple(SentencePair(str(start + at), *row) for at, row in enumerate(some)))
            start += size
        if len(parts[-1]) < sentences:
            raise SystemExit(f"{path}: too few sentences for {number + 1} languages")
        files = (PairFile(part, "en", code, path.name, "", parts[0]) for part in parts[1:])
        found.append(Language(code, *files))
    return found


def first_tokens(
    lm: LanguageModel, folder: Path, languages: Sequence[Language], joint: str
) -> Array:
    """How often each token is the first of a sentence, (languages and English, V), by other
    references than those of the tested sentences."""
    used = {pair.source for language in languages for pair in language.tested.pairs}
    counts = np.zeros((len(languages) + 1, lm.vocabulary))
    for number, language in enumerate(languages):
        path = folder / f"en-{language.code}.tsv"
        rows = [line.split("\t") for line in path.read_text("utf-8").splitlines()[1:]]
        for source, target in rows:
            if source not in used:
                for at, text in ((number, target), (len(languages), source)):
                    counts[at, lm.encode(joint + text, special=False)[0]] += 1
    return counts / counts.sum(axis=1, keepdims=True)


def read_all(
    lm: LanguageModel, languages: Sequence[Language], folder: Path, work: Path
) -> dict[str, Read]:
    """What the model makes of every prompt; kept language by language."""
    found: dict[str, Read] = {}
    shares: Array | None = None
    for number, language in enumerate(languages):
        place = work / f"{language.code}.npz"
        if not place.exists():
            prompts = prompts_for(lm, language.tested)
            if shares is None:
                shares = first_tokens(lm, folder, languages, prompts[0].joint)
            tested, others = (
                last_tokens(lm, named_prompts(lm, pairs, LanguageName().template, None))
                for pairs in (language.tested, language.means)
            )
            first = np.concatenate(
                [
                    lm.next_logits([lm.encode(each.text, each.special)]).softmax(-1).numpy()
                    for each in prompts
                ]
            )
            every = np.maximum(shares.sum(axis=0), 1e-12)
            texts = write(lm, prompts)
            known = [code or "" for code in identify(texts)]
            np.savez(
                place,
                outputs=tested.outputs.float().numpy().astype(np.float16),
                attention=tested.attention,
                texts=np.array(texts),
                known=np.array(known),
                first=first @ (shares[number] / every),
                mean=others.outputs.float().numpy().mean(axis=0),
            )
        kept = np.load(place, allow_pickle=False)
        known = kept["known"].tolist()
        wrong = np.array([not code or not same_language(code, language.code) for code in known])
        say(f"{language.code}: {int(wrong.sum())} of {len(wrong)} wrong")
        found[language.code] = Read(
            kept["outputs"].astype(np.float32), kept["attention"], tuple(kept["texts"].tolist()),
            wrong, kept["first"], kept["mean"],
        )  # fmt: skip
    return found


def prompts_for(lm: LanguageModel, pairs: PairFile) -> list[Any]:
    return prompts_of(lm, pairs, LanguageName().template, None)


def write(lm: LanguageModel, prompts: Sequence[Any], **more: Any) -> list[str]:
    made = lm.generate(
        [each.text for each in prompts],
        GenerateConfig(max_new_tokens=NEW),
        special=prompts[0].special,
        **more,
    )
    return [each.text for each in made]


def directions(read: Mapping[str, Read], codes: Sequence[str]) -> Array:
    """Right minus wrong outputs (L, W, D) of the prompts for some languages, the mean of each
    language aside; 0 where a language has not both."""
    sums, number = 0.0, 0
    for code in codes:
        own = read[code]
        if own.wrong.any() and not own.wrong.all():
            weight = min(int(own.wrong.sum()), int((~own.wrong).sum()))
            apart = own.outputs[~own.wrong].mean(axis=0) - own.outputs[own.wrong].mean(axis=0)
            sums, number = sums + weight * apart, number + weight
    return np.asarray(sums / max(number, 1)) + np.zeros_like(read[codes[0]].mean)


def warnings(
    read: Mapping[str, Read], learnt: Callable[[str], Array]
) -> Callable[[Sequence[Head]], dict[str, dict[str, Array]]]:
    """What warns of each prompt, by way and language, of some heads: high where it warns.

    `learnt` gives the direction of right minus wrong that a language is judged by.
    """
    centre = np.mean([own.mean for own in read.values()], axis=0)
    along: dict[str, dict[str, Array]] = {"attention": {}, "own": {}, "right": {}}
    for code, own in read.items():
        along["attention"][code] = own.attention
        ahead = own.mean - centre
        sizes = np.maximum((ahead**2).sum(axis=-1), 1e-12)
        along["own"][code] = ((own.outputs - centre) * ahead).sum(axis=-1) / sizes
        along["right"][code] = ((own.outputs - own.mean) * learnt(code)).sum(axis=-1)

    def of(heads: Sequence[Head]) -> dict[str, dict[str, Array]]:
        layers, numbers = np.array([(head.layer, head.head) for head in heads]).T
        return {
            way: {code: -values[:, layers, numbers].mean(axis=1) for code, values in by.items()}
            for way, by in along.items()
        }

    return of


def aucs(
    score: Mapping[str, Array], wrong: Mapping[str, Array], codes: Sequence[str], draws: int = 0
) -> Array:
    """AUROC over all prompts, and over pairs of prompts for one language, (2, 1 + draws): of the
    prompts as they are and of as many drawn with replacement within each language."""
    rng, found = np.random.default_rng(0), np.full((2, 1 + draws), np.nan)
    sizes = {code: len(wrong[code]) for code in codes}
    for draw in range(1 + draws):
        some = {
            code: rng.integers(size, size=size) if draw else np.arange(size)
            for code, size in sizes.items()
        }
        scores = {code: score[code][some[code]] for code in codes}
        labels = {code: wrong[code][some[code]] for code in codes}
        every, label = np.concatenate([*scores.values()]), np.concatenate([*labels.values()])
        found[0, draw] = auc(every[label], every[~label])
        pairs = {code: int(own.sum()) * int((~own).sum()) for code, own in labels.items()}
        if sum(pairs.values()):
            found[1, draw] = sum(
                pairs[code] * auc(scores[code][labels[code]], scores[code][~labels[code]])
                for code in codes
                if pairs[code]
            ) / sum(pairs.values())
    return found


def covering(score: Mapping[str, Array], wrong: Mapping[str, Array], codes: Sequence[str]) -> int:
    """Of `SHUFFLES` in which each language's labels are shuffled, how many intervals of the AUROC
    within languages hold 0.5."""
    rng, held = np.random.default_rng(1), 0
    for _ in range(SHUFFLES):
        labels = {code: rng.permutation(wrong[code]) for code in codes}
        within = aucs(score, labels, codes, 500)[1, 1:]
        low, high = np.nanquantile(within, (0.025, 0.975))
        held += bool(low <= 0.5 <= high)
    return held


def told(values: Array) -> list[float]:
    """A number and its 95 % interval."""
    ends = np.nanquantile(values[1:], (0.025, 0.975)) if len(values) > 1 else ()
    return [round(float(value), 4) for value in (values[0], *ends)]


def warning(
    lm: LanguageModel,
    read: Mapping[str, Read],
    found_on: Sequence[str],
    judged: Sequence[str],
    chosen: HeadSet,
    draws: int,
) -> dict[str, Any]:
    """How well the chosen heads warn in the languages judged, beside other heads."""
    wrong = {code: own.wrong for code, own in read.items()}
    ways = warnings(read, lambda code: directions(read, [c for c in found_on if c != code]))
    inside = {way: aucs(score, wrong, found_on)[1, 0] for way, score in ways(chosen.heads).items()}
    way = max(inside, key=lambda name: np.nan_to_num(inside[name]))
    rows: dict[str, Any] = {}
    kinds = ("all prompts", "within")
    first = aucs({c: -own.first for c, own in read.items()}, wrong, judged, RESAMPLES)
    made = {name: aucs(s, wrong, judged, RESAMPLES) for name, s in ways(chosen.heads).items()}
    every = {name: aucs(s, wrong, judged) for name, s in ways([*lm.geometry.heads()]).items()}
    alone = {
        kind: [
            {name: aucs(score, wrong, judged)[:, 0] for name, score in ways(heads.heads).items()}
            for heads in draw_sets(chosen, draws, 0, kind)
        ]
        for kind in CONTROLS
    }
    for number, kind in enumerate(kinds):
        rows[kind] = {"first token": told(first[number])} | {
            name: {
                "selected": told(made[name][number]),
                "minus first token": told(made[name][number] - first[number]),
                "all heads": told(every[name][number]),
            }
            | {
                control: {
                    "mean, least, most": [
                        round(float(value(sets)), 4) for value in (np.mean, np.min, np.max)
                    ],
                    "p over draws": (1 + int((sets >= made[name][number, 0]).sum()))
                    / (1 + len(sets)),
                    "draws": len(sets),
                }
                for control, each in alone.items()
                if len(sets := np.array([one[name][number] for one in each]))
            }
            for name in made
        }
    return {
        "prompts": sum(len(wrong[code]) for code in judged),
        "wrong": {code: int(wrong[code].sum()) for code in judged},
        "way chosen on the other half": way,
        "intervals within that hold 0.5, labels shuffled": {
            name: covering(score, wrong, judged) for name, score in ways(chosen.heads).items()
        },
        "shuffles": SHUFFLES,
        "within, on that half": {name: round(float(value), 4) for name, value in inside.items()},
        "auroc": rows,
    }


def repair(
    lm: LanguageModel,
    languages: Mapping[str, Language],
    read: Mapping[str, Read],
    codes: tuple[Sequence[str], Sequence[str]],
    chosen: HeadSet,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """Whether stronger heads, or their mean output in right answers, mend wrong outputs; the way is
    chosen on the half that heads were found on and judged on the other, beside random heads in the
    same way. Of each language at most `given.repair` wrong and as many right outputs."""

    def changed(half: Sequence[str], sets: Sequence[HeadSet], way: Any) -> Array:
        """Of each set and prompt whether the output was wrong, whether it is, and its chrF++ before
        and now, (sets, prompts, 4); kept language by language."""
        tables = []
        for code in half:
            asked = json.dumps([way, given.repair, [heads.keys for heads in sets]])
            place = given.work / f"mended-{code}-{sha256(asked.encode()).hexdigest()[:12]}.npy"
            if place.exists():
                tables.append(np.load(place))
                continue
            rows = []
            wrong, pairs = read[code].wrong, languages[code].tested.pairs
            some = [*np.flatnonzero(wrong)[: given.repair], *np.flatnonzero(~wrong)[: given.repair]]
            prompts = prompts_for(lm, languages[code].tested)
            replacement = right_means(lm, languages[code], given.work) if way == MEAN else None
            if way == MEAN and replacement is None:
                way_here: Any = 1.0  # no answer to others is right
            else:
                way_here = 0.0 if way == MEAN else way
            gates = [
                Gate.of(lm.geometry, dict.fromkeys(heads.heads, way_here))
                for heads in sets
                for _ in some
            ]
            texts = write(
                lm, [prompts[at] for at in some] * len(sets), gates=gates, replacement=replacement
            )
            references = [pairs[at].target for at in some]
            now = sentence_chrf(texts, references * len(sets))
            before = sentence_chrf([read[code].texts[at] for at in some], references)
            for number, known in enumerate(identify(texts)):
                at = number % len(some)
                is_wrong = known is None or not same_language(known, code)
                rows.append(
                    (number // len(some), wrong[some[at]], is_wrong, before[at], now[number])
                )
            say(f"{code}, {way}: {len(sets)} sets of heads, {len(some)} prompts")
            tables.append(np.array(rows, dtype=np.float64))
            np.save(place, tables[-1])
        table = np.concatenate(tables)
        return np.stack([table[table[:, 0] == number, 1:] for number in range(len(sets))])

    def shares(of_set: Array) -> tuple[float, float, float, float]:
        """Of wrong outputs how many are right now, of right ones wrong, and chrF++ gained by the
        right and by the wrong ones: what is in the right language need not be a translation."""
        was, gained = of_set[:, 0] > 0, of_set[:, 3] - of_set[:, 2]
        still = of_set[:, 1]
        return 1 - still[was].mean(), still[~was].mean(), gained[~was].mean(), gained[was].mean()

    def with_interval(of_set: Array) -> list[list[float]]:
        rng, was = np.random.default_rng(0), of_set[:, 0] > 0
        drawn = [shares(of_set)]
        for _ in range(RESAMPLES):
            parts = (of_set[was], of_set[~was])
            again = [part[rng.integers(len(part), size=len(part))] for part in parts]
            drawn.append(shares(np.concatenate(again)))
        return [told(column) for column in np.array(drawn).T]

    found_on, judged = codes
    tried = {way: changed(found_on, [chosen], way)[0] for way in (*DOSES, MEAN)}
    names = (
        "wrong that are right",
        "right that are wrong",
        "chrF++ gained by right",
        "chrF++ gained by wrong",
    )
    way = min(tried, key=lambda way: float(tried[way][:, 1].mean()))
    random = draw_sets(chosen, given.draws, 0, "random")
    beside = [HeadSet.of(lm.geometry, heads) for heads in given.beside or ()]
    made = changed(judged, [chosen, *random, *beside], way)
    drawn = np.array([shares(of_set) for of_set in made[1 : 1 + len(random)]])
    mended = shares(made[0])[0]
    return {
        "tried on the half that heads were found on": {
            str(way): dict(zip(names, with_interval(table), strict=True))
            for way, table in tried.items()
        },
        "way": way,
        "wrong": int(made[0, :, 0].sum()),
        "right": int((1 - made[0, :, 0]).sum()),
        "selected": dict(zip(names, with_interval(made[0]), strict=True)),
        "random": {
            name: [round(float(value(column)), 4) for value in (np.mean, np.min, np.max)]
            for name, column in zip(names, drawn.T, strict=True)
        },
        "p over draws": (1 + int((drawn[:, 0] >= mended).sum())) / (1 + len(drawn)),
        "draws": len(drawn),
        "wrong that are right, by random set": {
            ", ".join(heads.keys): round(share, 4)
            for heads, share in zip(random, drawn[:, 0].tolist(), strict=True)
        },
        "beside": {
            ", ".join(heads.keys): dict(zip(names, with_interval(table), strict=True))
            for heads, table in zip(beside, made[1 + len(random) :], strict=True)
        },
    }


def right_means(lm: LanguageModel, language: Language, work: Path) -> Mean | None:
    """What every head writes in right answers to other prompts for a language, the mean over their
    tokens; None where no answer is right."""
    place = work / f"means-{language.code}.npy"
    if not place.exists():
        prompts = prompts_for(lm, language.means)
        made = write(lm, prompts)
        rows = [
            (lm.encode(prompt.text, prompt.special), lm.encode(text, special=False))
            for prompt, text, known in zip(prompts, made, identify(made), strict=True)
            if known is not None and same_language(known, language.code)
        ]
        means = np.zeros(0)
        if rows:
            whole = [before + after for before, after in rows]
            means = head_means(lm, whole, [len(before) for before, _ in rows])[-1]
        np.save(place, means)
    means = np.load(place)
    return Mean(np.stack([means] * 3)) if means.size else None


def choose(
    lm: LanguageModel, languages: Sequence[Language], place: Path, k: int | None
) -> tuple[HeadSet, dict[str, Any]]:
    """The heads whose output moves the answer to another of these languages, clearly or the `k`
    highest, and their numbers."""
    if not place.exists():
        scores = language_name(lm, {f"en-{each.code}": each.find for each in languages})
        columns = {"score": scores.values, "low": scores.low, "high": scores.high, **scores.extra}
        numbers = {
            head.key: {
                name: round(float(column[head.layer, head.head]), 4)
                for name, column in columns.items()
            }
            for head in lm.geometry.heads()
        }
        place.write_text(json.dumps(numbers))
    numbers = json.loads(place.read_text())
    above = {key: own["score"] - own["chance"] for key, own in numbers.items()}
    best = sorted(above, key=lambda key: -above[key])
    clear = [key for key in best if above[key] > CLEAR]
    chosen = best[:k] if k else clear or best[:1]
    return HeadSet.of(lm.geometry, chosen), {key: numbers[key] for key in best[:8]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=40, help="of a language; 0: heads alone")
    parser.add_argument("--halves", type=int, default=2, help="that heads are found on")
    parser.add_argument("--k", type=int, help="highest heads; else those clearly above chance")
    parser.add_argument("--means", type=int, default=20)
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--draws", type=int, default=39)
    parser.add_argument("--repair", type=int, default=0, help="prompts of a language, of each kind")
    parser.add_argument("--beside", action="append", help="other heads to mend by; repeatable")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before = machine("cpu")
    given.work.mkdir(parents=True, exist_ok=True)
    lm = headscope.load(given.model, dtype=given.dtype)
    languages = languages_of(given.data, given.sentences, given.means, given.shots)
    read = read_all(lm, languages, given.data, given.work) if given.sentences else {}
    halves = languages[0::2], languages[1::2]
    results = []
    for number, (mine, others) in enumerate((halves, halves[::-1])[: given.halves]):
        chosen, numbers = choose(lm, mine, given.work / f"heads-{number}.json", given.k)
        codes = [[each.code for each in half] for half in (mine, others)]
        results.append(
            {
                "found on": codes[0],
                "judged on": codes[1],
                "heads": [head.key for head in chosen.heads],
                "highest": numbers,
            }
        )
        if read:
            results[-1]["warning"] = warning(lm, read, *codes, chosen, given.draws)
        if read and given.repair:
            by_code = {each.code: each for each in languages}
            results[-1]["repair"] = repair(lm, by_code, read, tuple(codes), chosen, given)
    tell(
        {
            "command": "bench/wrong_language.py",
            "machine": before,
            "model": Path(given.model).stem,
            "sentences": given.sentences,
            "shots": given.shots,
            "identifier": identifier_name(),
            "halves": results,
        },
        given.out,
    )


if __name__ == "__main__":
    main()
