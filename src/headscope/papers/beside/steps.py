"""The runs behind the experiments: heads are scored and removed on references."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headscope.find.translation import TranslationScore
from headscope.heads import Amount
from headscope.papers.paper import Missing, Setting, Step
from headscope.papers.token_alignment_heads import setting as papers
from headscope.papers.token_alignment_heads.steps import score_steps, sentences_of
from headscope.runs import encode
from headscope.studies.find.links import (
    FindAttentionMass,
    FindByLinks,
    find_attention_mass,
    find_by_links,
)
from headscope.studies.inputs import PairsChoice, Progress
from headscope.studies.verify.copying import VerifyCopying, verify_copying
from headscope.studies.verify.heads import VerifyHeads, verify_heads
from headscope.studies.verify.removal import VerifyRemoval, verify_removal
from headscope.studies.verify.together import VerifyTogether, verify_together
from headscope.verify.removal import Removal

#: Directions of the pocket world in which every language is once the source and once the target.
RING = ("en-de", "de-es", "es-ru", "ru-tr", "tr-en")
#: The most sentences of a direction of other data.
MOST = 100
#: Random sets beside each set by text, of which p can fall to 0.025, and by loss.
TEXT_DRAWS, LOSS_DRAWS = 39, 99
#: How many of the best heads make pairs, and of how many sizes copies are looked at.
PAIRED, COPIED = 6, 2
SMALL, LARGE = ("5%", "15%", "25%"), (10, 20, 30, 50)


def sizes(setting: Setting) -> tuple[Amount, ...]:
    """How many heads are chosen and removed: shares of few heads, numbers of many."""
    return SMALL if setting.small else LARGE


def draws_of(setting: Setting) -> tuple[int, int]:
    """Random sets of heads whose texts are written, and whose losses are read."""
    own = setting.steering.draws
    return (TEXT_DRAWS, LOSS_DRAWS) if own is None else (own, own)


def sentences(setting: Setting, check: bool) -> PairsChoice:
    """The sentences that heads are found on, or others that they are checked on."""
    choice = papers.checked_on(setting) if check else papers.found_on(setting)
    if setting.pocket and not setting.data.pairs:
        return replace(choice, pair=RING)
    return replace(choice, limit=min(choice.limit or MOST, MOST))


def steps_of(names: tuple[str, ...], setting: Setting) -> tuple[Step, ...] | Missing:
    """These runs, in this order, behind those that make their sentences; or what is missing."""
    scores = score_steps(setting)
    if isinstance(scores, Missing):
        return scores
    work, written = (sentences_of(setting, 10, MOST, generate=one) for one in (False, True))
    share = len(RING) / 20 if setting.pocket and not setting.data.pairs else 1.0
    texts, losses = draws_of(setting)
    each = 1 + 2 * losses
    known = {  # in words, and how often the references are read
        "links": ("scores by several word links", 2),
        "mass": ("attention on the aligned word", 1),
        "sizes": ("loss without few or many heads", 1 + len(sizes(setting)) * each),
        "single": ("loss without each head", 1 + 2 * setting.geometry.total),
        "pairs": ("loss without two heads", 3 * PAIRED + 2 * each),
        "copy-loss": ("loss of copies", 2 + 2 * COPIED * (1 + losses)),
        "copies": ("what is written", 1 + COPIED * (1 + texts)),
    }
    made = list(scores[:-1])
    for name in names:
        cost = (written if name == "copies" else work) * (known[name][1] * share)
        before = tuple(one.name for one in made if one in scores or one.name in ("links", "mass"))
        full = name == "single" and not setting.small
        made.append(Step(name, known[name][0], partial(_run, name), cost, before, full))
    return tuple(made)


def _run(name: str, setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    model, heads, k = setting.model, str(setting.at("links")), sizes(setting)
    found, checked = sentences(setting, check=False), sentences(setting, check=True)
    chat, (texts, losses) = papers.in_chat(setting), draws_of(setting)
    score = TranslationScore(chat=chat, seed=setting.seed, batch_tokens=setting.batch_tokens)
    removal = Removal(draws=texts, chat=chat, seed=score.seed, batch_tokens=score.batch_tokens)
    loss = replace(removal, measure=("loss",), loss_draws=losses)
    if name == "links":
        return find_by_links(FindByLinks(model, found, score, llm=setting.linker), out, progress)
    if name == "mass":
        mass = FindAttentionMass(model, found, score)
        return dict(encode(find_attention_mass(mass, out, progress)))
    if name == "single":
        single = VerifyHeads(model, checked, removal, (heads, str(setting.at("mass"))))
        return dict(encode(verify_heads(single, out, progress)))
    if name == "pairs":
        pairs = VerifyTogether(heads, PAIRED, model, checked, loss, "score")
        return verify_together(pairs, out, progress)
    if name != "sizes":
        k, loss = k[:COPIED], replace(loss if "loss" in name else removal, layer_matched=False)
    if name == "copy-loss":
        copying = VerifyCopying(heads, k, model, checked, loss, "score")
        return verify_copying(copying, out, progress)
    sets = VerifyRemoval(heads, k, model, checked, loss, rank="score")
    return encode(verify_removal(sets, out, progress))
