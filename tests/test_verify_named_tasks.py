"""The harness's own multilingual tasks under their names, on a few sentences of our own.

Their data lie on the Hub. A folder of the data's name in the working folder stands in for it, with
the columns that each task reads, so the harness's own templates and functions run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from headscope.lm import LanguageModel
from headscope.verify.tasks_evaluation.evaluate import run_task
from headscope.verify.tasks_evaluation.library import (
    compute_exact,
    compute_f1,
    load_tasks,
    standing_in,
)

Rows = list[dict[str, Any]]
ROWS = 3
LETTERS = {"A": "Hund", "B": "Katze", "C": "Kuh", "D": "Biene"}
OPTIONS = {f"option_{key.lower()}": word for key, word in LETTERS.items()}
NLI = {"premise": "Der Hund schläft", "hypothesis": "Ein Hund schläft"}
STORY = {f"input_sentence_{n}": "El perro duerme." for n in range(1, 5)}
SCHOOL = {"Country": "", "Subject": "Accounting", "Level": "Univ", "Context": ""}
CHOICES = {f"Option {n}": word for n, word in enumerate(("الكلب", "القطة", None, None, None), 1)}


def rows(answer: str, values: list[Any], **columns: Any) -> Rows:
    return [{**columns, answer: values[at % len(values)]} for at in range(ROWS)]


#: Task: the folder of its data, the name of its part, the split that is asked, its rows, and how
#: many choices an example has (0: the answer is written).
TASKS: dict[str, tuple[str, str, str, Rows, int]] = {
    "xnli_de": ("facebook/xnli", "de", "validation", rows("label", [0, 1, 2], **NLI), 3),
    "xcopa_it": (
        "cambridgeltl/xcopa",
        "it",
        "test",
        rows("label", [0, 1], premise="Il cane dorme.", choice1="È stanco.", choice2="È rosso.",
             question="cause"),
        2,
    ),
    "xwinograd_ru": (
        "Muennighoff/xwinograd",
        "ru",
        "test",
        rows("answer", ["1", "2"], sentence="Собака спит, потому что _ устала.", option1="собака",
             option2="книга"),
        2,
    ),
    "xstorycloze_es": (
        "juletxara/xstory_cloze",
        "es",
        "eval",
        rows("answer_right_ending", [1, 2], sentence_quiz1="Come.", sentence_quiz2="Vuela.",
             **STORY),
        2,
    ),
    "hellaswag_de": (
        "alexandrainst/m_hellaswag",
        "de",
        "val",
        rows("label", ["0", "3"], activity_label="Hund", ctx_a="Der Hund", ctx_b="schläft",
             endings=list(LETTERS.values())),
        4,
    ),
    "arc_de": (
        "alexandrainst/m_arc",
        "de",
        "test",
        rows("answer", ["A", "D"], id="1", instruction="Wer schläft?", option_e=None, **OPTIONS),
        4,
    ),
    "belebele_deu_Latn": (
        "facebook/belebele",
        "deu_Latn",
        "test",
        rows("correct_answer_num", ["1", "4"], flores_passage="Der Hund schläft.",
             question="Wer schläft?",
             **{f"mc_answer{n}": word for n, word in enumerate(LETTERS.values(), 1)}),
        4,
    ),
    "cmmlu_anatomy": (
        "haonan-li/cmmlu", "anatomy", "test", rows("Answer", ["A"], Question="谁?", **LETTERS), 4
    ),
    "mmmlu_de_de_anatomy": (
        "openai/MMMLU",
        "DE_DE",
        "test",
        rows("Answer", ["B"], Question="Wer schläft?", Subject="anatomy", **LETTERS),
        4,
    ),
    "global_mmlu_full_de_anatomy": (
        "CohereForAI/Global-MMLU",
        "de",
        "test",
        rows("answer", ["C"], subject="anatomy", question="Wer schläft?", **OPTIONS),
        4,
    ),
    "arabicmmlu_accounting_university": (
        "MBZUAI/ArabicMMLU",
        "Accounting (University)",
        "test",
        rows("Answer Key", ["A", "B"], Question="من ينام؟", **SCHOOL, **CHOICES),
        2,
    ),
    "xquad_de": (
        "google/xquad",
        "xquad.de",
        "validation",
        rows("answers", [{"text": ["Der Hund"], "answer_start": [0]}], id="1",
             context="Der Hund schläft.", question="Wer schläft?"),
        0,
    ),
}  # fmt: skip


def stand_in(folder: Path, part: str, split: str, data: Rows) -> None:
    """A data set of one part, with every split that a task may name."""
    folder.mkdir(parents=True)
    (folder / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in data))
    splits = {split, "train", "validation", "test", "dev"}
    files = "".join(f"  - split: {one}\n    path: rows.jsonl\n" for one in sorted(splits))
    (folder / "README.md").write_text(
        f"---\nconfigs:\n- config_name: {part}\n  data_files:\n{files}---\n"
    )


@pytest.mark.parametrize("name", list(TASKS))
def test_a_named_task_runs_by_the_functions_of_the_harness(
    name: str, tmp_path: Path, pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, part, split, data, choices = TASKS[name]
    stand_in(tmp_path / path, part, split, data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    (task,) = load_tasks([name])
    assert task.name == name and len(task.examples) == ROWS
    assert task.chance == (pytest.approx(1 / choices) if choices else None)
    made = run_task(pocket, task)
    assert len(made.rows) == ROWS
    for row in made.rows:
        assert all(0 <= value <= 1 for value in row["metrics"].values())
    assert not [one for one in sys.modules if one.startswith("transformers.data.metrics")]


@pytest.mark.parametrize(
    ("gold", "answer", "exact", "f1"),
    [
        ("Der Hund", "der hund.", 1, 1),
        ("the dog", "a dog", 1, 1),  # English articles do not count
        ("dog barks loud", "dog, dog", 0, 2 / 5),  # one word shared, of three and of two
        ("dog", "cat", 0, 0),
        ("", "", 1, 1),
        ("dog", "", 0, 0),
        ("the", "an", 1, 1),
        ("собака спит", "спит собака", 0, 1),
    ],
)
def test_exact_match_and_f1_of_squad(gold: str, answer: str, exact: int, f1: float) -> None:
    assert compute_exact(gold, answer) == exact
    assert compute_f1(gold, answer) == pytest.approx(f1)
    assert compute_f1(answer, gold) == pytest.approx(f1)


def test_the_missing_module_is_there_inside_the_context_alone() -> None:
    before = set(sys.modules)
    with standing_in(), standing_in():
        import transformers.data.metrics.squad_metrics as found

        assert found.compute_f1("dog", "dog") == 1
    assert not [one for one in set(sys.modules) - before if "data.metrics" in one]
