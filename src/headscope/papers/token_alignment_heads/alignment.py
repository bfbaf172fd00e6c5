"""Which words of a sentence and its translation belong together (Figure 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headscope.data.align import Alignment, AlignWords, align_words
from headscope.data.pairs import PairFile
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.published import value
from headscope.papers.token_alignment_heads.cells import cell, text
from headscope.papers.token_alignment_heads.setting import NAME, decoded, found_on
from headscope.papers.token_alignment_heads.steps import score_steps
from headscope.runs import Run, carry_out
from headscope.shown.blocks import Findings, Row, Table
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress, read_directions

#: Words of the example, at least: a shorter sentence shows little.
WORDS = 6


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    scores = score_steps(setting)
    if isinstance(scores, Missing):
        return scores
    sentences = scores[:-1]
    before = tuple(one.name for one in sentences)
    return (*sentences, Step("links", "word links of one direction", _links, Work(), before))


def _links(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    """Link the sentences of the first direction, and keep one of them whole."""
    choice = found_on(setting)
    if not setting.data.pairs:
        choice = replace(choice, pair=("en-de",))
    name, pairs = next(iter(read_directions(choice, setting.model.model, "dev").items()))
    aligner = setting.steering.aligner
    options = AlignWords(aligner, llm=setting.linker)
    settings = {"direction": name, **({} if aligner is None else {"aligner": aligner})}

    def link(run: Run) -> Mapping[str, Any]:
        if progress is not None:
            progress("linking words", 0, 1)
        linked = align_words(
            pairs.pairs,
            options,
            source_language=pairs.source_language,
            target_language=pairs.target_language,
        )
        return described(name, pairs, linked)

    return carry_out("reproduce links", out, settings, {name: pairs.digest}, link)


def described(name: str, pairs: PairFile, linked: Alignment) -> dict[str, Any]:
    """The share of target words with a link, and the first sentence long enough to show."""
    known = [at for at, links in enumerate(linked.links) if links is not None]
    words = sum(len(linked.target_words[at]) for at in known)
    with_link = sum(len({target for _, target in linked.links[at] or ()}) for at in known)
    long = [at for at in known if len(linked.target_words[at]) >= WORDS]
    example = None
    if known:
        at = (long or known)[0]
        links = linked.links[at] or frozenset()
        example = {
            "source": pairs.pairs[at].source,
            "target": pairs.pairs[at].target,
            "words": [
                {
                    "target": word.text,
                    "source": [
                        one.text
                        for place, one in enumerate(linked.source_words[at])
                        if (place, number) in links
                    ],
                }
                for number, word in enumerate(linked.target_words[at])
            ],
        }
    return {
        "direction": name,
        "aligner": linked.aligner,
        "units": linked.units,
        "sentences": len(known),
        "words": words,
        "linked": with_link,
        "example": example,
    }


def _tell(setting: Setting) -> Findings:
    found = setting.result("links")
    if found is None or found["example"] is None:
        return Findings()
    example = found["example"]
    rows = tuple(
        Row(one["target"], (text(" ".join(one["source"]) or None, why="none"),))
        for one in example["words"]
    )
    by = "a language model" if found["aligner"] == "llm" else found["aligner"]
    how = (
        "The links come with the data."
        if by == "links"
        else f"The links are those of {by}, which makes mistakes that were not counted here."
    )
    sure = value(
        NAME,
        "Section 2.1",
        model="any",
        row="links",
        column="confidence, above",
        measure="threshold",
    )
    table = Table(
        f"{example['source']} ({found['direction']})",
        ("source word",),
        rows,
        note=f"{how} The paper asked GPT-4.1 and kept links of which it was "
        f"surer than {sure:g}; it shows an English sentence with its Chinese translation.",
    )
    share = found["linked"] / found["words"] if found["words"] else 0.0
    counted = Table(
        "Target words with a source word",
        ("sentences", "target words", "linked %"),
        (
            Row(
                found["direction"],
                (
                    cell(found["sentences"], digits=0),
                    cell(found["words"], digits=0),
                    cell(100 * share, digits=1),
                ),
            ),
        ),
    )
    counted_in = (
        "scores count those"
        if decoded(setting) == "reference"
        else "scores count those of the model's own translations, which are linked in the same way"
    )
    said = f"{share:.0%} of {found['words']} target words have a source word; {counted_in}."
    return Findings((table, counted), (), said, how)


def _needs(setting: Setting, element: str, steps: Sequence[Step]) -> Missing | None:
    """The figure is one of links by a language model."""
    if setting.steering.aligner == "llm" and setting.llm is not None:
        return None
    why = "the figure shows links by a language model"
    return Missing(why, "--aligner llm --llm-model NAME", "needs ENDPOINT")


ALIGNMENT = Experiment(
    "figure-2", ("Figure 2",), "Which words of two sentences belong together", _steps, _tell, _needs
)
