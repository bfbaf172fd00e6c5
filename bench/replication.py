"""The claims of the papers on chat models of 0.5 and 1.5 billion parameters, step by step.

    python bench/replication.py FOLDER --models DIR --xl-wa DIR --iwslt DIR --ntrex DIR \\
        --alignatt DIR --tasks DIR --xquad DIR --out bench/results/replication.json

DIR of --models holds qwen-0.5b.gguf and qwen-1.5b.gguf. Every step is one command of the package in
a process and a run folder of its own, as in `real_models.py`: what is finished is not run again,
what was killed goes on. What the file of --out has is not run either, also where FOLDER is a new
one, unless a step needs its run. --list tells the steps and their hours, --only names some, --quick
takes a few sentences of everything.
"""

from __future__ import annotations

import argparse
import itertools
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
from machine import machine, write
from real_models import (
    Step,
    mixed_corpus,
    run,
    text_lines,
    tsv_rows,
    turned_pairs,
    write_pairs,
)
from safetensors.numpy import load_file

from headscope.data.words import is_unspaced
from headscope.measure.ranking import auc

#: Directions whose words people linked, and those that a statistical aligner linked.
GOLD = ("en-es", "es-en", "en-ru")
ALIGNED = ("en-de", "de-en", "en-zh", "zh-en")
#: NTREX files by language code.
LANGUAGES = {"en": "eng-US", "zh": "zho-CN", "es": "spa", "de": "deu", "ru": "rus"}
#: Units of a talk's sentence at least, pairs of a direction to find and to test on, and sentences
#: of a document.
SHORTEST, FIND, TEST, SENTENCES = 6, 300, 200, 4
#: Languages of the news that are rated.
RATED = ("en", "de", "zh")
#: Thresholds above which heads are counted.
THRESHOLDS = (0.05, 0.1, 0.15, 0.2)
#: Word tasks of function vectors, and the steps in which a mask is trained.
TASKS, STEPS = ("antonym", "present-past", "english-german"), 200
#: Answers among which a question's right one is, and the task of lm-evaluation-harness.
CHOICES = 4
CHOICE_TASK = """\
task: xquad_en
dataset_path: json
dataset_kwargs: {data_files: {test: xquad_en.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{prompt}}"
doc_to_choice: choices
doc_to_target: answer
metric_list:
  - {metric: acc, aggregation: mean, higher_is_better: true}
"""
#: Heads of the large model that look at the name of the language that is asked for.
NAMED = "10.10,16.9,21.2,22.6"
#: Ways in which a share of heads can be counted, on the same sentences.
WAYS = {
    "eflomal": "--aligner eflomal",
    "no-chat": "--no-chat",
    "bare": '--no-chat --template "{source}\\n"',
    "wordy": '--template "Please translate the following text into {target_language}, and write '
    'nothing else.\\n\\n{source}"',
    "source": "--scope source",
    "unlike": "--skip-identical",
    "greedy": "--decode greedy",
}


@dataclass(frozen=True)
class Timed:
    """A step and the hours that it takes on two cores, reckoned."""

    step: Step
    hours: float


def steps(quick: bool) -> Iterator[Timed]:
    """All steps in the order in which they need each other; the small model first."""
    few = 10 if quick else None
    for size, slower in (("0.5b", 1), ("1.5b", 3)):
        yield from _alignment_heads(size, slower, few)
    yield from _papers(quick)


def _alignment_heads(size: str, slower: int, few: int | None) -> Iterator[Timed]:
    model, small = f"qwen-{size}", size == "0.5b"

    def step(name: str, arguments: str, hours: float) -> Timed:
        return Timed(Step(f"{size}-{name}", model, arguments), hours * slower)

    def score(name: str, pair: str, data: str, more: str = "", limit: int = 200) -> Timed:
        words = f"find translation-score --pair {pair} --data {data} --limit {few or limit} {more}"
        return step(name, words, 0.08 * limit / 200)

    for pair in (*GOLD, *ALIGNED):
        yield score(f"ts-{pair}", pair, f"{{data}}/{pair}.find.tsv")
    if small:
        # What 16 bits change.
        yield score("ts-float32", "en-es", "{data}/en-es.find.tsv", "--dtype float32")
        for way, asked in WAYS.items():
            # Whether the model translates is known from the steps before.
            more = f"{asked} --baseline-examples 2"
            limit = 60 if way == "greedy" else 200
            yield score(f"ts-{way}", "en-es", "{data}/en-es.find.tsv", more, limit)
        for pair in ("en-de", "en-zh"):
            published = f"{{data}}/word_alignments_{pair}.json"
            for way, more in (
                ("llm", ""),
                ("sure", "--min-confidence 0.9"),
                ("same", "--aligner eflomal"),
            ):
                few_tried = f"{more} --baseline-examples 2"
                yield score(f"ts-{way}-{pair}", pair, published, few_tried)
    runs = " ".join(f"{{runs}}/{size}-ts-{pair}" for pair in (*GOLD, *ALIGNED))
    for k in (20, 5, 10, 40, 60):
        yield Timed(Step(f"{size}-overlap-k{k}", "", f"compare overlap {runs} --k {k}"), 0)
    test = "--pair en-es --data {data}/en-es.test.tsv"
    removal = f"verify removal --heads {{runs}}/{size}-ts-en-es {test}"
    for k, draws in ((20, 99), (5, 19), (10, 19), (40, 19), (60, 19)):
        loss = f"--measure loss --limit {few or 25} --draws {3 if few else draws} --k {k}"
        yield step(f"loss-k{k}", f"{removal} {loss}", 0.003 * draws)
    # By the row of the token itself: few heads, in the middle. Are they needed, too?
    for pair in ("en-es", "en-de", "en-zh")[: 3 if small else 1]:
        read = "--query read --baseline-examples 2"
        yield score(f"ts-read-{pair}", pair, f"{{data}}/{pair}.find.tsv", read)
    for way in ("read-en-es", "eflomal")[: 2 if small else 1]:
        other = removal.replace("ts-en-es", f"ts-{way}")
        loss = f"--measure loss --limit {few or 25} --draws {3 if few else 39} --k 20"
        yield step(f"loss-{way}-k20", f"{other} {loss}", 0.4)
    for k in (5, 20, 60) if small else (20,):
        text = f"--limit {few or 30} --draws {2 if few else 9} --k {k}"
        yield step(f"text-k{k}", f"{removal} {text}", 0.3)
    # What is written then, in two target languages of the large model.
    if not small:
        german = removal.replace("en-es", "en-de")
        yield step("text-en-de-k20", f"{german} --limit {few or 20} --draws 9 --k 20", 0.2)
    for name in ("text-k20",) if small else ("text-k20", "text-en-de-k20"):
        failures = f"verify failures {{runs}}/{size}-{name}"
        yield Timed(Step(f"{size}-{name.replace('text', 'failures')}", "", failures), 0)


def _papers(quick: bool) -> Iterator[Timed]:
    """The experiments of the papers on the small model, by the protocols of the public codes."""
    model = "qwen-0.5b"

    def step(name: str, arguments: str, hours: float) -> Timed:
        return Timed(Step(f"0.5b-{name}", model, arguments), hours)

    limit, draws = (4, 2) if quick else (100, 19)
    found, held_out = (
        " ".join(f"--data {code}={{data}}/{code}.{part}.txt" for code in LANGUAGES)
        for part in ("find", "test")
    )
    yield step("lahis", f"find lahis {found} --limit {limit} --general-in 4", 0.25)
    heads, few = "--heads {runs}/0.5b-lahis", f"--limit {max(2, limit // 5)} --draws {draws}"
    yield step("lahis-loss", f"verify perplexity {heads} {held_out} {few} --control random", 1.6)
    for pair in ("en-zh", "en-de"):
        data = f"--pair {pair} --data {{data}}/{pair}.test.tsv"
        yield step(f"lahis-off-target-{pair}", f"verify off-target {heads} {data} {few}", 0.4)
    # None of 19 sets of the same layers happened to hold the head that decides, 17.2.
    more = few.replace(f"--draws {draws}", f"--draws {99 if draws > 2 else draws}")
    yield step("lahis-off-target-en-de-99", f"verify off-target {heads} {data} {more}", 0.4)
    # The head that these sets point to, alone: other sentences, other targets. It looks at the name
    # of the language, as four heads of the large model do (`find language-name`).
    sentences = max(2, limit // 5)
    for pair, much in (("en-de", 2), ("en-es", 1), ("en-zh", 1), ("en-ru", 1)):
        some = f"--pair {pair} --data {{data}}/{pair}.find.tsv --limit"
        alone = f"--heads 17.2 {some} {sentences * much} --draws {(draws + 1) * much - 1}"
        ways = ("", "mean", "resample") if pair == "en-de" else ("",)  # zeros may do harm, too
        for way in ways:
            name, more = (f"-{way}", f" --ablate {way}") if way else ("", "")
            yield step(f"head-17.2-{pair}{name}", f"verify off-target {alone}{more}", 0.1 * much)
        if pair in ("en-de", "en-zh"):
            named = f"verify off-target --heads {NAMED} {some} {sentences} --draws {draws}"
            yield Timed(Step(f"1.5b-heads-of-names-{pair}", "qwen-1.5b", named), 0.2)
    yield step("lahis-transfer", f"verify transfer {heads} --pair en-zh {few}", 0.4)
    gates = "--data {data}/xquad.de.json --language de --train 60 --stop 20 --test 60"
    yield step("lahis-gates", f"find soft-gate {heads}/scores/de --k 20 {gates} --seeds 3", 1.0)
    own = {task: f"--task {{tasks}}/{task}.json" for task in TASKS}
    for pair in ("en-zh", "en-de"):
        # The instruction follows the sentence, as in the public code.
        wording = "--instruction '{input}\\n\\nTranslate into {target}:'"
        own[pair] = f"--pair {pair} --data {{data}}/{pair}.all.tsv {wording}"
    for task, data in own.items():
        asked = f"{data} --answer-end --hold-out-last --system none"
        masks = [f"0.5b-mask-{task}-{seed}" for seed in range(2 if quick else 3)]
        for seed, name in enumerate(masks):
            steps = 60 if quick else STEPS
            mask = f"find mask {asked} --preset small --steps {steps} --seed {seed}"
            yield Timed(Step(name, model, mask), 0.2 if task in TASKS else 0.5)
        runs = [f"{{runs}}/{name}" for name in masks]
        yield Timed(Step(f"0.5b-masks-{task}", "", f"compare masks {' '.join(runs)}"), 0)
        proof = f"verify mask --heads {runs[0]} {asked} --draws {draws}"
        yield Timed(Step(f"0.5b-proof-{task}", model, proof), 0.3)
    # Other tasks, and news of which a tenth has a translation beside it.
    best = "--heads {runs}/0.5b-ts-en-es --k 20"
    answers = f"--task {{data}}/xquad_en.yaml {few}"
    yield step("tasks", f"verify tasks {best} {answers}", 1.0)
    # The large model reads the English texts alone.
    for size, heads_in, some in (("0.5b", (24, 14), 0), ("1.5b", (28, 12), 250)):
        limit_texts = f" --limit {40 if quick else some}" if quick or some else ""
        rated = f"use rate --data {{data}}/corpus.jsonl{limit_texts}"
        sets = {"rate": f"--heads {{runs}}/{size}-ts-en-es --k 20"}
        for draw in range(draws // 2):
            sets[f"rate-random-{draw}"] = f"--heads {_any_heads(draw, *heads_in)}"
        for name, removed in sets.items():
            yield Timed(Step(f"{size}-{name}", f"qwen-{size}", f"{rated} {removed}"), 0.1)
    keys = "reproduce token-alignment-heads --only figure-22 --pairs en-es={data}/en-es.find.tsv"
    yield step("key-tokens", f"{keys} --limit {limit} --draws {draws} --k 20", 0.5)


def _any_heads(draw: int, layers: int, heads: int) -> str:
    """20 random heads of a model, as a list."""
    every = [f"{layer}.{head}" for layer in range(layers) for head in range(heads)]
    return ",".join(random.Random(f"random heads {draw}").sample(every, 20))


def make_data(to: Path, given: argparse.Namespace) -> None:
    """Sentence pairs and documents in the forms that commands read."""
    to.mkdir(parents=True, exist_ok=True)
    for pair in GOLD:
        name = pair if pair.startswith("en") else "-".join(pair.split("-")[::-1])
        for split, part in (("train", "find"), ("test", "test")):
            rows = list(tsv_rows(given.xl_wa / f"{name}.{split}.tsv"))
            rows = turned_pairs(rows) if pair != name else rows
            write_pairs(to / f"{pair}.{part}.tsv", rows)
    for pair in ("en-de", "en-zh"):
        source, target = pair.split("-")
        talks = parquet.read_table(given.iwslt / f"{pair}-test.parquet").column("translation")
        rows = [
            [row[source], row[target]]
            for row in talks.to_pylist()
            if len(row[source].split()) >= SHORTEST and units(row[target]) >= SHORTEST
        ]
        for direction, order in ((pair, 1), ("-".join(pair.split("-")[::-1]), -1)):
            whole, linked = to / f"{direction}.all.tsv", to / f"{direction}.linked.tsv"
            write_pairs(whole, (row[::order] for row in rows))
            align = ["align", "--data", str(whole), "--pair", direction, "--out", str(linked)]
            subprocess.run([sys.executable, "-m", "headscope", *align], check=True)
            names, *made = tsv_rows(linked)
            write_pairs(to / f"{direction}.find.tsv", made[:FIND], names)
            write_pairs(to / f"{direction}.test.tsv", made[FIND : FIND + TEST], names)
        published = f"word_alignments_{pair}.json"
        (to / published).write_bytes((given.alignatt / published).read_bytes())
    ids = [row[-1] for row in tsv_rows(given.ntrex / "DOCUMENT_IDS.tsv")]
    lines = {code: text_lines(given.ntrex / f"{file}.txt") for code, file in LANGUAGES.items()}
    for code, sentences in lines.items():
        documents: list[str] = []
        for _, some in itertools.groupby(zip(ids, sentences, strict=True), lambda row: row[0]):
            texts = [sentence for _, sentence in some]
            documents += [
                " ".join(texts[at : at + SENTENCES]) for at in range(0, len(texts), SENTENCES)
            ]
        half = len(documents) // 2
        for part, part_lines in (("find", documents[:half]), ("test", documents[half:])):
            (to / f"{code}.{part}.txt").write_text("\n".join(part_lines) + "\n", "utf-8")
    _write_records(to / "corpus.jsonl", mixed_corpus({code: lines[code] for code in RATED}))
    (to / "xquad.de.json").write_bytes((given.xquad / "xquad.de.json").read_bytes())
    _write_records(to / "xquad_en.jsonl", _choices(given.xquad / "xquad.en.json"))
    (to / "xquad_en.yaml").write_text(CHOICE_TASK, "utf-8")
    (to / "done").touch()


def _write_records(path: Path, records: Iterable[dict[str, Any]]) -> None:
    lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in records]
    path.write_text("".join(lines), "utf-8")


def _choices(path: Path) -> Iterator[dict[str, Any]]:
    """Questions on a paragraph with the answer and those to three other questions on it."""
    for article in json.loads(path.read_text("utf-8"))["data"]:
        for paragraph in article["paragraphs"]:
            asked = {row["answers"][0]["text"]: row["question"] for row in paragraph["qas"]}
            answers = list(asked)
            if len(answers) < CHOICES:
                continue
            for at, (right, question) in enumerate(asked.items()):
                others = [answers[(at + step) % len(answers)] for step in range(1, CHOICES)]
                label = at % CHOICES
                choices = [*others[:label], right, *others[label:]]
                prompt = f"{paragraph['context']}\n\nQuestion: {question}\nAnswer:"
                yield {"prompt": prompt, "choices": choices, "answer": label}


def _stored(told: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Without the folder's place, and of random heads only the levels that a page shows; numbers to
    six digits."""
    kept = [
        row
        for row in told.get("levels", ())
        if "#" not in row["condition"] or row["statistic"] in ("nll", "chrf")
    ]
    told = told | ({"levels": kept} if kept else {})
    text = json.dumps(told).replace(str(folder), "RUNS")
    stored: dict[str, Any] = json.loads(
        text, parse_float=lambda number: float(f"{float(number):.6g}")
    )
    return stored


def shares(runs: Path) -> dict[str, Any]:
    """Of every finished run of translation scores: how many heads align, where, and which.

    By threshold with the score as it is (the paper's rule) and above chance, in all and in the
    first, middle and last third of the layers; quantiles of the depth of those above 0.1, by both
    rules; how far its best 20 heads are those of the first run of the same model and direction;
    and, by halves of the sentences, short and long.
    """
    scored = {
        place.parent.name: {
            (row["layer"], row["head"]): (row["score"], row["above_chance"])
            for row in json.loads(place.read_text())["scores"]
        }
        for place in sorted(runs.glob("*-ts-*/result.json"))
    }
    best = {
        name: set(sorted(heads, key=lambda head: -heads[head][1])[:20])
        for name, heads in scored.items()
    }
    found: dict[str, Any] = {}
    for name, heads in scored.items():
        first = _first(name)
        found[name] = {
            "heads": len(heads),
            "above": {
                f"{threshold:g}": [
                    sum(rules[rule] > threshold for rules in heads.values()) for rule in (0, 1)
                ]
                for threshold in THRESHOLDS
            },
            "thirds": {
                f"{threshold:g}": [
                    [sum(int(3 * depth) == third for depth in depths) for third in range(3)]
                    for depths in (_depths(heads, rule, threshold) for rule in (0, 1))
                ]
                for threshold in THRESHOLDS
            },
            "depth": [
                np.quantile(_depths(heads, rule, 0.1), (0, 0.25, 0.5, 0.75, 1)).round(3).tolist()
                for rule in (0, 1)
            ],
            "beside": first,
            "shared of 20": len(best[name] & best.get(first, set())),
            "by length": _by_length(runs / name / "scores" / "scores.safetensors"),
        }
    return found


def rated(runs: Path, size: str) -> dict[str, Any]:
    """By language: by how much the selected heads' rating tells texts with a translation better
    (AUC) than the mean of random heads', with its bootstrap over texts, and p over draws."""
    scores: dict[str, dict[str, list[list[float]]]] = {}
    # The selected first.
    names = [f"{size}-rate", *(f"{size}-rate-random-{draw}" for draw in range(9))]
    finished = [name for name in names if (runs / f"{name}.cost.json").exists()]
    for name in finished if names[0] in finished else []:
        own: dict[tuple[str, str], list[float]] = {}
        text = (runs / name / "documents" / "corpus-000000.jsonl").read_text("utf-8")
        for row in map(json.loads, text.splitlines()):
            language, _, kind = row["id"].split()
            own.setdefault((language, kind), []).append(row["score"])
        for (language, kind), values in own.items():
            scores.setdefault(language, {}).setdefault(kind, []).append(values)
    results = {}
    for language, kinds in scores.items():
        looked_for, others = (np.array(kinds[kind]) for kind in ("bilingual", "monolingual"))
        if len(looked_for) == 1:
            continue
        draw = np.random.default_rng(0)
        values = np.array(
            [
                [auc(*two) for two in zip(looked_for[:, some], others[:, rest], strict=True)]
                for some, rest in [
                    (np.arange(looked_for.shape[1]), np.arange(others.shape[1])),
                    *((_again(looked_for, draw), _again(others, draw)) for _ in range(1000)),
                ]
            ]
        )
        differences = values[:, 0] - values[:, 1:].mean(1)
        results[language] = {
            "auc": values[0].tolist(),
            "difference": [differences[0], *np.quantile(differences[1:], (0.025, 0.975))],
            "p": (1 + int((values[0, 1:] >= values[0, 0]).sum())) / values.shape[1],
        }
    return results


def _again(scores: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    return draw.integers(scores.shape[1], size=scores.shape[1])


def _depths(
    heads: Mapping[tuple[int, int], tuple[float, float]], rule: int, threshold: float
) -> list[float]:
    """Depths of the heads above a threshold by score (0) or above chance (1): middles of layers as
    shares of them all."""
    layers = 1 + max(layer for layer, _ in heads)
    return [
        (layer + 0.5) / layers for (layer, _), rules in heads.items() if rules[rule] > threshold
    ]


def _first(name: str) -> str:
    """The run that a way of counting is compared with: of its direction, and of the model."""
    size, _, rest = name.partition("-ts-")
    pair = next((pair for pair in (*GOLD, *ALIGNED) if rest.endswith(pair)), GOLD[0])
    return f"{size}-ts-{pair}"


def _by_length(scores: Path) -> dict[str, list[int]]:
    """Heads above 0.1 on the shorter and on the longer half of the sentences, and their tokens."""
    kept = load_file(scores)
    linked = kept["statistics.totals"] > 0
    hits, totals = kept["statistics.hits"][linked], kept["statistics.totals"][linked]
    order = np.argsort(totals, kind="stable")
    counted = {}
    for half, chosen in zip(("shorter", "longer"), np.array_split(order, 2), strict=True):
        rates = hits[chosen] / totals[chosen, None, None]
        above = int((rates.mean(0) > 0.1).sum())
        counted[half] = [above, int(np.median(totals[chosen]))]
    return counted


def units(text: str) -> int:
    """Words, or in scripts without spaces characters."""
    return max(len(text.split()), sum(map(is_unspaced, text)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name in ("models", "xl-wa", "iwslt", "ntrex", "alignatt", "tasks", "xquad"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[], help="names of steps, or beginnings")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    stored: dict[str, Any] = {"command": "bench/replication.py", "machine": machine("cpu")}
    if given.out is not None and given.out.exists():
        stored = json.loads(given.out.read_text())
    known = stored.setdefault("steps", {})
    every = {timed.step.name: timed for timed in steps(given.quick)}
    asked = [name for name in every if name.startswith(tuple(given.only or [""]))]
    runs = given.folder / ("quick" if given.quick else "runs")
    chosen = _with_needed([name for name in asked if name not in known], every)
    due = [every[name] for name in chosen if not (runs / f"{name}.cost.json").exists()]
    for timed in due:
        print(f"{timed.hours:5.2f} h  {timed.step.name}", file=sys.stderr)
    print(f"{sum(timed.hours for timed in due):5.2f} h  in all, reckoned", file=sys.stderr)
    if given.list:
        return
    runs.mkdir(parents=True, exist_ok=True)
    data = given.folder / "data"
    if not (data / "done").exists():
        make_data(data, given)
    for name in chosen:
        made = run(every[name].step, given.models, data, runs, given.tasks, "bfloat16")
        if "failed" in made:  # said on stderr, and tried again by the same command
            continue
        known.setdefault(name, _stored(made, given.folder))
        # What is stored stays: a new folder makes needed runs anew, with another fit of the links.
        stored["shares"] = (kept := stored.get("shares", {})) | (shares(runs) | kept)
        texts = {size: told for size in ("0.5b", "1.5b") if (told := rated(runs, size))}
        stored["rated"] = stored.get("rated", {}) | texts
        if given.out is not None:
            write(stored, given.out)
    print(json.dumps(stored, indent=1, ensure_ascii=False))


def _with_needed(names: Iterable[str], every: Mapping[str, Timed]) -> list[str]:
    """The steps of these names and those whose runs they read, in their order."""
    needed, found = list(names), set[str]()
    while needed:
        name = needed.pop()
        found.add(name)
        read = re.findall(r"\{runs\}/([\w.-]+)", every[name].step.arguments)
        needed += [name for name in read if name not in found]
    return [name for name in every if name in found]


if __name__ == "__main__":
    main()
