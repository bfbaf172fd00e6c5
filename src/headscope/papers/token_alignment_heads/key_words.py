"""Whether the heads look at the words on which a prompt turns (Figures 22 to 27)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.data.words import split_words
from headscope.find.key_attention import KeyTokens
from headscope.heads import count_of
from headscope.papers.claims import with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.token_alignment_heads.cells import cell, percent, sentence, text
from headscope.papers.token_alignment_heads.setting import THRESHOLD, in_chat, top
from headscope.papers.token_alignment_heads.steps import score_steps
from headscope.pocket.tasks import CROSS_LINGUAL, TASKS
from headscope.runs import encode
from headscope.shown.blocks import Bars, Claim, Findings, Row, Table
from headscope.studies.costs.work import Work
from headscope.studies.find.key_tokens import FindKeyTokens, find_key_tokens
from headscope.studies.inputs import Progress

#: Tasks of the pocket world that prompts are taken from, and prompts of each.
POCKET = ("pocket_translate_sentences", "pocket_repeat_sentences", "pocket_plurals")
EACH = 2
#: Key words of a prompt of the pocket world: its longest words.
WORDS = 2
#: Heads that a table shows for each prompt.
SHOWN = 4
OWN_PROMPTS = Missing(
    "the paper's prompts and key words are French and German texts that the bundled model cannot "
    "read; prompts of its own world are told instead",
    "--model MODEL",
    "needs MODEL",
)


@dataclass(frozen=True)
class Prompted:
    """One prompt with its answer and the words on which it turns.

    `mapping` is whether the paper takes such prompts to need a mapping between languages.
    """

    name: str
    prompt: str
    answer: str
    words: tuple[str, ...]
    mapping: bool

    def __call__(self, setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
        """Measure the attention of every head on its key words."""
        chat = in_chat(setting)
        measure = KeyTokens(self.words, self.answer, draws=0, chat=chat, seed=setting.seed)
        scores = str(setting.at("scores"))
        config = FindKeyTokens(self.prompt, scores, measure, "100%", setting.model, "score")
        result: Mapping[str, Any] = encode(find_key_tokens(config, out, progress))
        return result


def _steps(setting: Setting) -> tuple[Step, ...] | Missing:
    own = (
        Step(
            f"key-words-{one.name}",
            f"attention on the key words of {one.name}",
            one,
            Work(forward=len(one.prompt) / 3, length=len(one.prompt) / 3, calls=1),
            ("scores",),
        )
        for one in prompts(setting)
    )
    return score_steps(setting, *own)


def prompts(setting: Setting) -> tuple[Prompted, ...]:
    """Prompts in French and German, written by us; of the bundled model those of its own tasks.

    Endings to choose stand for Figures 22 and 23, with the paper's key words; inferences for 24 and
    25 and pronouns for 26 and 27, whose key words the paper shows in pictures alone.
    """
    if not setting.pocket:
        lines = files("headscope.papers") / "data" / "key_words.jsonl"
        rows = map(json.loads, lines.read_text("utf-8").splitlines())
        return tuple(Prompted(**row | {"words": tuple(row["words"])}) for row in rows)
    known = {task.name: task for task in TASKS}
    found = []
    for name in POCKET:
        for number, row in enumerate(islice(known[name].rows("test", setting.seed), EACH), 1):
            within = row.get("source") or row["prompt"].splitlines()[1].partition(": ")[2]
            own = name.removeprefix("pocket_").replace("_", "-")
            answer, across = row["choices"][row["answer"]], known[name] in CROSS_LINGUAL
            found.append(
                Prompted(f"{own}-{number}", row["prompt"], answer, longest(within), across)
            )
    return tuple(found)


def longest(text: str) -> tuple[str, ...]:
    """The longest words of a text, in its order; of equal length the first."""
    found = [one.text for one in split_words(text, links_given=False)]
    known = [one for one in dict.fromkeys(found) if any(map(str.isalnum, one))]
    most = sorted(known, key=lambda one: -len(one))[:WORDS]
    return tuple(one for one in known if one in most)


def compared(
    attention: Mapping[tuple[int, int], float], scores: Mapping[tuple[int, int], float], k: int
) -> dict[str, Any]:
    """Attention of the k heads that score best, and of the others.

    Both maps are by (layer, head). `best` is the head that looks most, with its score; `beside`
    the share of other heads that look as much as the mean of the chosen ones.
    """
    order = sorted(scores, key=lambda head: (-scores[head], head))
    chosen, others = order[:k], order[k:]
    mean = fmean(attention[head] for head in chosen)
    most = max(attention, key=lambda head: attention[head])
    return {
        "chosen": mean,
        "others": fmean(attention[head] for head in others) if others else None,
        "beside": (
            sum(attention[head] >= mean for head in others) / len(others) if others else None
        ),
        "most": most,
        "most_attention": attention[most],
        "most_score": scores[most],
    }


def _tell(setting: Setting) -> Findings:
    scores = setting.result("scores")
    if scores is None:
        return Findings()
    known = {(one["layer"], one["head"]): one["score"] for one in scores["heads"]}
    k = count_of(top(setting), setting.geometry.total)
    rows, bars, names, heads = [], [], [], []
    facts: dict[str, dict[str, Any]] = {}
    for one in prompts(setting):
        found = setting.result(f"key-words-{one.name}")
        if found is None:
            continue
        attention = {(each["layer"], each["head"]): each["score"] for each in found["heads"]}
        fact = compared(attention, known, k) | {"even": found["uniform"], "mapping": one.mapping}
        facts[one.name] = fact
        names.append(one.name)
        layer, head = fact["most"]
        rows.append(
            Row(
                one.name,
                (
                    text(", ".join(one.words)),
                    cell(fact["chosen"]),
                    cell(fact["others"], why="no other heads"),
                    cell(fact["even"]),
                    cell(percent(fact["beside"]), digits=1, why="no other heads"),
                    text(f"{layer}.{head}"),
                    cell(fact["most_attention"]),
                    cell(fact["most_score"]),
                ),
            )
        )
        bars.append((fact["chosen"], fact["others"], fact["even"]))
        heads += _heads(one.name, attention, known)
    if not rows:
        return Findings()
    columns = (
        "key words",
        f"top {k}",
        "other heads",
        "even",
        "others as high %",
        "head that looks most",
        "its attention",
        "its translation score",
    )
    note = sentence(
        "Mean attention on the key words while the right answer is predicted. Even: were attention "
        "spread over all visible tokens alike.",
        f"Prompts and their {WORDS} longest words are of the pocket world and stand for none of "
        "the paper's, which are of HellaSwag, XNLI and XWinograd."
        if setting.pocket
        else "The prompts are ours. Key words of the French ending are the paper's, those of the "
        "German one translate them (Figure 23 prints the French ones beside its German prompt); of "
        "inferences (XNLI) and pronouns (XWinograd) its text tells none, so these are ours, too.",
    )
    title = "Attention on key words" + (" of prompts of its own world" if setting.pocket else "")
    table = Table(title, columns, tuple(rows), note=note)
    single = Table(
        "The heads with the highest translation scores",
        ("attention on key words", "translation score"),
        tuple(heads),
    )
    figure = Bars(
        title, tuple(names), (f"top {k}", "other heads", "even"), tuple(bars), "attention", digits=2
    )
    said, sure = key_words(facts)
    return Findings((table, single), (figure,), said, sure, key_word_claim(facts))


def key_word_claim(facts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """That the heads look away where no mapping is needed; empty without such a prompt."""
    plain = [one for one in facts.values() if one["mapping"] is False]
    if not plain:
        return {}
    looking = sum(_looks(one) for one in plain)
    holds = True if not looking else False if looking == len(plain) else None
    by = f"the best heads look at the key words in {looking} of {len(plain)} prompts"
    name = "token alignment heads look away from words that need no mapping"
    return with_claims(Claim(name, holds, by, decides="more prompts that need no mapping"))


def _looks(fact: Mapping[str, Any]) -> bool:
    """Whether the best heads look at the key words more than the others do."""
    return fact["others"] is None or bool(fact["chosen"] > fact["others"])


def _heads(
    name: str, attention: Mapping[tuple[int, int], float], scores: Mapping[tuple[int, int], float]
) -> list[Row]:
    order = sorted(scores, key=lambda head: (-scores[head], head))[:SHOWN]
    return [
        Row(f"{name}: {layer}.{head}", (cell(attention[layer, head]), cell(scores[layer, head])))
        for layer, head in order
    ]


def key_words(facts: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """In how many prompts the heads look at the key words more than the others do."""
    names: Sequence[str] = list(facts)
    more = [name for name in names if _looks(facts[name])]
    aligned = sum(facts[name]["most_score"] > THRESHOLD for name in names)
    less = [name for name in names if name not in more]
    said = (
        f"In {len(more)} of {len(names)} prompts the best heads look at the key words more than "
        f"the other heads do{_listed(more)}, in {len(less)} they do not{_listed(less)}. The head "
        f"that looks most at them is a token alignment head in {aligned} of {len(names)}."
    )
    plain = [name for name in names if facts[name]["mapping"] is False]
    beside = (
        f"Of the {len(plain)} prompts that need no mapping between languages it is so in "
        f"{len([name for name in plain if name in more])}; the paper's heads look away from the "
        "key words of tasks that need none."
        if plain
        else ""
    )
    return sentence(
        said, beside
    ), "Single prompts, as in the paper: they show cases and have no intervals."


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


KEY_WORDS = Experiment(
    "figure-22",
    ("Figure 22", "Figure 23", "Figure 24", "Figure 25", "Figure 26", "Figure 27"),
    "Whether these heads look at the words on which a prompt turns",
    _steps,
    _tell,
    lambda setting, element, steps: OWN_PROMPTS if setting.pocket else None,
)
