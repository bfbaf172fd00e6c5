"""Heads removed by the weights of a learned mask: order, cut, random orders, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers.processors import TemplateProcessing

from headscope.data.tasks import Example, Task
from headscope.heads import Geometry, Head, HeadSet
from headscope.lm import LanguageModel
from headscope.runs import encode
from headscope.studies.verify.one_by_one import OneByOne, starting_order
from headscope.studies.verify.walks import about_cut, first_steps, random_orders, task_subjects
from headscope.verify.one_by_one_steps import Step, Subject, prepare
from lm_helpers import wrapped
from mask_helpers import all_but, random_weights, write_mask_run

POCKET = Geometry.uniform(6, 16)
REMOVED = [Head(3, 2), Head(0, 5), Head(4, 11)]


@pytest.fixture
def mask(tmp_path: Path) -> Path:
    return write_mask_run(tmp_path / "mask", POCKET, all_but(POCKET, REMOVED), "en-de")


def test_a_mask_orders_all_heads_by_weight(tmp_path: Path, pocket: LanguageModel) -> None:
    weights = random_weights(POCKET, 1, 1.0)
    run = write_mask_run(tmp_path / "mask", POCKET, weights)
    places = np.argsort(weights, axis=None, kind="stable")
    rising = [Head(int(at // 16), int(at % 16)) for at in places]
    assert (weights < 0).sum() > 5
    for order in ("ascending", "pass", "alone"):
        assert list(starting_order(OneByOne(heads=str(run), order=order), pocket)) == rising
    falling = starting_order(OneByOne(heads=str(run), order="descending"), pocket)
    assert list(falling) == rising[::-1]
    given = starting_order(OneByOne(heads=str(run), order="given"), pocket)
    assert list(given) == [head for head in rising[::-1] if weights[head.layer, head.head] >= 0]
    first = starting_order(OneByOne(heads=str(run), k=5, order="ascending"), pocket)
    assert list(first) == rising[-5:]


def test_a_saved_set_beside_scores_is_still_what_it_was(
    tmp_path: Path, pocket: LanguageModel
) -> None:
    """Only of masks the weights order more heads than the set holds."""
    run = write_mask_run(tmp_path / "mask", POCKET, random_weights(POCKET, 1, 1.0))
    stored = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**stored, "command": "find something"}))
    kept = HeadSet.from_pretrained(run / "heads")
    rising = starting_order(OneByOne(heads=str(run), order="ascending"), pocket)
    assert list(rising) == list(kept)[::-1]


def test_the_cut_is_where_exactly_the_mask_is_left() -> None:
    kept = HeadSet(POCKET, tuple(head for head in POCKET.heads() if head not in REMOVED))
    rest = [head for head in POCKET.heads() if head not in REMOVED]
    found = encode(about_cut(kept, [*REMOVED, *rest]))
    assert found == {"kept": 93, "removed": 3, "cut_step": 3}
    assert encode(about_cut(kept, [REMOVED[0], rest[0], *REMOVED[1:]]))["cut_step"] is None
    assert encode(about_cut(kept, REMOVED[:2]))["cut_step"] is None


def test_when_the_target_comes_first() -> None:
    def walk(*ranks: int) -> list[Step]:
        return [Step(rank, (1,), (0.5,)) for rank in ranks]

    found = encode(first_steps([walk(3, 1, 2), walk(1, 1, 1), walk(5, 4, 3)]))
    assert found["first_steps"] == [1, 0, None]
    assert (found["median"], found["never"]) == (1, 1)
    assert found["share"] == pytest.approx([1 / 3, 2 / 3, 1 / 3])
    assert encode(first_steps([walk(2, 2)]))["median"] is None


def test_random_orders_are_nested_and_hold_every_head() -> None:
    few, many = random_orders(POCKET, 2, 7), random_orders(POCKET, 3, 7)
    assert few == many[:2]
    assert all(sorted(order) == list(POCKET.heads()) for order in many)
    assert len(set(many)) == 3
    assert random_orders(POCKET, 1, 8) != few[:1]


def test_prompts_that_hold_their_special_tokens_get_no_more() -> None:
    lm = wrapped("llama")
    adding = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    lm.tokenizer.backend_tokenizer.post_processor = adding
    with_it = prepare(lm, Subject("a", "ab\n", "cd", None, 3))
    without = prepare(lm, Subject("a", "ab\n", "cd", None, 3, special=False))
    assert with_it.ids == (1, *without.ids)
    assert with_it.target_token == without.target_token


def test_the_target_begins_where_the_chat_template_puts_it(
    pocket: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a space before an answer its first token is another one."""
    example = Example("1", "Simon", "Laura", 1)
    task = Task("name", (example,), "Who? {input}\n", "{input}\n", chat=True)
    first = {}
    for gap in ("", " "):
        form = (
            f"{{% if m.role == 'user' %}}{{{{ m.content }}}}:{gap}{{% else %}}{{{{ m.content }}}}"
        )
        template = f"{{% for m in messages %}}{form}{{% endif %}}{{% endfor %}}"
        monkeypatch.setattr(pocket.tokenizer, "chat_template", template)
        (subject,) = task_subjects(pocket, task, 1)
        first[gap] = pocket.tokenizer.decode([prepare(pocket, subject).target_token])
    assert first[""] == first[""].lstrip() and "Laura".startswith(first[""])


def test_tasks_and_prompts_do_not_mix(mask: Path, command: Callable[..., Any]) -> None:
    common = ("verify", "one-by-one", "--heads", mask)
    code, _, err = command(*common, "--task", "plural-de", "--prompt", "a", "--target", "b")
    assert code == 2
    assert "either --prompt and --target, or --task" in err
    code, _, err = command(*common, "--example", "nobody", "--held-out", 5, "--limit", 9)
    assert code == 2
    assert "--example nobody is none of" in err
