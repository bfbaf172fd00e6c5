"""The papers' claims side by side: the bundled model, and two chat models from their stored runs.

python bench/paper_claims.py FOLDER

FOLDER holds the runs of `headscope reproduce PAPER --out FOLDER/PAPER` with the bundled model. Of
Qwen2.5-Coder 0.5B and 1.5B the claims are judged from `results/replication.json` by the same rule,
as far as its commands measured them. Only intervals are kept there, so errors of languages are
taken to be independent, and shares of heads have an interval over directions. Writes
`results/paper-claims.json` and prints the table.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from headscope.estimates import Estimate
from headscope.evidence.rows import Evidence, Tested
from headscope.measure.intervals import t_interval
from headscope.measure.statistics import TIE
from headscope.papers.claims import (
    Effect,
    answer_of,
    either,
    minus,
    of_count,
    of_effects,
    of_heads,
)
from headscope.papers.heads_up.cells import (
    Case,
    brought,
    interval_words,
    over_tasks,
    pooled,
    scaled,
)
from headscope.papers.heads_up.prompts import MARGIN
from headscope.papers.published import NAMES, published_claims
from headscope.papers.reproduce import typeset
from headscope.papers.token_alignment_heads.findings import removal_claims, same_claim
from headscope.results.overlap import PairOverlap
from headscope.results.removal import RemovalResult
from headscope.runs import decode
from headscope.shown.blocks import Claim

RESULTS = Path(__file__).parent / "results"
PAIRS = ("en-es", "es-en", "en-ru", "en-de", "de-en", "en-zh", "zh-en")
WORDS = ("antonym", "present-past", "english-german")
HEADS = 336
Steps = Mapping[str, Any]


def token_alignment(steps: Steps, size: str) -> list[Claim]:
    """Few heads, the same heads, and what removal costs."""
    claims = published_claims("token-alignment-heads")
    scored = [steps[f"{size}-ts-{pair}"] for pair in PAIRS]
    raw, above = (
        [of[name]["token_alignment"] / HEADS for of in scored]
        for name in ("counts", "counts_above_chance")
    )
    shares = [Estimate(fmean(each), *t_interval(each)) for each in (raw, above)]
    best = max(scored[0]["scores"], key=lambda head: head["score"] - head["chance"])
    span = Estimate(*(best[end] - best["chance"] for end in ("score", "low", "high")))
    few = of_effects(
        claims["few"],
        f"of {HEADS} heads {_share(shares[0])} score above 0.1, {_share(shares[1])} above chance by"
        f" as much (over {len(PAIRS)} directions); 200 sentences each",
        [
            Effect(span, least=0.1, among=HEADS),
            Effect(shares[0], -1, 0.08, units=len(PAIRS), decides="for"),
            Effect(shares[1], -1, 0.08, units=len(PAIRS), decides="against"),
        ],
        sure="the best head's interval, and shares over directions",
    )
    pairs = [decode(PairOverlap, pair) for pair in steps[f"{size}-overlap-k20"]["pairs"]]
    removal = RemovalResult(evidence=_table(steps[f"{size}-text-k20"]))
    return [few, *same_claim(pairs, 0.6), *removal_claims(removal, HEADS)]


def _share(share: Estimate) -> str:
    return f"{share.value:.1%} ({share.low:.1%} to {share.high:.1%})"


def _table(step: Steps) -> Evidence:
    names = ("statistics", "controls", "conditions", "levels", "tests")
    found: Evidence = decode(Evidence, {name: step[name] for name in names})
    return found


def lahis(steps: Steps) -> list[Claim]:
    """What was asked of the smaller model; its answers were not led astray."""
    claims = published_claims("lahis")
    texts, heads = _table(steps["0.5b-lahis-loss"]), steps["0.5b-lahis"]
    own = {row.of: row for row in texts.selected if row.of in texts.parts}
    changes = {(of, text): texts.level("nll", row, text) for of, row in own.items() for text in own}
    change = {key: level.change or Estimate() for key, level in changes.items() if level}
    gaps = [texts.against("nll", row, of)["random"].difference for of, row in own.items()]
    apart = [
        minus(change[of, of], pooled((), [change[of, text] for text in own if text != of]))
        for of in own
    ]
    alone, beyond, contrast = (
        pooled((), each) for each in ([change[of, of] for of in own], gaps, apart)
    )
    draws = {of: texts.of_control(row, "random") for of, row in own.items()}

    def drawn(number: int, contrasted: bool) -> float:
        """The mean over languages under random sets, another one for each language."""
        values = []
        for shift, of in enumerate(own):
            sets = draws[of]
            cost = {
                text: level.change.value
                for text in own
                if (level := texts.level("nll", sets[(number + shift) % len(sets)], text))
                and level.change
            }
            others = fmean(cost[text] for text in own if text != of) if contrasted else 0.0
            values.append(cost[of] - others)
        return fmean(values)

    def rank(value: float, contrasted: bool) -> Tested:
        n = min(map(len, draws.values()))
        as_far = sum(drawn(number, contrasted) >= value - TIE for number in range(n))
        return Tested(
            part="", condition="selected", statistic="nll", control="random", difference=beyond,
            p_draws=(1 + as_far) / (1 + n), draws=n, at_least_as_harmful=as_far,
            least_p=1 / (1 + n),
        )  # fmt: skip

    sure = "means over languages and their rank among random sets"
    transfer, gates = _table(steps["0.5b-lahis-transfer"]), _table(steps["0.5b-lahis-gates"])
    answered = gates.level("accuracy", gates.main)
    gain = (answered and answered.change) or Estimate()

    def follows(value: float, shift: Estimate, random: float) -> str:
        return f"answers by A's statement {value:.0%}, change {interval_words(shift)}"

    ways = [of_heads(claims["transfer"], transfer, "follows_a", each, follows)
            for each in transfer.selected]  # fmt: skip
    number, expected = len(heads["general"]), heads["general_expected"]
    return [
        of_effects(
            claims["own"],
            f"own text {interval_words(alone)} nats a token, beyond random heads "
            f"{interval_words(beyond)}; {len(own)} languages of 20 documents",
            [Effect(alone), Effect(beyond)],
            rank(alone.value, contrasted=False),
            sure=sure,
        ),
        of_effects(
            claims["specific"],
            f"own text minus the mean of others {interval_words(contrast)} nats a token",
            [Effect(contrast)],
            rank(contrast.value, contrasted=True),
            sure=sure,
        ),
        of_count(
            claims["general"],
            f"{number} heads in at least {heads['general_in']} of {len(own)} languages, where "
            f"chance gives {expected:.2g}",
            number,
            expected,
            sure="their number (Poisson)",
        ),
        either(*ways),
        of_effects(
            claims["gates"],
            f"accuracy {interval_words(gain)}; German questions alone",
            [Effect(gain)],
            sure="the change of the accuracy",
        ),
    ]


def heads_up(steps: Steps) -> list[Claim]:
    """Two directions and three word tasks, trained in 200 steps."""
    cases = [
        Case(_table(steps[f"0.5b-proof-{task}"]), task, translation=task in PAIRS)
        for task in ("en-zh", "en-de", *WORDS)
    ]
    cases = [replace(case, task=case.evidence.single[0]) for case in cases]
    gap = over_tasks(
        cases, lambda case: scaled(case.tests(case.written)["instructed"].difference, case.written)
    )
    instructed = of_effects(
        published_claims("heads-up")["instructed"],
        f"masked against instructed {interval_words(gap)} on average over tasks",
        [Effect(gap, least=-MARGIN)],
        sure=f"the difference from the instructed model, with a margin of {MARGIN:.2f}",
    )
    return [
        brought("translate", [case for case in cases if case.translation], "rouge_l"),
        brought("words", [case for case in cases if not case.translation], "accuracy"),
        instructed,
    ]


def judged_of(name: str, claims: Sequence[Claim]) -> dict[str, dict[str, Any]]:
    """Of each claim of a paper its verdict and its grounds."""
    answer = answer_of(claims, published_claims(name))
    return {
        claim.key: {
            "verdict": claim.verdict,
            **{part: typeset(getattr(claim, part)) for part in ("by", "rank", "note", "decides")},
        }
        for claim in answer.claims
    }


def bundled(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """The same of a finished run."""
    result = json.loads((folder / name / "result.json").read_text("utf-8"))
    claims = result["details"]["answer"]["claims"]
    return judged_of(name, [decode(Claim, claim) for claim in claims if claim["by"]])


def main() -> None:
    """Judge, write and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    steps = json.loads((RESULTS / "replication.json").read_text("utf-8"))["steps"]
    small = {
        "token-alignment-heads": token_alignment(steps, "0.5b"),
        "lahis": lahis(steps),
        "heads-up": heads_up(steps),
    }
    large = {"token-alignment-heads": token_alignment(steps, "1.5b")}
    made = {}
    for name in NAMES:
        of_models = {"0.5B": small[name], "1.5B": large.get(name, [])}
        models = {model: judged_of(name, claims) for model, claims in of_models.items()}
        if (folder / name / "result.json").is_file():
            models = {"bundled": bundled(folder, name), **models}
        made[name] = models
        print(f"\n| {NAMES[name]} | {' | '.join(models)} |\n|---|{'---|' * len(models)}")
        for key, claim in published_claims(name).items():
            cells = [found.get(key, {"verdict": "not measured"}) for found in models.values()]
            grounds = (cell.get("by", "").partition("; ")[0] for cell in cells)
            words = [
                f"*{cell['verdict']}*: {by}".rstrip(": ")
                for cell, by in zip(cells, grounds, strict=True)
            ]
            print(f"| {claim.name} | {' | '.join(words)} |")
    (RESULTS / "paper-claims.json").write_text(json.dumps(made, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
