"""What models learn from texts that need the heads (Table 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headscope.measure.intervals import t_interval
from headscope.papers.claims import with_claims
from headscope.papers.paper import Experiment, Missing, Setting, Step
from headscope.papers.published import published, reference, value
from headscope.papers.token_alignment_heads.cells import (
    cell,
    change,
    less,
    range_of,
    sentence,
)
from headscope.papers.token_alignment_heads.setting import NAME
from headscope.papers.trater import TraterExperiment, trater_experiment
from headscope.papers.trater.evidence import TRAINED, published_selection
from headscope.papers.trater.result import MEASURES
from headscope.runs import encode
from headscope.shown.blocks import Bars, Cell, Claim, Findings, Row, Table
from headscope.studies.costs.work import Work
from headscope.studies.inputs import Progress

KINDS = ("baseline", "remove", "enhance")
#: What the mixtures other than the corpus as it is hold, and which way the paper's scores go.
MIXTURES = {"remove": "without the selected texts", "enhance": "with three times as many of them"}
RANDOM = {
    "remove random": "without as many random ones",
    "enhance random": "with three times as many random ones",
}
WAYS = {"remove": -1, "enhance": 1}
#: The column of Table 1 that is measured here.
COLUMN = "flores_chrF++"
#: Tokens of a document of the pocket world.
POCKET_TOKENS = 70


def _training_steps(setting: Setting) -> tuple[Step, ...] | Missing:
    if not setting.pocket:
        return Missing(
            "the paper trains models of 1.5 billion parameters from nothing on 1T tokens of web "
            "text; only the pocket model is trained here",
            coverage="needs MODEL",
        )
    config = TraterExperiment()
    trainings = (len(KINDS) + len(RANDOM)) * len(config.seeds)
    work = Work(
        training=config.tokens * trainings,
        length=32,
        rows=config.batch_tokens / 32,
        calls=config.tokens * trainings / config.batch_tokens,
    )
    rated = Work(forward=2 * 2.5e6, length=POCKET_TOKENS, rows=100, calls=700)
    return (
        Step(
            "trater",
            "models trained from nothing on rated texts",
            _train,
            work + rated,
            stored="trater-pocket",
        ),
    )


def _train(setting: Setting, out: Path, progress: Progress | None) -> Mapping[str, Any]:
    return encode(trater_experiment(TraterExperiment(), out, progress))


def _tell_trainings(setting: Setting) -> Findings:
    found = setting.result("trater")
    if found is None:
        return Findings()
    conditions = {one["kind"]: one for one in found["conditions"]}
    others = tuple(
        dict.fromkeys(
            one.column
            for one in published(NAME)
            if one.table == "Table 1" and one.row == KINDS[0] and one.column != COLUMN
        )
    )
    kinds = (*KINDS, *(kind for kind in RANDOM if kind in conditions))
    rows = tuple(Row(_named(kind), (_trained(conditions.get(kind), kind),)) for kind in kinds)
    table = Table(
        "Models trained on mixtures",
        ("chrF++",),
        rows,
        reference(
            NAME,
            "Table 1",
            setting.model.model,
            default=TRAINED,
            differs=("other data", "our mixtures"),
        ),
        sentence(
            "Another experiment than the paper's: models of the pocket world's two languages, on a "
            f"corpus that is {found['corpus']['bilingual_share_of_tokens']:.0%} bilingual.",
            f"Stored result of commit {found['machine']['commit'][:7]}."
            if found.get("machine", {}).get("commit")
            else "",
            "Ours: chrF++ of held-out sentences by the translation prompt, mean of "
            f"{len(conditions[KINDS[0]]['seeds'])} seeds."
            if KINDS[0] in conditions
            else "",
            f"The paper's other benchmarks ({', '.join(others)}) do not exist for this world.",
            _selected(conditions),
            _power(found.get("power") or []),
            str(found.get("note") or ""),
        ),
    )
    headings = tuple(heading for _, heading, _ in MEASURES)
    changes = [
        Row(_named(kind), _changes(conditions[kind]["differences"]))
        for kind in kinds[1:]
        if kind in conditions
    ]
    beside = [
        Row(f"{kind}, less random", _changes(conditions[kind]["against_random"]))
        for kind in KINDS[1:]
        if "against_random" in conditions.get(kind, {})
    ]
    guessed = ", ".join(
        f"{heading} {found['chance'][key]:.0f}"
        for key, heading, _ in MEASURES
        if key in found.get("chance", {})
    )
    own = Table(
        "Differences to the corpus as it is, and to random selections",
        headings,
        (*changes, *beside),
        note=sentence(
            "Means of differences between trainings of the same seed. Intervals are over test "
            "sentences and items alone. The gain is what the source before a translation is worth "
            "in nats a token. Words and questions are answered by the choice with the lowest loss.",
            f"Guessing gets {guessed}." if guessed else "",
        ),
    )
    figure = Bars(
        "chrF++ after training",
        tuple(map(_named, conditions)),
        ("prompt", "document"),
        tuple((one["chrf_prompt"], one["chrf_document"]) for one in conditions.values()),
        "chrF++",
    )
    said, sure = trater_words(conditions)
    return Findings((table, own), (figure,), said, sure, trater_claim(conditions))


def trater_claim(conditions: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """That translation falls without the selected texts and rises with more of them."""
    if any(kind not in conditions for kind in KINDS):
        return {}
    random = all("against_random" in conditions[kind] for kind in MIXTURES)
    measured = {
        kind: conditions[kind]["against_random" if random else "differences"]["chrf_prompt"]
        for kind in MIXTURES
    }
    by = ", ".join(
        f"chrF++ {range_of(measured[kind])} {name}"
        + ("" if (theirs := _published_change(kind)) is None else f" (paper {theirs:+.1f})")
        for kind, name in MIXTURES.items()
    )
    by += ", beside random selections" if random else ""
    by = f"{by}; the direction alone is compared"
    sides = [_side(one) * WAYS[kind] for kind, one in measured.items()]
    holds = False if -1 in sides else True if random and set(sides) == {1} else None
    seeds = len(conditions[KINDS[0]]["seeds"])
    tested = f"{seeds} trainings of each and intervals over sentences and over trainings"
    decides = "more trainings" if random else "models trained on random selections of the same size"
    decides = "" if holds is not None else decides
    name = "texts that need the heads teach translation"
    return with_claims(Claim(name, holds, by, tested, decides=decides))


def _side(change: Mapping[str, Any]) -> int:
    """1 or -1 where the intervals over sentences and over trainings both lie there, else 0."""
    seeds = change.get("by_seed") or ()
    if change.get("low") is None or len(seeds) < 2:
        return 0
    bounds = [change["low"], change["high"], *t_interval(seeds)]
    return 1 if min(bounds) > 0 else -1 if max(bounds) < 0 else 0


def _power(reckoned: Sequence[Mapping[str, Any]]) -> str:
    """Whether trainings at the paper's share could show anything."""
    if not reckoned:
        return ""
    each = "; ".join(
        f"{one['kind']} {one['change']:+.1f} chrF++, power {one['power']:.2f}" for one in reckoned
    )
    enough = all(one["enough"] for one in reckoned)
    return (
        "At the share that the paper selects as many trainings would be expected to show "
        f"{each}, along the flatter and the steeper side of the trained mixtures: "
        f"{'enough' if enough else 'too little, so none was trained'}."
    )


def _selected(conditions: Mapping[str, Mapping[str, Any]]) -> str:
    """Which share was selected, here and in the paper."""
    ours = next((one["share"] for one in conditions.values() if one.get("share")), None)
    theirs = published_selection()
    if ours is None or theirs is None:
        return ""
    return f"Selected are {ours:.0%} of the tokens; in the paper {theirs:.1%} of each language."


def _named(kind: str) -> str:
    """A mixture by the paper's name and in words."""
    return f"{kind}: {(MIXTURES | RANDOM).get(kind, 'the corpus as it is')}"


def _published(kind: str) -> float | None:
    """The paper's chrF++ of a mixture; it has no random ones."""
    return value(NAME, "Table 1", model=TRAINED, row=kind, column=COLUMN, measure="chrf")


def _published_change(kind: str) -> float | None:
    return less(_published(kind), _published(KINDS[0]))


def _trained(one: Mapping[str, Any] | None, kind: str) -> Cell:
    ours = None if one is None else one["chrf_prompt"]
    return cell(ours, published=_published(kind), digits=2)


def _changes(found: Mapping[str, Any]) -> tuple[Cell, ...]:
    return tuple(change(found.get(name, {}), digits) for name, _, digits in MEASURES)


def trater_words(conditions: Mapping[str, Mapping[str, Any]]) -> tuple[str, str]:
    """What translation and plain text lose or gain by the mixtures."""
    base = conditions.get("baseline")
    if base is None:
        return "", ""
    said = [f"The corpus as it is gives chrF++ {base['chrf_prompt']:.1f}."]
    sure = []
    for kind, name in MIXTURES.items():
        if kind not in conditions:
            said.append(f"The mixture {name} was not trained.")
            continue
        one = conditions[kind]["differences"]["chrf_prompt"]
        theirs = _published_change(kind)
        beside = "" if theirs is None else f" (paper {theirs:+.1f})"
        said.append(f"{name.capitalize()} it changes by {range_of(one)}{beside}.")
        seeds = one.get("by_seed") or []
        agree = sum(each * one["value"] > 0 for each in seeds)
        if seeds:
            sure.append(f"{agree} of {len(seeds)} seeds agree {name}.")
    plain = [
        f"{conditions[kind]['differences']['plain_nll']['value']:+.2f} {name}"
        for kind, name in MIXTURES.items()
        if kind in conditions and "plain_nll" in conditions[kind]["differences"]
    ]
    if plain:
        said.append(f"The NLL of plain text changes, in nats a token, by {' and by '.join(plain)}.")
    return sentence(*said), sentence(*sure)


TRAININGS = Experiment(
    "table-1",
    ("Table 1",),
    "Another experiment than the paper's: small models learn from texts that need these heads",
    _training_steps,
    _tell_trainings,
    apart=True,
)
