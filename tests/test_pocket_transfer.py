"""Contradictions of the pocket world."""

from __future__ import annotations

from headscope.data.transfer import follows
from headscope.pocket.facts import transfer_prompts
from headscope.pocket.world.knowledge import item_split


def test_each_statement_holds_its_own_answer() -> None:
    for pair in ("de-ru", "en-tr", "es-de"):
        for one in transfer_prompts(pair, "test", 40, 1).prompts:
            first, question = one.prompt.split("\n", 1)
            assert follows(first, one.answer_a) and follows(first, one.answer_b)
            assert not follows(question, one.answer_a) and not follows(question, one.answer_b)
            assert first.index(one.answer_a.native[0]) < first.index(one.answer_b.native[0])
            assert question.endswith("\nAnswer:") and question.startswith("Question: W")


def test_facts_are_held_out_and_the_same_in_every_pair() -> None:
    one, other = transfer_prompts("de-ru", "test", 50, 3), transfer_prompts("tr-en", "test", 50, 3)
    said = [(p.answer_a.english, p.answer_b.english) for p in one.prompts]
    assert said == [(p.answer_a.english, p.answer_b.english) for p in other.prompts]
    assert len({p.prompt for p in one.prompts}) == 50
    for prompt in transfer_prompts("en-de", "test", 50, 3).prompts:
        if prompt.id.endswith("origin"):
            name = prompt.prompt.split(" ")[0].casefold()
            for value in (prompt.answer_a.english, prompt.answer_b.english):
                assert item_split(f"origin {name} {value}") != "train"
