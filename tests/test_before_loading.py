"""What can be known without the weights is told before they are read, by every command."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from command_runs import write_jsonl
from headscope.data.chat import KEY_VARIABLES
from headscope.settings import options_in
from headscope.studies.registry import COMMANDS, study_of
from headscope.use.serving import Vllm
from language_helpers import write_documents
from lm_helpers import saved
from verify_helpers import write_data

PAIRS = ("--data", "pairs.tsv", "--pair", "en-de")
TEXTS = ("--data", "en=en.txt", "--data", "de=de.txt")
TASK = ("--task", "next.json", "--held-out", "4", "--instruction", "Add three to {input}:")
HEADS = ("--heads", "0.1,1.2")
#: Every command that reads weights, with arguments under which it does.
WORKING: dict[str, tuple[str, ...]] = {
    "atlas": PAIRS,
    "explore": ("--no-browser", *HEADS, *PAIRS),
    "find translation-score": PAIRS,
    "find key-tokens": ("--word", "house", "--prompt", "the house is old", *HEADS),
    "find soft-gate": (*HEADS, "--data", "questions.jsonl", "--train", "4", "--stop", "3",
                       "--test", "4"),
    "find causal-gating": TASK,
    "find lahis": TEXTS,
    "find first-order": TEXTS,
    "find attribution": TASK,
    "find mask": TASK,
    "find induction": (),
    "find retrieval": ("--data", "facts.jsonl", "--haystack", "hay.txt"),
    "find patching": ("--data", "words.tsv"),
    "find language-name": ("--data", "en-de=pairs.tsv", "--data", "en-es=pairs.tsv"),
    "find knockouts": PAIRS,
    "compare formation": ("series", *PAIRS),
    "compare masks": ("mask", "--base", "mask"),
    "compare states": ("--heads", "mask", *TASK, "--allow-overlap"),
    "verify removal": (*HEADS, *PAIRS),
    "verify heads": PAIRS,
    "verify circuit": (*HEADS, *PAIRS),
    "align": ("--aligner", "heads", "--align-heads", "0.1", "--align-rows", "read", *PAIRS),
    "verify alignment": ("--align-heads", "0.1,1.2", "--align-rows", "read", *PAIRS),
    "verify tasks": ("--task", "tasks/pocket_capitals.yaml", *HEADS),
    "verify attention": ("--heads", "mask", *TASK, "--allow-overlap"),
    "verify one-by-one": (*HEADS, *PAIRS),
    "verify perplexity": (*HEADS, *TEXTS),
    "verify layers": (*HEADS, *TEXTS),
    "verify summaries": (*HEADS, "--data", "summaries.jsonl"),
    "verify off-target": (*HEADS, "--ask", "continue", *TEXTS,
                          "--start-tokens", "4"),
    "verify transfer": ("--heads", "lahis", "--data", "statements.jsonl"),
    "verify mask": ("--heads", "mask", *TASK, "--allow-overlap"),
    "verify scaling": ("--heads", "mask", *TASK, "--allow-overlap"),
    "verify families": ("--heads", "next=mask", "--heads", "more=mask2", *TASK, "--allow-overlap"),
    "use adapt": (*HEADS, "--prompt", "a dog"),
    "use simultaneous": (*HEADS, *PAIRS),
    "use export": HEADS,
    "use rate": (*HEADS, "--data", "summaries.jsonl"),
    "serve-check": ("http://127.0.0.1:9", *HEADS),
    "survey": ("--pairs", "en-de=pairs.tsv"),
    "reproduce": ("token-alignment-heads",),
    "check": (),
}  # fmt: skip
#: Values that no command can use, by option; what else belongs to it follows.
WRONG: dict[str, tuple[tuple[str, ...], ...]] = {
    "heads": (("unfinished",), ("nowhere",), ("99.1",), ("far.json",), ("empty.json",), ("pipe",)),
    "align_heads": (
        ("unfinished",),
        ("nowhere",),
        ("99.1",),
        ("far.json",),
        ("empty.json",),
        ("pipe",),
    ),
    "align_k": (("1000000",), ("0",), ("x",)),
    "masks": (("unfinished",), ("nowhere",), ("pipe",)),
    "k": (("1000000",), ("0",), ("x",)),
    "data": (("missing.tsv",), ("columns.tsv",), ("none.tsv",), ("bytes.tsv",), ("pipe",)),
    "pair": (("xx",), ("en-en",)),
    "shots": (("100000",),),
    "shots_data": (("missing.tsv", "--shots", "1"), ("pairs.tsv",), ("pipe", "--shots", "1")),
    "language_names": (("xx=Foo",), ("de",)),
    "template": (("no source",),),
    "links_column": (("absent",),),
    "aligner": (
        ("llm",),
        ("llm", "--llm-model", "some"),
        ("eflomal", "--decode", "greedy", "--scope", "nowhere"),
    ),
    "task": (("missing.json",), ("none.tsv",), ("pipe",)),
    "reference_texts": (("missing.txt", "--ablate", "mean"), ("pipe", "--ablate", "mean")),
    "dtype": (("float99",),),
    "device": (("nonsense",),),
    "device_map": (("auto", "--device", "cpu"),),
    "max_memory": (("cpu=lots",),),
    "tp_plan": (("auto",), ("2",)),
    "quantise": (("3bit",),),
    "tokenizer": (("nowhere",), ("pipe",), ("pipe.gguf",)),
    "beside": (("unfinished",), ("nowhere",), ("pipe",)),
    "pin": (("99.1",),),
    "prompt": (("",),),
    "gate": (("nowhere",), ("pipe",)),
    "gates": (("missing.jsonl",), ("pipe",)),
    "steer": (("xx",),),
    "workers": (("0",),),
    "test_data": (("missing.jsonl",), ("pipe",)),
    "check_data": (("missing.tsv",), ("pipe",)),
    "foreign": (("nowhere",), ("unfinished",)),
    "hybrid": (("nowhere",), ("unfinished",)),
    "haystack": (("missing.txt",), ("pipe",)),
    "base": (("nowhere",), ("pipe",)),
    "methods": (("unknown",),),
    "only": (("unknown",),),
    "out": (("pairs.tsv",), ("full",), ("pairs.tsv/below",), ("pipe",)),
}
#: What a command leaves aside with the arguments above, or says of single parts in its result.
ASIDE = {
    "verify off-target": {"pair", "links_column", "shots", "shots_data"},
    "survey": {"task", "shots", "shots_data"},
    "reproduce": {"shots", "aligner"},
}


class WeightsRead(BaseException):
    """Raised where weights would be read; nothing that handles errors may take it for one."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, data of every kind, finished runs, and what cannot be used."""
    from headscope.cli import main
    from headscope.pocket.tasks import write_tasks

    folder = tmp_path_factory.mktemp("before")
    with contextlib.chdir(folder):
        for name in ("model", "series/step-1", "series/step-2"):
            saved(folder / name)
        write_documents(folder)
        write_data(folder / "pairs.tsv")
        write_tasks(folder / "tasks", "test", 4)
        rows = [{"input": f"{at}, {at + 3}", "output": f"{at + 3}",
                 "candidates": [f"{at}", f"{at + 3}"]} for at in range(10, 30)]  # fmt: skip
        Path("next.json").write_text(json.dumps(rows), "utf-8")
        write_jsonl(Path("questions.jsonl"), [
            {"context": f"Room {at} is at {at + 7}.", "question": "Where?", "answers": [f"{at}"]}
            for at in range(18)
        ])  # fmt: skip
        write_jsonl(Path("summaries.jsonl"), [
            {"language": code, "text": "a dog and a cat", "summary": "pets", "id": code}
            for code in ("de", "en")
        ])  # fmt: skip
        write_jsonl(Path("statements.jsonl"), [
            {"a": "de", "b": "en", "prompt": "It is red. Is it?", "answers_a": "red",
             "answers_b": "blue", "id": "1"},
        ])  # fmt: skip
        write_jsonl(Path("facts.jsonl"), [
            {"needle": "The key is red.", "question": "What is the key?", "answer": "red"},
        ])  # fmt: skip
        Path("hay.txt").write_text("a b c d e f g h\n" * 50, "utf-8")
        words = ["en\tde\tes", "cat\tKatze\tgato", "dog\tHund\tperro", "tree\tBaum\tmonte"]
        Path("words.tsv").write_text("\n".join(words) + "\n", "utf-8")
        model = ("--model", "model")
        assert not main(["find", "lahis", *model, *TEXTS, "--quantile", "0.5", "--out", "lahis"])
        for name in ("mask", "mask2"):
            training = ("--steps", "4", "--batch", "2", "--learning-rate", "30")
            assert not main(["find", "mask", *model, *TASK, *training, "--out", name])
        shutil.copytree("mask", "unfinished")
        Path("unfinished", "DONE.json").unlink()
        Path("full").mkdir()
        Path("full", "other").write_text("x", "utf-8")
        Path("none.tsv").write_text("source\ttarget\tlinks\n", "utf-8")
        linked = Path("pairs.tsv").read_text("utf-8").splitlines()
        plain = [row.rpartition("\t")[0] for row in linked]
        Path("plain.tsv").write_text("\n".join(plain) + "\n", "utf-8")
        Path("columns.tsv").write_text("a\tb\nc\td\n", "utf-8")
        Path("bytes.tsv").write_bytes(b"source\ttarget\n\xff\xfe\t\xff\n")
        Path("far.json").write_text("[[50, 60]]", "utf-8")
        Path("empty.json").write_text("[]", "utf-8")
        for pipe in ("pipe", "pipe.gguf"):  # reading one would wait for ever
            os.mkfifo(pipe)
    return folder


@pytest.fixture
def unread(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder of the data, with weights that nobody may read."""

    def read(*_: Any) -> Any:
        raise WeightsRead

    monkeypatch.chdir(place)
    monkeypatch.setattr("headscope.lm.loading._model", read)
    monkeypatch.setattr(
        "headscope.studies.serve_check.found", lambda url: Vllm(url, "a version", "a model")
    )
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "no cache"))
    for name in KEY_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def options_of(name: str) -> dict[str, str]:
    """The options of a command that have a flag, by field, with it."""
    study = study_of(name)
    flags = {"out": "--out"} if study.out is not None else {}
    for each in options_in(study.settings):
        if not each.option.argument:
            flag = each.option.flag.split("/")[0] or f"--{each.name.rstrip('_').replace('_', '-')}"
            flags.setdefault(each.name, flag)
    return flags


def arguments_of(name: str, without: str = "") -> list[str]:
    """Arguments with which a command works, but for one of its flags."""
    given = [*name.split(), *WORKING[name]]
    if "model" in options_of(name) and name != "compare formation":
        given += ["--model", "model"]
    elif name in ("atlas", "explore", "survey", "check"):
        given.insert(len(name.split()), "model")
    left: list[str] = []
    words = iter(given)
    for word in words:
        if word == without:
            next(words)
        else:
            left.append(word)
    return left


def cases() -> Iterator[tuple[str, str]]:
    for name in WORKING:
        for field in options_of(name):
            if field in WRONG and field not in ASIDE.get(name, set()):
                yield name, field


def test_every_command_with_a_model_is_here() -> None:
    """Those that name models only to look at their shape, or train one of their own, are not."""
    modelled = {
        name for name in COMMANDS if {"model", "revision"} & {
            each.name for each in options_in(study_of(name).settings)
        }
    }  # fmt: skip
    assert modelled - {"reproduce", "compare formation"} <= WORKING.keys()


@pytest.mark.parametrize("name", WORKING)
def test_what_can_be_used_comes_to_the_weights(name: str, unread: None, command: Any) -> None:
    """Or else the next test would show nothing."""
    if name == "compare masks":  # which asks for the groups of heads alone
        assert command(*arguments_of(name)).code == 0
        return
    before = set(Path().rglob("*"))
    with pytest.raises(WeightsRead):
        command(*arguments_of(name))
    left = [file for file in set(Path().rglob("*")) - before if file.is_file()]
    assert not left or name in ("survey", "reproduce", "use export")  # of several steps


@pytest.mark.parametrize(("name", "field"), list(cases()))
def test_what_cannot_be_used_is_told_before_weights_are_read(
    name: str, field: str, unread: None, command: Any
) -> None:
    flag = options_of(name)[field]
    for values in WRONG[field]:
        said = command(*arguments_of(name, flag), flag, *values)
        errors = [line for line in said.err.splitlines() if line.startswith("error: ")]
        assert said.code == 2 and len(errors) == 1, (values, said.err)
        assert not said.out


@pytest.mark.parametrize(
    ("package", "name", "more"),
    [
        ("eflomal", "find translation-score", ("--aligner", "eflomal")),
        ("eflomal", "find translation-score", ("--aligner", "heads")),
        ("eflomal", "verify alignment", ()),
        ("eflomal", "atlas", ("--aligner", "eflomal")),
        ("eflomal", "compare formation", ("--aligner", "eflomal")),
        ("eflomal", "verify heads", ("--data", "plain.tsv")),
        ("eflomal", "verify removal", ("--data", "plain.tsv", "--measure", "loss")),
        ("openai", "find translation-score", ("--aligner", "llm", "--llm-model", "some")),
        ("lm_eval", "verify tasks", ()),
        ("datatrove", "use rate", ()),
        ("zstandard", "use rate", ("--compression", "zstd")),
        ("pyarrow", "use rate", ("--format", "parquet")),
        ("peft", "use export", ("--as", "lora")),
        ("accelerate", "find lahis", ("--device-map", "auto")),
        ("starlette", "explore", ()),
    ],
)
def test_a_missing_package_is_told_before_weights_are_read(
    package: str, name: str, more: tuple[str, ...], unread: None, command: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda wanted, *more: None if wanted.split(".")[0] == package else find(wanted, *more),
    )  # fmt: skip
    for module in [module for module in sys.modules if module.split(".")[0] == package]:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    without = more[0] if more and more[0] in arguments_of(name) else ""
    said = command(*arguments_of(name, without), *more)
    assert said.code == 2 and "install" in said.err, said.err
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "more", "extras"),
    [
        ("find translation-score", (), {"gguf", "eflomal"}),
        ("atlas", (), {"gguf", "eflomal"}),
        ("find translation-score", ("--aligner", "eflomal"), {"gguf", "eflomal"}),
        ("find translation-score", ("--decode", "greedy", "--workers", "2"),
         {"gguf", "eflomal", "corpus"}),
        ("verify removal", ("--measure", "loss"), {"gguf", "eflomal"}),
        ("verify removal", (), {"gguf"}),
        ("verify heads", ("--quantise", "4bit"), {"gguf", "eflomal", "quantised"}),
        ("verify tasks", (), {"gguf", "tasks"}),
        ("use rate", ("--format", "parquet"), {"gguf", "corpus"}),
        ("use export", ("--as", "lora"), {"gguf", "adapters"}),
        ("find lahis", ("--data", "en=en.parquet"), {"gguf", "data"}),
        ("explore", (), {"gguf", "live"}),
    ],
)  # fmt: skip
def test_all_that_is_missing_is_asked_for_together(
    name: str, more: tuple[str, ...], extras: set[str], place: Path, unread: None, command: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    missing = {"accelerate", "bitsandbytes", "datatrove", "eflomal", "gguf", "lm_eval", "peft",
               "pyarrow", "starlette"}  # fmt: skip
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec",
        lambda wanted, *more: None if wanted.split(".")[0] in missing else find(wanted, *more),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "eflomal", None)
    (place / "model.gguf").touch()
    other = {"model": "model.gguf", "pairs.tsv": "plain.tsv"}
    given = [other.get(word, word) for word in arguments_of(name)]
    said = command(*given, *more)
    assert said.code == 2 and said.err.count("\n") == 1, said.err
    assert set(re.findall(r"headscope\[([a-z,-]+)\]", said.err)[0].split(",")) == extras, said.err


def test_a_model_that_cannot_be_loaded_leaves_no_run(
    place: Path, command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shutil.copytree(place / "model", tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").write_bytes(b"damaged")
    monkeypatch.chdir(tmp_path)
    said = command("find", "induction", "--model", "model")
    assert said.code == 2 and "damaged" in said.err
    assert not list(Path("runs").rglob("*"))
