"""Attribution: equal to a double loop of autograd, patching to outputs edited by hand; the data."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import find_helpers
import lm_helpers as helpers
from conftest import Said, json_of
from headscope.data.tasks import NAMES, Example, Task, ioi_task, read_task
from headscope.errors import InputError
from headscope.find.attribution_scores import (
    Attribution,
    Contrast,
    attribution,
    contrasts,
    corrupted,
)
from headscope.heads import read_scores
from headscope.lm import LanguageModel
from headscope.studies.tasks import TaskChoice, TaskSides, counterfactuals, read_tasks

WORDS = [("sun", "apt"), ("cat", "dul"), ("way", "gos"), ("tea", "jun"), ("long one", "kor")]
TASK = Task(
    "words",
    tuple(
        Example(str(at), text, answer, at, (), *more)
        for at, (text, answer, *more) in enumerate([*WORDS, ("of two", "ilk", "or one", "hat")], 1)
    ),
    None,
    "{input}:",
    path="memory",
    chat=False,
)

#: Queries that share keys, norms after W_O, experts, layers without heads, one linear map for all
#: queries, keys and values, places learned or by slopes, latent keys and values.
OF_ALL_KINDS = ("llama", "gemma2", "olmoe", "lfm2", "gpt2", "bloom", "gpt_neox", "deepseek_v3")


def ready(lm: LanguageModel, measure: Any, task: Task = TASK) -> list[Contrast]:
    made, instructed = corrupted(lm, task)
    return contrasts(lm, made, measure, instructed)[0]


@contextmanager
def inputs_of_w_o(lm: LanguageModel, change: Callable[[int, torch.Tensor], Any]) -> Iterator[None]:
    """`change` gets each layer's number and what enters its W_O, and may give another."""
    handles = [
        site.projection.register_forward_pre_hook(
            lambda _, args, at=site.layer: (
                (made, *args[1:]) if (made := change(at, args[0])) is not None else None
            )
        )
        for site in lm.sites
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def harm(lm: LanguageModel, example: Contrast, embeds: torch.Tensor) -> torch.Tensor:
    """m of one input without padding, from plain logits."""
    logits = lm.model(inputs_embeds=embeds).logits[0].float()
    if example.tokens is not None:
        wrong, right = example.tokens
        return logits[-1, wrong] - logits[-1, right]
    start, ids = example.clean.start, torch.tensor(example.clean.ids)
    return -logits[start - 1 : -1].log_softmax(-1)[range(len(ids) - start), ids[start:]].mean()


def by_autograd(lm: LanguageModel, example: Contrast, steps: int) -> np.ndarray[Any, Any]:
    """(L, H), one head and one point at a time."""
    embed = lm.model.get_input_embeddings()
    clean, other = (embed(torch.tensor([row.ids])).detach() for row in example[:2])
    seen: list[dict[int, torch.Tensor]] = []
    for embeds in (clean, other):
        seen.append({})
        with inputs_of_w_o(lm, lambda at, x: seen[-1].update({at: x.detach()})):
            harm(lm, example, embeds)
    found = np.zeros(lm.geometry.shape)
    widths = {site.layer: site.head_width for site in lm.sites}
    for head in lm.geometry.heads():
        width = widths[head.layer]
        place = slice(head.head * width, (head.head + 1) * width)
        for share in [i / steps for i in range(1, steps + 1)] or [0.0]:
            own: list[torch.Tensor] = []

            def leaf(at: int, x: torch.Tensor, layer: int = head.layer, own: Any = own) -> Any:
                if at == layer:
                    own.append(x.detach().requires_grad_(True))
                    return own[0]
                return None

            with inputs_of_w_o(lm, leaf):
                value = harm(lm, example, clean + share * (other - clean))
            (gradient,) = torch.autograd.grad(value, own[0])
            difference = seen[1][head.layer] - seen[0][head.layer]
            # (T, H·D), of models with one row of tokens or a batch of one.
            product = (difference * gradient).flatten(0, -2)[:, place].sum()
            found[head.layer, head.head] += float(product) / max(1, steps)
    return found


@pytest.mark.parametrize(
    ("name", "measure", "steps"),
    [("llama", "loss", 3), *((name, "difference", 3) for name in OF_ALL_KINDS)]
    + [("llama", measure, 0) for measure in ("loss", "difference")],
)
def test_scores_equal_a_double_loop_of_autograd(name: str, measure: Any, steps: int) -> None:
    lm = helpers.wrapped(name, 5)
    if name == "llama":
        assert lm.model.config.num_key_value_heads < lm.model.config.num_attention_heads
    scores = attribution(lm, TASK, Attribution(steps, measure, batch_tokens=40))
    examples = ready(lm, measure)
    assert len(examples) == 5 and scores.config["left_out"]["no_counterfactual"] == 1
    for example, products in zip(examples, scores.statistics["products"], strict=True):
        np.testing.assert_allclose(products, by_autograd(lm, example, steps), atol=1e-5)
    means = scores.statistics["products"].mean(0)
    np.testing.assert_allclose(np.nan_to_num(scores.values), means, atol=1e-6)
    assert helpers.hooks_of(lm.model) == 0


@pytest.mark.parametrize("measure", ["loss", "difference"])
def test_patching_equals_outputs_edited_by_hand(measure: Any) -> None:
    lm = helpers.wrapped("llama", 6)
    scores = attribution(lm, TASK, Attribution(0, measure, patch=3, batch_tokens=30))
    width = lm.sites[0].head_width
    embed = lm.model.get_input_embeddings()
    for example, effects in zip(ready(lm, measure), scores.statistics["patched"], strict=False):
        clean, other = (embed(torch.tensor([row.ids])) for row in example[:2])
        seen: dict[int, torch.Tensor] = {}
        with torch.no_grad(), inputs_of_w_o(lm, lambda at, x, seen=seen: seen.update({at: x})):
            harm(lm, example, other)
        for head in lm.geometry.heads():
            place = slice(head.head * width, (head.head + 1) * width)

            def edit(at: int, x: torch.Tensor, head: Any = head, place: Any = place,
                     seen: Any = seen) -> Any:  # fmt: skip
                if at != head.layer:
                    return None
                x = x.clone()
                x[..., place] = seen[at][..., place]
                return x

            with torch.no_grad():
                before = harm(lm, example, clean)
                with inputs_of_w_o(lm, edit):
                    after = harm(lm, example, clean)
            assert effects[head.layer, head.head] == pytest.approx(float(after - before), abs=1e-5)


def test_one_step_is_at_the_corrupted_input_and_bad_numbers_are_refused() -> None:
    lm = helpers.wrapped("llama", 5)
    found = attribution(lm, TASK, Attribution(1, "loss")).statistics["products"]
    swapped = [Contrast(own.corrupted, own.clean) for own in ready(lm, "loss")]
    for example, products in zip(swapped, found, strict=True):
        np.testing.assert_allclose(products, -by_autograd(lm, example, 0), atol=1e-5)
    with torch.no_grad():
        lm.model.lm_head.weight.fill_(torch.nan)
    with pytest.raises(InputError, match="memory, line"):
        attribution(lm, TASK, Attribution(0, "loss"))


@pytest.mark.parametrize("name", ["gpt2", "mpt", "gemma3", "qwen3_moe", "gemma3n"])
def test_what_reads_its_tokens_elsewhere_too_is_refused(name: str) -> None:
    lm = helpers.wrapped(name, 3)
    assert np.isfinite(attribution(lm, TASK, Attribution(0, "loss")).values).all()
    if name == "gemma3n":  # every layer has embeddings of its own
        with pytest.raises(InputError, match="elsewhere"):
            attribution(lm, TASK, Attribution(2, "loss"))
    else:
        assert np.isfinite(attribution(lm, TASK, Attribution(2, "loss")).values).all()
    assert helpers.hooks_of(lm.model) == 0


def rows(path: Path, *lines: tuple[str, ...]) -> Path:
    path.write_text("\n".join("\t".join(line) for line in lines) + "\n", "utf-8")
    return path


COLUMNS = ("clean", "corrupted", "answer", "wrong")


def test_answers_may_part_in_the_white_space_before_one_of_them(tmp_path: Path) -> None:
    """Whichever of the two is the right one."""
    lm = find_helpers.wrapped("pocket-like")  # ␣the is a token, ␣Q is two
    for answers in (("the", "Q"), ("Q", "the")):
        line = ("x dog and", "y dog and", *answers)
        task = read_task(rows(tmp_path / "some.tsv", COLUMNS, line), bare="{input}")
        (only,), left_out = contrasts(lm, task, "difference", False)
        first = [" " if answer == "Q" else " the" for answer in answers]
        assert only.tokens and [lm.decode([token]) for token in only.tokens] == first[::-1]
        assert lm.decode(list(only.clean.ids)).endswith("and") and not any(left_out.values())


def test_a_file_of_clean_and_corrupted_texts(tmp_path: Path) -> None:
    lines = [
        ("a dog and", "a cat and", "bark", "purr"),
        ("a dog and", "a longer cat and", "bark", "purr"),  # of another length
        ("the end", "the one", "ab", "abc"),  # one answer begins the other
    ]
    task = read_task(rows(tmp_path / "some.tsv", COLUMNS, *lines))
    assert task.names_wrong and task.examples[0].corrupted == "a cat and"
    lm = helpers.wrapped("llama", 1)
    made, left_out = contrasts(lm, *_with(corrupted(lm, task), "difference"))
    assert left_out == {"no_counterfactual": 0, "other_length": 1, "same_tokens": 1}
    (only,) = made
    assert len(only.clean.ids) == len(only.corrupted.ids) and only.tokens is not None
    # The answers part at once: nothing of them is in the rows.
    assert [lm.decode([token]) for token in only.tokens] == ["p", "b"]
    with pytest.raises(InputError, match="right one too"):
        read_task(rows(tmp_path / "same.tsv", COLUMNS, ("a", "b", "c", "c")))
    with pytest.raises(InputError, match="no example has"):
        longer = read_task(rows(tmp_path / "longer.tsv", COLUMNS, lines[1]))
        attribution(lm, longer, Attribution(0))
    with pytest.raises(InputError, match="names no wrong"):
        loss_only = read_task(rows(tmp_path / "loss.tsv", COLUMNS[:3], lines[0][:3]))
        attribution(lm, loss_only, Attribution(0, "difference"))
    with pytest.raises(InputError, match="names no wrong"):
        contrasts(lm, loss_only, "difference", False, alone=True)
    alone = contrasts(lm, task, "difference", False, alone=True)
    assert len(alone[0]) == 2 and alone[1] == {"no_counterfactual": 0, "same_tokens": 1}
    with pytest.raises(InputError, match="empty"):
        read_task(rows(tmp_path / "empty.tsv", COLUMNS, ("a", "", "b", "c")))
    with pytest.raises(InputError, match="no records"):
        read_task(rows(tmp_path / "header.tsv", COLUMNS))
    with pytest.raises(InputError, match="'answer'"):
        read_task(rows(tmp_path / "clean.tsv", COLUMNS[:2], ("a", "b")))


def _with(made: tuple[Task, bool], measure: Any) -> tuple[Task, Any, bool]:
    return made[0], measure, made[1]


def test_the_same_shots_stand_before_both_inputs() -> None:
    lm, pool = helpers.wrapped("llama", 1), TASK.examples
    plain = {each.id: each for each in corrupted(lm, TASK)[0].examples}
    made, instructed = corrupted(lm, TASK, pool, 2)
    assert not instructed
    for each in made.examples:
        own = plain[each.id]
        assert each.input.endswith(f"\n\n{own.input}:") and each.input.count("\n\n") == 2
        if own.corrupted:
            assert each.corrupted == each.input.removesuffix(f"{own.input}:") + f"{own.corrupted}:"
        else:
            assert not each.corrupted
        shots = each.input.split("\n\n")[:-1]
        assert not any(shot.startswith(f"{own.corrupted}:") for shot in shots if own.corrupted)
    assert len(attribution(lm, TASK, Attribution(0), pool, 2).statistics["corruption"]) == 5


@given(st.permutations(TASK.examples), st.integers(0, 3))
def test_counterfactuals_and_shots_follow_from_the_texts(order: list[Example], seed: int) -> None:
    """Of rows in another order, and of some of them where the others are still there."""
    lm = helpers.wrapped("llama", 1)
    for shots in (0, 2):
        made = {e.id: e for e in corrupted(lm, TASK, TASK.examples, shots, seed)[0].examples}
        moved = replace(TASK, examples=tuple(order))
        assert {e.id: e for e in corrupted(lm, moved, order, shots, seed)[0].examples} == made
        some = replace(TASK, examples=tuple(order[:2]))
        few = corrupted(lm, some, TASK.examples, shots, seed, TASK.examples)[0].examples
        assert {e.id: e for e in few}.items() <= made.items()


def test_counterfactuals_are_drawn_evenly() -> None:
    """Every other example of the same length is drawn equally often, over seeds."""
    lm = helpers.wrapped("llama", 1)
    counts: dict[str, int] = {}
    for seed in range(400):
        other = corrupted(lm, TASK, seed=seed)[0].examples[0].corrupted
        counts[other] = counts.get(other, 0) + 1
    assert counts.keys() == {"cat", "way", "tea"}
    assert min(counts.values()) > 133 - 4 * 9.4  # four standard deviations


def test_scores_of_rows_in_another_order_are_those_rows() -> None:
    lm = helpers.wrapped("llama", 5)
    backwards = replace(TASK, examples=TASK.examples[::-1])
    first, other = (
        attribution(lm, task, Attribution(2, "loss")).statistics["products"]
        for task in (TASK, backwards)
    )
    np.testing.assert_allclose(first, other[::-1], atol=1e-6)


@pytest.mark.parametrize("held_out", [100, 6])
def test_a_limit_keeps_counterfactuals(tmp_path: Path, held_out: int) -> None:
    """Nothing that is held out is one of an example that heads are found on."""
    lm = helpers.wrapped("llama", 1)
    words = [(f"{a}{b}{c}", f"of {c}{b}") for a in "abc" for b in "def" for c in "ghi"]
    rows(tmp_path / "words.tsv", ("input", "output"), *words)

    def drawn(limit: int | None, tested: bool = False) -> tuple[dict[str, str], TaskSides]:
        choice = TaskChoice((str(tmp_path / "words.tsv"),), held_out=held_out, limit=limit)
        tasks = read_tasks(choice, "other")
        (sides,) = tasks.values()
        (others,) = counterfactuals(choice, tasks, "other", 0, tested).values()
        task = sides.test if tested else sides.train or sides.test
        made, _ = corrupted(lm, task, others=others)
        return {each.input: each.corrupted for each in made.examples}, sides

    every, few = drawn(None)[0], drawn(5)[0]
    assert all(every.values()) and len(few) == 5
    assert {own: few[own] for own in few if own in every}.items() <= every.items()
    tested, fewer = drawn(None, True)[0], drawn(5, True)[0]
    assert {own: fewer[own] for own in fewer if own in tested}.items() <= tested.items()
    found, sides = drawn(20)
    if sides.train is not None:
        assert not {*found.values()} & {each.input for each in sides.test.examples}


def test_ioi_sentences_name_one_of_two_people_again() -> None:
    task = ioi_task(60, 3)
    assert ioi_task(20, 3).examples == task.examples[:20] != ioi_task(20, 4).examples
    assert len({each.input for each in task.examples}) == 60
    first = 0
    for each in task.examples:
        people = [word.strip(",") for word in each.input.split() if word.strip(",") in NAMES]
        assert people.count(each.wrong) == 2 and people.count(each.output) == 1
        other = [word.strip(",") for word in each.corrupted.split() if word.strip(",") in NAMES]
        assert other == [*people[:2], each.output]
        first += people[0] == each.output
    assert first == 30  # the orders take turns


def test_the_command_goes_on_and_its_heads_are_verified(
    tmp_path: Path, command: Callable[..., Said]
) -> None:
    words = (
        *("find", "attribution", "--task", "plural-de", "--limit", 12, "--measure", "difference"),
        *("--steps", 2, "--patch", 2, "--batch-tokens", 150, "--out", tmp_path / "run", "--json"),
    )
    first = json_of(command(*words).out)
    assert first["corruption"] > 0 and first["measure"] == "difference"
    assert -1 <= first["patched"]["all"]["value"] <= 1
    parts = sorted((tmp_path / "run" / "parts").rglob("*.safetensors"))
    assert len(parts) > 1
    parts[-1].unlink()
    (tmp_path / "run" / "DONE.json").unlink()
    again = json_of(command(*words).out)
    assert {**again, "seconds": 0} == {**first, "seconds": 0}
    products = read_scores(tmp_path / "run")["mean"].statistics["products"]
    assert len(products) == first["examples"] <= 12
    circuit = ("verify", "circuit", "--heads", tmp_path / "run", "--draws", 2, "--k", 20)
    verified = json.loads(command(*circuit, "--task", "plural-de", "--json",
                                  "--out", tmp_path / "circuit").out)  # fmt: skip
    assert verified["details"]["leakage"]["overlap"] == 0
    sentences = rows(tmp_path / "ioi.tsv", COLUMNS, *(
        (each.input, each.corrupted, each.output, each.wrong) for each in ioi_task(9).examples
    ))  # fmt: skip
    tiny = ("--model", helpers.saved(tmp_path / "model"), "--task", sentences)
    found = ("find", "attribution", *tiny, "--steps", 0, "--held-out", 4, "--out", tmp_path / "ioi")
    assert command(*found).code == 0
    twice = command("find", "attribution", "--task", "plural-de", "--task", "past-en")
    assert twice.code == 2 and "name one" in twice.err
    refused = command("verify", "circuit", *tiny, "--heads", tmp_path / "ioi", "--draws", 2)
    assert refused.code == 2 and "found on" in refused.err
