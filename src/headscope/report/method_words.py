"""What the report says of each method of finding heads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["MethodWords", "method_words"]


@dataclass(frozen=True)
class MethodWords:
    """The words for the runs of one command.

    Attributes:
        name: of the method.
        lead: what was asked, a sentence that ends the page's title.
        score: what a score says, a sentence.
        chance: what chance is, a sentence without a full stop; empty where there is none.
        examples: one of what intervals are over, and several.
        extra: headings of further columns, by their name in the scores.
    """

    name: str
    lead: str
    score: str
    chance: str = ""
    examples: tuple[str, str] = ("example", "examples")
    extra: Mapping[str, str] = field(default_factory=dict)


def method_words(command: str) -> MethodWords:
    """The words for a command such as `find induction`; plain ones for one that is not known."""
    known = _WORDS.get(command)
    name = command.removeprefix("find ")
    return known or MethodWords(name, "One score for every attention head.", "Higher means more.")


_WORDS = {
    "find induction": MethodWords(
        "Induction heads",
        "Which attention heads look at what followed the same token before.",
        "Blocks of random tokens are read twice. A head's score is the share of tokens of the "
        "second reading from which it looks most at the token that came after the same one in the "
        "first reading.",
        "the mean over all places of the block, so that a head that only looks somewhere into the "
        "block scores no more than this",
        ("block", "blocks"),
        {
            "duplicate": "On the same token",
            "previous_token": "On the token before",
            "previous_token_text": "On the token before, in text",
        },
    ),
    "verify heads": MethodWords(
        "Single removal",
        "What every attention head by itself costs the reference translation.",
        "A score is how much the NLL of the reference translation rises, in nats a token, when "
        "this head alone writes zeros: the mean over sentences of the mean over tokens. Other "
        "heads may stand in for a removed one (backup heads), so it is a lower bound of what the "
        "head does.",
        "",
        ("sentence", "sentences"),
        {
            "mean_ablation": "Mean ablation",
            "linked": "First token of linked words",
            "linked_later": "Later tokens",
            "unlinked": "Unlinked tokens",
        },
    ),
    "find retrieval": MethodWords(
        "Retrieval heads",
        "Which attention heads look at a hidden fact while the model copies it out.",
        "A fact is hidden in a longer text and asked for. Of the tokens of the fact that the "
        "model generates, a head's score is the share at which it looks most at that same token "
        "of the hidden fact.",
        "the same looks, were the fact hidden at every other place of its text",
        ("prompt", "prompts"),
        {"elsewhere": "Same token elsewhere"},
    ),
    "find patching": MethodWords(
        "Activation patching",
        "Which attention heads carry another target language, or another meaning, over.",
        "At the last token of a prompt for a word translation, one head's output is replaced by "
        "the one it has in a prompt for another word into another language. The score is the "
        "change in the probability of the word in that other language (language), or of the "
        "other word in the language asked for (concept).",
        "the same change when the output comes from a prompt that has nothing to do with the two",
        ("pair of prompts", "pairs of prompts"),
        {"both": "Other answer", "kept": "Own answer"},
    ),
    "find first-order": MethodWords(
        "First-order importance",
        "How steeply the loss changes when a head's gate moves.",
        "The score of a head is the mean over documents of the absolute gradient of the loss with "
        "respect to the head's gate, in nats a token, at the untouched model.",
        examples=("document", "documents"),
    ),
    "find lahis": MethodWords(
        "Language heads",
        "How much text of a language depends on each attention head.",
        "The score of a head is the mean over documents of its gate times the gradient of the "
        "loss, without sign, times the share of documents whose loss falls when the head is "
        "strengthened.",
        examples=("document", "documents"),
    ),
    "find causal-gating": MethodWords(
        "Causal head gating",
        "Which attention heads help a task, hinder it, or do nothing.",
        "Two gates are trained for every head, one drawn towards keeping it and one towards "
        "removing it. High in both: the task needs the head. Low in both: the head gets in its "
        "way. Where they differ it does not matter.",
    ),
    "find mask": MethodWords(
        "Learned head mask",
        "Which attention heads a task keeps when its instruction is taken away.",
        "The score of a head is the trained weight of its mask; at 0 or above it is kept.",
    ),
    "find soft-gate": MethodWords(
        "Soft gates",
        "How strong a few chosen heads become when answers are trained.",
        "The score of a head is how far its trained gate is from 1, the untouched model, on "
        "average over seeds; heads that were not trained score 0.",
    ),
    "find translation-score": MethodWords(
        "Token alignment heads",
        "How often each attention head looks at the source word that is being translated.",
        "The score of a head is the share of target tokens for which it looks most at the source "
        "word that is aligned with them.",
        "the same looks against the word links of other sentences",
    ),
}
