"""What the model writes with the heads in place and without them, sentence by sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from headscope.report.html import Html, tag
from headscope.report.parts import section
from headscope.report.record import AtlasRecord, Sentence
from headscope.report.words import MEAN, arrow, count, fixed, languages_of

__all__ = ["bigram_similarity", "chosen", "examples_section"]

CHANGED, KEPT = 15, 5
UNTOUCHED = 0.02
"""Loss of similarity, in absolute value, up to which a sentence counts as untouched."""


@dataclass(frozen=True)
class Example:
    """A sentence and the similarity of its outputs to the reference, before and after."""

    sentence: Sentence
    before: float
    after: float

    @property
    def loss(self) -> float:
        return self.before - self.after


def bigram_similarity(text: str, other: str) -> float:
    """Dice coefficient of the character bigrams of two texts, 0 to 1 (Dice 1945).

    Case and the amount of white space are ignored. It needs no tokenizer and suits every script;
    it only chooses examples and is no measure of translation quality.
    """
    one, two = _bigrams(text), _bigrams(other)
    size = one.total() + two.total()
    return 2 * (one & two).total() / size if size else 1.0


def chosen(sentences: Sequence[Sentence]) -> tuple[list[Example], list[Example]]:
    """The sentences that lost most similarity, and the first untouched ones, in file order."""
    examples = [_example(sentence) for sentence in sentences]
    ranked = sorted(examples, key=lambda example: -example.loss)
    changed = [example for example in ranked if example.loss > UNTOUCHED][:CHANGED]
    kept = [example for example in examples if abs(example.loss) <= UNTOUCHED][:KEPT]
    return changed, kept


def examples_section(record: AtlasRecord) -> Html | None:
    """Examples of every direction, one direction shown at a time."""
    groups: dict[str, list[Sentence]] = {name: [] for name in record.directions}
    for sentence in record.sentences:
        groups.setdefault(sentence.direction, []).append(sentence)
    groups = {name: group for name, group in groups.items() if group}
    if not groups:
        return None
    blocks = [_group(name, group, shown=name == record.main) for name, group in groups.items()]
    if record.main == MEAN:
        blocks.insert(0, _overview(groups))
    words = (
        "Chosen, not typical: of every direction the up to "
        f"{CHANGED} sentences whose output lost most similarity to the reference when the highest "
        f"heads were removed, then the first {KEPT} that were hardly touched. Similarity is the "
        "share of character pairs in common (Dice), a rough measure that needs no library. "
        "\u201cRandom removed\u201d is the first random draw."
    )
    if record.main == MEAN:
        words += (
            " For the mean, the most changed sentence of each direction is shown; choose a "
            "direction at the top of the page for more."
        )
    return section("examples", "In sentences", tag("p", words, class_="note"), blocks)


def _overview(groups: dict[str, list[Sentence]]) -> Html:
    first = [chosen(group)[0][:1] for group in groups.values()]
    cards = [_card(example) for part in first for example in part]
    return tag("div", cards, data_examples=MEAN)


def _group(name: str, sentences: Sequence[Sentence], shown: bool) -> Html:
    changed, kept = chosen(sentences)
    same = sum(sentence.baseline == sentence.top for sentence in sentences)
    return tag(
        "div",
        tag(
            "p",
            f"{arrow(name)}: of {count(len(sentences), 'sentence')}, {same} kept their output to "
            "the letter without the highest heads.",
            class_="note",
        ),
        tag("h3", "Most changed") if changed else None,
        [_card(example) for example in changed],
        tag("h3", "Hardly touched") if kept else None,
        [_card(example) for example in kept],
        data_examples=name,
        hidden=not shown,
    )


def _card(example: Example) -> Html:
    sentence = example.sentence
    source, target = languages_of(sentence.direction)
    title = tag(
        "header",
        tag("bdi", arrow(sentence.direction)),
        tag("bdi", sentence.id, class_="id"),
        tag(
            "span",
            "similarity to the reference ",
            tag("b", f"{fixed(example.before, 2)} \u2192 {fixed(example.after, 2)}"),
        ),
    )
    texts = [
        ("source", "Source", sentence.source, source),
        ("reference", "Reference", sentence.reference, target),
        ("base", "As is", sentence.baseline, None),
        ("top", "Highest removed", sentence.top, None),
    ]
    if sentence.random is not None:
        texts.append(("random", "Random removed", sentence.random, None))
    return tag(
        "article",
        title,
        tag("dl", [_text(*text) for text in texts]),
        class_="example",
    )


def _text(kind: str, label: str, text: str, language: str | None) -> Html:
    shown = tag("dd", text, dir="auto", lang=language and language.replace("_", "-"))
    if not text.strip():
        shown = tag("dd", tag("em", "(nothing)"))
    return tag("div", tag("dt", label), shown, class_=f"text {kind}")


def _example(sentence: Sentence) -> Example:
    return Example(
        sentence,
        bigram_similarity(sentence.baseline, sentence.reference),
        bigram_similarity(sentence.top, sentence.reference),
    )


def _bigrams(text: str) -> Counter[str]:
    plain = " ".join(text.casefold().split())
    padded = f" {plain} " if plain else ""  # so that a single character has pairs, too
    return Counter(padded[start : start + 2] for start in range(len(padded) - 1))
