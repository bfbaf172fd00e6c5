"""Tasks of lm-evaluation-harness under removal: the harness's numbers, and nothing else touched."""

from __future__ import annotations

import copy
import inspect
import json
import logging
import os
import random
import shutil
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from headscope.errors import InputError
from headscope.evidence.rows import Condition, Evidence, Level
from headscope.heads import HeadSet
from headscope.lm import LanguageModel
from headscope.pocket.tasks import write_tasks
from headscope.verify.tasks_evaluation.evaluate import Outcome, run_task, tasks_evidence
from headscope.verify.tasks_evaluation.harness import HarnessModel
from headscope.verify.tasks_evaluation.library import GROUPS, load_tasks, quiet, resolve, seeded

CHOICE = "pocket_translate_words"
WRITTEN = "pocket_repeat_generated"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    write_tasks(made, "test", 4)
    return made


def write(folder: Path, rows: Sequence[Any] | None = None, **keys: Any) -> Path:
    """A small task file of two choices; `keys` replace or (None) remove lines."""
    rows = [{"q": "Say A.", "c": ["A", "B"], "a": 0}] * 2 if rows is None else rows
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text(text)
    config: dict[str, Any] = {
        "task": "small",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": "rows.jsonl"}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "{{q}}",
        "doc_to_choice": "c",
        "doc_to_target": "a",
        "metric_list": [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}],
    }
    config |= keys
    lines = [f"{key}: {json.dumps(value)}" for key, value in config.items() if value is not None]
    file = folder / "small.yaml"
    file.write_text("\n".join(lines) + "\n")
    return file


# The harness's own tasks


def test_every_named_group_stands_for_tasks_of_the_installed_harness() -> None:
    for name in GROUPS:
        found = resolve(name)
        assert found, name
        if name == "global_mmlu_full_*":
            assert len(found) > 40 and "global_mmlu_full_de" in found
            assert "global_mmlu_full_de_stem" not in found  # part of the group before


def test_a_wrong_name_is_answered_with_one_that_is_near() -> None:
    with pytest.raises(InputError, match=r"no task named 'xnly'; did you mean xnli\?"):
        resolve("xnly")


# Numbers


@pytest.mark.parametrize("shots", [0, 2])
def test_accuracy_is_that_of_a_plain_loop_over_token_log_likelihoods(
    pocket: LanguageModel, folder: Path, shots: int
) -> None:
    (task,) = load_tasks([str(folder / f"{CHOICE}.yaml")], shots=shots)
    made = run_task(pocket, task)
    right = 0
    for example, row in zip(task.examples, made.rows, strict=True):
        values = []
        for choice in example.choices:
            before = pocket.tokenizer(example.prompt)["input_ids"]
            ids = pocket.tokenizer(example.prompt + choice)["input_ids"]
            with torch.no_grad():
                logits = pocket.model(torch.tensor([ids])).logits[0]
            chances = logits.log_softmax(-1)
            values.append(
                sum(float(chances[at - 1, ids[at]]) for at in range(len(before), len(ids)))
            )
        assert row["responses"] == pytest.approx(values, abs=1e-3)
        right += int(np.argmax(values)) == int(example.target)
    assert made.metrics["acc"] == right / len(task.examples)


def test_answers_are_those_of_the_harness_own_model_class(
    pocket: LanguageModel, folder: Path
) -> None:
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    pairs = [("a dog", " sees"), ("a dog ", "sees two"), ("", "the man"), ("a dog", " runs"),
             ("one " * 200, "long"), (" ", "the man"), ("\n\n", "a dog")]  # fmt: skip
    settings = {"until": ["\n", "."], "max_gen_toks": 12}
    prompts = ["Repeat this sentence\nSentence: I sleep.\nAnswer:", "The", "Question:"]
    with quiet():
        theirs = HFLM(
            pretrained=copy.deepcopy(pocket.model),
            tokenizer=copy.deepcopy(pocket.tokenizer),
            batch_size=2,
            max_length=pocket.context_length,
        )
        asked = [Instance("loglikelihood", {}, pair, 0) for pair in pairs]
        wanted = theirs.loglikelihood(asked, disable_tqdm=True)
        written = [Instance("generate_until", {}, (one, dict(settings)), 0) for one in prompts]
        texts = theirs.generate_until(written, disable_tqdm=True)
        whole = [Instance("loglikelihood_rolling", {}, ("the man sees a dog. " * 4,), 0)]
        rolled = theirs.loglikelihood_rolling(whole, disable_tqdm=True)
    mine = HarnessModel(pocket, batch_tokens=64)
    for (value, greedy), (their_value, their_greedy) in zip(
        mine.loglikelihood(asked), wanted, strict=True
    ):
        assert (greedy, value) == (their_greedy, pytest.approx(their_value, abs=1e-3))
    assert mine.generate_until(written) == texts
    assert mine.loglikelihood_rolling(whole) == pytest.approx(rolled, abs=1e-3)


def test_a_gate_changes_the_answers_and_the_identity_does_not(
    pocket: LanguageModel, folder: Path
) -> None:
    (task,) = load_tasks([str(folder / f"{CHOICE}.yaml")])
    plain = run_task(pocket, task)
    everything = HeadSet(pocket.geometry, ()).complement()
    with pocket.gated(HeadSet(pocket.geometry, ()).removed()):
        same = run_task(pocket, task)
    with pocket.gated(everything.removed()):
        gone = run_task(pocket, task)
    assert same == plain
    assert gone.rows != plain.rows


def test_batches_change_nothing(pocket: LanguageModel, folder: Path) -> None:
    (task,) = load_tasks([str(folder / f"{WRITTEN}.yaml")])
    small, large = (run_task(pocket, task, batch_tokens=size) for size in (1, 4096))
    assert [row["responses"] for row in small.rows] == [row["responses"] for row in large.rows]


# What stays as it was


def test_batches_are_halved_when_memory_runs_out(
    pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = ["one two three", "four", "five six", "seven eight nine ten", "eleven"]
    choices = [SimpleNamespace(args=(text, " word")) for text in texts]
    written = [SimpleNamespace(args=(text, {"max_gen_toks": 4})) for text in texts]
    plain = HarnessModel(pocket)
    expected = plain.loglikelihood(choices), plain.generate_until(written)
    forward, sizes = pocket.model.forward, []

    def scarce(*args: Any, input_ids: torch.Tensor, **options: Any) -> Any:
        sizes.append(len(input_ids))
        if len(input_ids) > 2:
            raise torch.OutOfMemoryError("on purpose")
        return forward(*args, input_ids=input_ids, **options)

    described: Any = scarce
    described.__signature__ = inspect.signature(forward)  # callers read the names of arguments
    monkeypatch.setattr(pocket.model, "forward", scarce)
    answered: list[int] = []
    halving = HarnessModel(pocket, report=answered.append)
    found = halving.loglikelihood(choices), halving.generate_until(written)
    assert max(sizes) > 2 and sum(answered) == 2 * len(texts) and max(answered) == 2
    for (value, greedy), (own, own_greedy) in zip(found[0], expected[0], strict=True):
        assert value == pytest.approx(own, abs=1e-4) and greedy == own_greedy
    assert found[1] == expected[1]


def test_model_tokenizer_and_process_stay_as_they_are(pocket: LanguageModel, folder: Path) -> None:
    def state() -> dict[str, Any]:
        return {
            "weights": {name: (id(p), p.data_ptr()) for name, p in pocket.model.named_parameters()},
            "config": pocket.model.config.to_dict(),
            "generation": pocket.model.generation_config.to_dict(),
            "training": [module.training for module in pocket.model.modules()],
            "tokenizer": (
                pocket.tokenizer.padding_side,
                pocket.tokenizer.pad_token,
                len(pocket.tokenizer),
            ),
            "environment": dict(os.environ),
            "logging": (logging.getLogger("lm_eval").level, logging.getLogger().handlers[:]),
            "random": (random.getstate(), str(np.random.get_state()), torch.get_rng_state().sum()),
        }

    load_tasks([str(folder / f"{CHOICE}.yaml")])  # imports and caches the harness
    pocket.model.train()
    try:
        before = state()
        tasks = load_tasks([str(folder / f"{name}.yaml") for name in (CHOICE, WRITTEN)], shots=1)
        for task in tasks:
            run_task(pocket, task)
        assert state() == before
    finally:
        pocket.model.eval()


def test_nothing_is_printed_and_nobody_is_called(
    pocket: LanguageModel,
    folder: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    for task in load_tasks([str(folder / f"{name}.yaml") for name in (CHOICE, WRITTEN)]):
        run_task(pocket, task)
    assert capfd.readouterr() == ("", "")


def test_seeds_are_set_and_given_back() -> None:
    with seeded(5):
        first = (random.random(), np.random.rand(), float(torch.rand(1)))
    before = random.getstate()
    with seeded(5):
        assert (random.random(), np.random.rand(), float(torch.rand(1))) == first
    assert random.getstate() == before


# Task files


def test_a_folder_of_tasks_may_be_moved_and_named_from_anywhere(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved = tmp_path / "else" / "where"
    shutil.copytree(folder, moved)
    monkeypatch.chdir(tmp_path)
    tasks = load_tasks(["else/where"])
    there = load_tasks([str(folder)])
    group = load_tasks([str(folder / "pocket_cross_lingual.yaml")])
    assert len(group) == 3 and all(one.groups == ("pocket_cross_lingual",) for one in group)
    assert [(one.name, one.digest) for one in tasks] == [(one.name, one.digest) for one in there]
    assert {group for one in tasks for group in one.groups} == {
        "pocket_cross_lingual",
        "pocket_one_language",
    }


def test_code_of_a_task_file_runs_only_where_that_is_allowed(tmp_path: Path) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text() + "process_docs: !function own.twice\n")
    (tmp_path / "own.py").write_text(
        "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"
        "def twice(docs):\n    return docs.select([0])\n"
    )
    with pytest.raises(InputError, match=r"small.yaml:10: !function own.twice.*--allow-task-code"):
        load_tasks([str(file)])
    assert not (tmp_path / "own.ran").exists()
    (task,) = load_tasks([str(file)], allow_code=True)
    assert (tmp_path / "own.ran").exists() and len(task.examples) == 1


def test_a_template_cannot_reach_python(tmp_path: Path) -> None:
    file = write(tmp_path, doc_to_text="{{ q.__class__.__mro__ }}")
    with pytest.raises(InputError, match="template that cannot be filled"):
        load_tasks([str(file)])


def test_an_include_is_merged_and_refused_code_is_found_in_it(tmp_path: Path) -> None:
    file = write(tmp_path, metric_list=None, include="base.yaml")
    (tmp_path / "base.yaml").write_text("metric_list:\n  - metric: acc_norm\ntask: other\n")
    (task,) = load_tasks([str(file)])
    assert task.name == "small" and task.task.get_config("metric_list") == [{"metric": "acc_norm"}]
    (tmp_path / "base.yaml").write_text("doc_to_text: !function a.b\n")
    with pytest.raises(InputError, match=r"base.yaml:1: !function a.b"):
        load_tasks([str(file)])
    (tmp_path / "base.yaml").write_text("include: small.yaml\n")
    with pytest.raises(InputError, match="includes itself"):
        load_tasks([str(file)])


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"doc_to_txt": "x"}, r"small.yaml:10: 'doc_to_txt' is no key.*did you mean doc_to_text"),
        ({"task": None}, "names no task"),
        ({"metric_list": [{"metric": "akk"}]}, r"small.yaml:9: 'akk' is no metric"),
        (
            {"metric_list": [{"metric": "acc", "hf_evaluate": True}]},
            "metrics of the Hub are code",
        ),
        (
            {"dataset_kwargs": {"data_files": {"test": "gone.jsonl"}}},
            r"small.yaml:3: the data file gone.jsonl is not there",
        ),
        ({"doc_to_text": "{{nothing}}"}, "template that cannot be filled"),
        ({"test_split": "dev"}, "task small cannot be set up"),
        ({"output_type": "choose"}, "small.yaml: the task small cannot be set up"),
        (
            {"dataset_path": "nobody/nothing", "dataset_kwargs": None},
            "cannot load its data.*HF_HOME",
        ),
    ],
)
def test_a_task_file_that_cannot_be_used_says_why(
    tmp_path: Path, keys: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        load_tasks([str(write(tmp_path, **keys))])


def test_broken_yaml_and_broken_lines_are_named_by_file_and_line(tmp_path: Path) -> None:
    file = write(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"q": "x", "c": ["A", "B"], "a": 0}\n{"q": \n')
    with pytest.raises(InputError, match=r"rows.jsonl:2: is not valid JSON"):
        load_tasks([str(file)])
    file.write_text("task: small\nmetric_list: [a, b\n")
    with pytest.raises(InputError, match=r"small.yaml:\d+: is not valid YAML"):
        load_tasks([str(file)])
    with pytest.raises(InputError, match="cannot be read"):
        load_tasks([str(tmp_path / "absent.yaml")])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="holds no task file"):
        load_tasks([str(tmp_path / "empty")])
    with pytest.raises(InputError, match=r"rows.jsonl: holds no examples"):
        load_tasks([str(write(tmp_path, rows=[]))])
    with pytest.raises(InputError, match="no task is named"):
        load_tasks([])


# Evidence


def outcome(values: Sequence[float], higher: bool = True, mean: float | None = None) -> Outcome:
    rows = [{"id": i, "metrics": {"m": value}} for i, value in enumerate(values)]
    return Outcome({"m": float(np.mean(values)) if mean is None else mean}, {"m": higher}, rows)


TOP = Condition("selected", k=2, gate=0.0, heads=("1.2", "1.3"))


def evidence_of(*made: Outcome) -> Evidence:
    """Of the original model, selected heads and random draws."""
    draws = [
        replace(TOP, kind="random", draw=i, heads=(f"0.{i}", "1.0")) for i in range(len(made) - 2)
    ]
    return tasks_evidence([Condition(), TOP, *draws], {"task": made}, {})


def level(evidence: Evidence, condition: Condition | None = None) -> Level:
    row = evidence.level("m", condition)
    assert row is not None
    return row


def test_figures_follow_from_the_outcomes() -> None:
    base = [1.0] * 30 + [0.0] * 10
    top = [0.0] * 30 + [1.0] * 10
    evidence = evidence_of(outcome(base), outcome(top), outcome(base), outcome([*base[1:], 1.0]))
    assert level(evidence).value == 0.75 and level(evidence, TOP).value == 0.25
    change = level(evidence, TOP).change
    assert change is not None and change.value == -0.5
    assert change.low < -0.5 < change.high < 0
    test = evidence.against("m", TOP)["random"]
    assert test.p_examples is not None and test.p_examples < 0.05 and test.p_draws == 1 / 3
    drawn = evidence.of_control(TOP, "random")[0]
    # None of 40 answers differs: as far as Wilson's bound for the share of those that do.
    reach = 1.959964**2 / (40 + 1.959964**2)
    unchanged = level(evidence, drawn).change
    assert unchanged is not None
    assert vars(unchanged) == pytest.approx({"value": 0.0, "low": -reach, "high": reach})


def test_a_share_of_few_examples_has_an_interval_also_at_its_ends() -> None:
    evidence = evidence_of(outcome([1.0] * 5), outcome([0.0] * 5), outcome([1.0] * 5))
    # Wilson (1927): z²/(n + z²) away from the end, z = 1.96.
    width = 1.959964**2 / (5 + 1.959964**2)
    assert level(evidence).low == pytest.approx(1 - width) and level(evidence).high == 1
    assert level(evidence, TOP).high == pytest.approx(width) and level(evidence, TOP).low == 0


def test_where_less_is_better_the_tests_look_the_other_way() -> None:
    base, worse = [1.0] * 20 + [2.0] * 20, [5.0] * 20 + [6.0] * 20
    evidence = evidence_of(outcome(base, False), outcome(worse, False), outcome(base, False))
    assert evidence.statistics["m"].better == "lower"
    test = evidence.against("m", TOP)["random"]
    assert test.p_examples is not None and test.p_examples < 0.01 and test.p_draws == 0.5
    better = evidence_of(outcome(base, False), outcome([0.5] * 40, False), outcome(base, False))
    assert better.against("m", TOP)["random"].p_draws == 1.0


def test_a_metric_that_is_no_mean_has_no_interval() -> None:
    evidence = evidence_of(
        outcome([1.0, 2.0], mean=17.0), outcome([2.0, 2.0], mean=5.0), outcome([1.0, 1.0])
    )
    assert not level(evidence).bounded
    change = level(evidence, TOP).change
    assert change is not None and change.value == -12.0 and not change.bounded
    test = evidence.against("m", TOP)["random"]
    assert test.p_examples is None and not test.difference.bounded


def test_a_group_has_the_plain_mean_of_its_tasks() -> None:
    made = {name: [outcome([a, 1.0]), outcome([0.0, b])]
            for name, a, b in (("x", 1.0, 0.0), ("y", 0.0, 1.0), ("z", 1.0, 1.0))}  # fmt: skip
    evidence = tasks_evidence([Condition(), TOP], made, {"both": ("x", "y")})
    assert evidence.parts == ("", "x", "y", "z", "both")
    for part, before, after in (("", 5 / 6, 1 / 3), ("both", 0.75, 0.25)):
        base, top = evidence.level("m", None, part), evidence.level("m", TOP, part)
        assert base is not None and top is not None
        assert (base.value, top.value) == pytest.approx((before, after))
