"""The LAHIS paper as a recipe: what is run, with which settings, and which claims follow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.data.split import sentence_digest
from headscope.errors import InputError
from headscope.evidence.controls import Draws, planned
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.heads import Geometry, Head, HeadSet, read_scores
from headscope.measure.statistics import holm
from headscope.papers.claims import claims_of
from headscope.papers.lahis import scale as scales
from headscope.papers.lahis import steps
from headscope.papers.lahis.paper import PAPER
from headscope.papers.paper import Missing, PaperData, Setting, Steering
from headscope.papers.plan import make_plan
from headscope.results.common import LanguagesOverlap, Leakage, ScoredHead, SetOverlap
from headscope.results.lahis import GeneralHead, LahisLanguage, LahisResult
from headscope.results.language_texts import OwnText, TextDetails, TextWithoutHeads
from headscope.results.soft_gate import (
    GatedHead,
    Look,
    PairCounts,
    Seed,
    SoftGateDetails,
    SoftGateResult,
    Training,
)
from headscope.results.writing import (
    LensExample,
    OffTarget,
    OffTargetDetails,
    SteeringDetails,
    Summaries,
    SummariesDetails,
    Transfer,
    TransferDetails,
)
from headscope.results.writing import (
    Steering as Steered,
)
from headscope.runs.codec import Result
from headscope.shown.blocks import Cell, Findings
from headscope.studies.find.soft_gate import effects
from headscope.verify.language_texts.conditions import (
    FULL,
    LanguageHeads,
    layer_sets,
    plan_layers,
    read_on,
    sets_by_language,
)
from headscope.verify.language_texts.evidence import STATISTICS
from headscope.verify.writing.measures import (
    TRANSFER_STATISTICS,
)
from paper_helpers import Row, around, asked, evidence, experiment, put, verdicts
from paper_helpers import setting_of as setting

POCKET = Geometry((16,) * 6)
DATA = PaperData(
    pairs=("en-de=p.tsv",),
    documents=("de=d.jsonl", "en=e.jsonl", "fr=f.jsonl", "ru=r.jsonl"),
    questions=("de=q.json", "xx.json"),
    summaries=("de=s.jsonl",),
    statements=("en-de=t.jsonl",),
)


def other(folder: Path, **changes: Any) -> Setting:
    """A model that brings no data."""
    return setting(folder, "owner/model", **changes)


#: The command behind each kind of result.
COMMANDS = {
    LahisResult: "find lahis", TextWithoutHeads: "verify perplexity",
    Summaries: "verify summaries", OffTarget: "verify off-target", Steered: "use adapt",
    Transfer: "verify transfer", SoftGateResult: "find soft-gate",
}  # fmt: skip


def finish(one: Setting, step: str, result: Result | dict[str, Any]) -> None:
    """A finished run that holds this result."""
    put(one, step, result, COMMANDS.get(type(result)))


def tell(one: Setting, name: str) -> Findings:
    return experiment("lahis", name).show(one)


# What there is


def test_repeated_sentences_are_no_summaries(tmp_path: Path) -> None:
    def word(one: Setting) -> str:
        (planned,) = make_plan([experiment("lahis", "general-head")], one).experiments
        return planned.coverage["multilingual_exps.py general_head"][0]

    assert word(setting(tmp_path)) == "needs MODEL"
    assert word(other(tmp_path, data=DATA)) == "measured"


@pytest.mark.parametrize("full", [False, True])
def test_the_pocket_model_needs_nothing_given(tmp_path: Path, full: bool) -> None:
    made = make_plan(PAPER.experiments, setting(tmp_path, full=full))
    assert not [one for one in made.experiments if one.missing]
    assert {one.state for one in made.steps} == {"due"}
    assert all(one.step.work.tokens > 0 and one.step.work.calls > 0 for one in made.steps)


def test_long_runs_have_folders_of_their_own_but_share_the_heads(tmp_path: Path) -> None:
    short, long = (
        {one.step.name for one in make_plan(PAPER.experiments, each).steps}
        for each in (setting(tmp_path), setting(tmp_path, full=True))
    )
    assert short & long == {"heads", "heads-moving"}
    assert scales.SHORT.found == scales.LONG.found  # or the heads would not be the same
    assert len(short) == len(long) == 12


# What is missing

NEEDED = {
    "importance": ("documents",), "language-heads": ("documents",), "ppl": ("documents",),
    "ppl-cross": ("documents",), "layers": ("documents",), "off-target": ("documents",),
    "moving-gate": ("documents",), "mitigation": ("documents", "pairs"),
    "attn-transfer": ("documents",), "general-head": ("documents", "summaries"),
    "head-mask": ("documents", "questions"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEEDED)
def test_missing_data_is_named_and_giving_it_helps(tmp_path: Path, name: str) -> None:
    data = PaperData()
    for kind in NEEDED[name]:
        found = experiment("lahis", name).steps(other(tmp_path, data=data))
        assert isinstance(found, Missing)
        assert f"--{kind} " in found.give
        data = replace(data, **{kind: getattr(DATA, kind)})
    assert not isinstance(experiment("lahis", name).steps(other(tmp_path, data=data)), Missing)


def test_one_language_cannot_be_crossed_and_two_can(tmp_path: Path) -> None:
    one = other(tmp_path, data=PaperData(documents=("de=d.jsonl",)))
    found = experiment("lahis", "ppl-cross").steps(one)
    assert isinstance(found, Missing)
    assert "one language" in found.why
    assert isinstance(experiment("lahis", "ppl").steps(one), tuple)
    two = replace(one, data=PaperData(documents=DATA.documents[:2]))
    assert isinstance(experiment("lahis", "ppl-cross").steps(two), tuple)


# With which settings

#: Steps that read the results of others, which have tests of their own.
OF_FINISHED = ("perplexity-moving", "gates", "mitigation")


def configured(one: Setting) -> dict[str, Any]:
    """The settings that every step gives to its study, by the step's name."""
    planned = (each.step for each in make_plan(PAPER.experiments, one).steps)
    return asked(one, (step for step in planned if step.name not in OF_FINISHED))


def test_a_large_model_has_the_settings_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "documents", lambda one, side, limit=None: (side, limit))
    found = configured(other(tmp_path, data=DATA, seed=3))
    assert set(found) == {
        "heads", "heads-moving", "perplexity", "layers", "summaries", "off-target-translate",
        "off-target-continue", "transfer-en-de", "soft-gate-de", "soft-gate-xx",
    }  # fmt: skip
    assert found["heads-moving"] == replace(
        found["heads"], score=replace(found["heads"].score, update_gate=True)
    )
    heads = found["heads"]
    assert (heads.general_in, heads.quantile, heads.documents) == (4, None, ("found", None))
    assert found["perplexity"].k == ()  # 2 %, which the recipe takes for such a model
    assert found["perplexity"].documents == ("tested", None)
    for name in ("summaries", "off-target-translate", "off-target-continue", "transfer-en-de"):
        assert found[name].k == "1%"
        assert found[name].heads == str(tmp_path / "runs" / "heads")
    gates = found["soft-gate-de"]
    assert gates.k is None  # 2 % likewise
    assert (gates.training.learning_rate, gates.training.epochs, gates.questions.train) == (
        0.01,
        2,
        200,
    )
    assert (gates.questions.data, gates.questions.language) == ("q.json", "de")
    assert found["soft-gate-xx"].questions.data == "xx.json"
    assert (found["transfer-en-de"].up, found["transfer-en-de"].down) == (3, 0)
    assert found["transfer-en-de"].data == "t.jsonl"
    assert found["off-target-translate"].pairs.data == DATA.pairs
    assert {one.seed for name, one in found.items() if hasattr(one, "seed")} == {3}


def test_a_small_model_has_its_own(tmp_path: Path) -> None:
    found = configured(setting(tmp_path))
    assert found["heads"].general_in is None
    assert found["heads"].documents.limit == 200
    assert found["perplexity"].documents.limit == 60
    assert {found[name].k for name in ("summaries", "transfer")} == {4}  # 5 % of 96
    assert found["off-target-translate"].pairs.pair == ("all",)
    assert found["off-target-translate"].ask == "translate"
    assert found["off-target-continue"].ask == "continue"
    assert found["soft-gate"].questions.data is None


def test_gates_of_a_language_are_those_its_own_text_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "documents", lambda one, side, limit=None: None)
    one = other(tmp_path, data=DATA)
    (tmp_path / "runs" / "heads" / "scores" / "de").mkdir(parents=True)
    found = configured(one)
    assert found["soft-gate-de"].heads == str(tmp_path / "runs" / "heads" / "scores" / "de")
    assert found["soft-gate-xx"].heads == str(tmp_path / "runs" / "heads")


# How much work it is


def test_work_counts_every_text_that_is_read(tmp_path: Path) -> None:
    one, codes = setting(tmp_path), ["en", "de", "es", "ru", "tr"]
    scale = scales.scale(one)
    sized = [
        LanguageHeads(
            code,
            4,
            HeadSet(POCKET, tuple(Head(at, head) for head in range(4))),
            HeadSet(POCKET, tuple(Head(5, head + 4) for head in range(4))),
            4,
        )
        for at, code in enumerate(codes)
    ]
    controls = ("random", "same layers")
    conditions = planned(sets_by_language(sized), Draws(scale.draws, controls))
    read = {(each.key, code) for each in conditions for code in read_on(each, codes, controls)}
    # Where the most important heads of two languages are the same, fewer are read.
    full = {each.key for each in conditions if each.kind == SELECTED and each.of.endswith(FULL)}
    counted = steps.perplexity(one).work.forward / scale.document / scale.tested
    assert counted == len(read) + (len(codes) - len(full)) * len(codes)
    layered = plan_layers(layer_sets(POCKET), Draws(scale.layer_draws, ("random",)))
    texts = sum(len(read_on(each, codes, controls)) for each in layered)
    assert steps.layers(one).work.forward == texts * scale.tested * scale.document
    assert steps.heads(one).work.backward == 5 * scale.found * scale.document


# Documents of one's own


def write_documents(folder: Path, code: str, number: int) -> str:
    path = folder / f"{code}.jsonl"
    rows = [json.dumps({"text": f"{code} text {at}"}) for at in range(number)]
    path.write_text("\n".join(rows))
    return f"{code}={path}"


def lines_of(named: str) -> list[dict[str, str]]:
    text = Path(named.partition("=")[2]).read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_text_is_scored_or_tested_and_never_both(tmp_path: Path) -> None:
    given = (write_documents(tmp_path, "de", 40), write_documents(tmp_path, "en", 60))
    one = other(tmp_path / "run", data=PaperData(documents=given))
    found, tested = (scales.documents(one, side) for side in ("found", "tested"))
    assert [each.partition("=")[0] for each in found.data] == ["de", "en"]
    for code, number, *files in zip(("de", "en"), (40, 60), found.data, tested.data, strict=True):
        texts = [[one["text"] for one in lines_of(each)] for each in files]
        assert sorted(texts[0] + texts[1]) == sorted(f"{code} text {at}" for at in range(number))
        for text in texts[1]:
            assert int(sentence_digest(text)[:2], 16) % 2 == 1
    held = min(len(lines_of(each)) for each in tested.data)
    assert scales.documents(one, "tested", 1000).limit == held
    assert scales.documents(one, "tested", 3).limit == 3


def test_too_few_documents_say_how_to_give_more(tmp_path: Path) -> None:
    given = (write_documents(tmp_path, "de", 1),)
    one = other(tmp_path / "run", data=PaperData(documents=given))
    with pytest.raises(InputError, match=r"de\.jsonl: 1 documents .* --documents de=FILE"):
        scales.documents(one, "found")


# What results show: heads

TWO_LAYERS = Geometry((2, 2))


def scored(*values: float) -> tuple[ScoredHead, ...]:
    return tuple(ScoredHead(at // 2, at % 2, value, rank=at + 1) for at, value in enumerate(values))


def language(values: tuple[float, ...], specific: tuple[int, ...]) -> LahisLanguage:
    """A language of a run of LAHIS: four heads, three of them important."""
    heads = scored(*values)
    return LahisLanguage(
        scored=heads, documents=30, left_out=0, fewer_than_usual=False, tokens=900, loss=2.0,
        threshold=0.001, important=3, specific=tuple(heads[at] for at in specific),
        halves=SetOverlap(0.5, 0.08, 0.1, 0.01),
    )  # fmt: skip


def heads_result(general: int = 1) -> LahisResult:
    return LahisResult(
        scored=scored(0.004, 0.003, 0.002, 0.001), quantile=0.9, update_gate=False, general_in=2,
        general=(GeneralHead(0, 0, 2),)[:general], general_expected=0.25,
        languages={
            "de": language((0.004, 0.003, 0.002, 0.001), (1, 2)),
            "en": language((0.004, 0.001, 0.003, 0.002), (2,)),
        },
        overlap=(LanguagesOverlap("de", "en", SetOverlap(0.4, 0.08, 0.1, 0.01)),),
    )  # fmt: skip


@pytest.mark.parametrize("general", [1, 0])
def test_sets_are_counted(tmp_path: Path, general: int) -> None:
    one = setting(tmp_path, geometry=TWO_LAYERS)
    finish(one, "heads", heads_result(general))
    there, shared = claims_of({"told": tell(one, "language-heads")})
    assert (there.holds, shared.holds) == (True, bool(general))
    assert there.by.startswith("1 to 2 each")
    assert shared.by == f"{general} in at least 2 of 2 languages, where chance gives 0.25"


# What results show: losses


def losses_result(
    changes: dict[str, float],
    half: float = 0.01,
    p_own: float = 0.25,
    largest_other: float = 0.06,
    **tests: Any,
) -> TextWithoutHeads:
    """Other text is harmed by 0.06; random heads cost 0.02."""
    heads = {code: Condition(SELECTED, code, 4, 0.0, heads=("0.0",)) for code in changes}
    rows = [
        Row(text, heads[code], "nll", 2.0, 2 + (change if text == code else 0.06), half, 2.02)
        for code, change in changes.items() for text in changes
    ]  # fmt: skip
    own = [
        OwnText(
            condition=heads[code].id, language=code, p_draws={"random": p_own},
            other=next(each for each in changes if each != code),
            difference=around(change - largest_other, half),
        )
        for code, change in changes.items()
    ]  # fmt: skip
    rows = [row._replace(**tests) if row.part == row.condition.of else row for row in rows]
    found = evidence({"nll": STATISTICS["nll"]}, rows)
    return TextWithoutHeads(
        evidence=found,
        details=TextDetails(
            k=(4,), draws=3, seed=0, leakage=Leakage(True, 0, 7), sets=(), empty=(),
            own=tuple(own), data={code: {"examples": 7, "tokens": 90} for code in changes},
        ),
    )  # fmt: skip


def test_few_draws_leave_it_open_whether_text_needs_its_heads(tmp_path: Path) -> None:
    one = setting(tmp_path)
    finish(one, "heads", heads_result())
    few = {"draws": 3, "p_draws": 0.5, "p_same": 0.5}
    finish(one, "perplexity", losses_result({"de": 0.1, "en": 0.035}, **few))
    shown = tell(one, "ppl")
    first, second = claims_of({"told": shown})
    # Three draws can give no p over draws of 0.05.
    assert first.holds is second.holds is None
    assert "19 random sets or more" in first.decides
    assert first.by == (
        "+0.100 nats a token, +0.020 without random heads; 7 documents; p 0.5 over 3 random "
        "sets, of the same layers p 0.5 over 3"
    )
    cells = dict(zip(shown.tables[0].columns, shown.tables[0].rows[1].cells, strict=True))
    cell = cells["change"]
    assert (cell.low, cell.value, cell.high) == pytest.approx((0.09, 0.1, 0.11))
    assert any("on 30 documents a language of the bundled" in note for note in PAPER.notes(one))


def test_a_language_without_heads_of_its_own_has_no_claim(tmp_path: Path) -> None:
    one, result = setting(tmp_path), losses_result({"de": 0.1, "en": 0.1})
    found = result.evidence
    own = tuple(each for each in found.conditions if each.of != "en")
    kept = {each.id for each in own}
    few = replace(
        found, conditions=own,
        levels=tuple(row for row in found.levels if row.condition in kept),
        tests=tuple(row for row in found.tests if row.condition in kept),
    )  # fmt: skip
    finish(one, "perplexity", replace(result, evidence=few))
    assert list(verdicts(ppl=tell(one, "ppl"))) == ["text in de needs the heads specific to it"]


@pytest.mark.parametrize(
    ("changes", "p_draws", "others", "holds"),
    [
        ({"de": 0.1, "en": 0.1}, 0.05, 0.06, True),
        ({"de": 0.1, "en": 0.1}, 0.2, 0.06, None),  # random sets do as well
        ({"de": 0.1, "en": 0.065}, 0.05, 0.06, None),  # not every interval lies above zero
        ({"de": 0.1, "en": 0.04}, 0.05, 0.06, False),  # other text suffers more
        ({"de": -0.1, "en": -0.2}, 0.05, -0.6, False),  # all gain, other text even more
    ],
)
def test_own_text_suffers_most_if_it_does_in_every_language(
    tmp_path: Path, changes: dict[str, float], p_draws: float, others: float, holds: bool | None
) -> None:
    one = setting(tmp_path)
    finish(one, "perplexity", losses_result(changes, p_own=p_draws, largest_other=others))
    shown = tell(one, "ppl-cross")
    assert list(verdicts(crossed=shown).values()) == [holds]
    (claim,) = claims_of({"told": shown})
    most = 0 if others < 0 else sum(change > others for change in changes.values())
    assert claim.by.startswith(f"in {most} of 2 languages")
    assert claim.by.endswith(f"7 documents each; p over draws {p_draws:.2f}")


def test_texts_are_read_without_the_heads_by_the_moving_gate(tmp_path: Path) -> None:
    one = setting(tmp_path)
    own = tuple(ScoredHead(at, 1, 1.0) for at in range(6))
    found = heads_result()
    languages = {
        code: replace(found.languages[code], specific=specific)
        for code, specific in (("de", own), ("en", ()))
    }
    finish(one, "heads-moving", replace(found, languages=languages))
    step = next(each for each in steps.moving(one) if each.name == "perplexity-moving")
    config = asked(one, [step])[step.name]
    assert config.heads == ("de=0.1,1.1,2.1,3.1",)  # 5 % of 96; English has none
    assert config.documents == scales.documents(one, "tested")


def test_the_moving_gate_stands_beside_the_still_one(tmp_path: Path) -> None:
    one = setting(tmp_path)

    def agreement(jaccard: float, more: float | None) -> dict[str, Any]:
        return {
            "important": [10, 10], "shared": 8, "jaccard": jaccard, "expected_exact": 0.1,
            "p_value": 0.002, "all": around(0.9).record(), "within_layers": around(0.8).record(),
            "p_within_layers": 0.003, "costs_more": None if more is None else around(more).record(),
        }  # fmt: skip

    languages = {"de": agreement(0.5, 0.02), "en": agreement(0.6, None)}
    finish(one, "gates", {"languages": languages})
    finish(one, "perplexity-moving", losses_result({"de": 0.1, "en": 0.025}))
    table = tell(one, "moving-gate").tables[0]
    rows = {row.name: dict(zip(table.columns, row.cells, strict=True)) for row in table.rows}
    assert rows["de"]["NLL, moving less still"].low == pytest.approx(0.01)
    assert rows["en"]["NLL, moving less still"].why == "no head is specific to this language"
    assert rows["en"]["Jaccard"].value == 0.6


# What results show: writing


OWN_HEADS = Condition(SELECTED, "own", 3, 0.0)
GENERAL = Condition(SELECTED, "", 3, 0.0)


def effect(
    statistic: str, base: float, value: float, random: float, half: float, side: str = "higher",
    condition: Condition = OWN_HEADS, **more: Any,
) -> Row:  # fmt: skip
    """Heads that are changed, beside as many random ones; every test is passed."""
    return Row("", condition, statistic, base, value, half, random, side=side, **more)


def written(effects: Sequence[Row], **groups: int) -> Evidence:
    """The same effects in every group of so many prompts, and in their mean."""
    known = {**{name: of.statistic for name, of in TEXT_MEASURES.items()}, **TRANSFER_STATISTICS}
    rows = []
    for row in effects:
        total = sum(groups.values())
        rows += [row._replace(examples=total)] if len(groups) > 1 else []
        rows += [row._replace(part=code, examples=n) for code, n in groups.items()]
    return evidence({row.statistic: known[row.statistic] for row in effects}, rows)


def prompts_of(**groups: int) -> dict[str, Any]:
    return {"draws": 19, "data": {code: {"prompts": n} for code, n in groups.items()}}


def summaries_result(measured: Row, task: str = "summarise") -> Summaries:
    return Summaries(
        evidence=written([measured._replace(condition=GENERAL, side="lower")], de=8),
        details=SummariesDetails(
            **prompts_of(de=8), task=task, gate=0.0, heads=(),
            not_measured={"bert_score": "not installed"},
        ),
    )  # fmt: skip


def off_result(measured: Row | None) -> OffTarget:
    """The second language has no specific heads; `empty` alone is measured of None."""
    full = replace(OWN_HEADS, of=f"own{FULL}")
    rest = "empty" if measured is None else "off_target"
    effects = [measured, effect(rest, 0.1, 0.1, 0.1, 0.05, condition=full)]
    found = written([row for row in effects if row], de=8, en=9)
    if measured is not None:
        lacking = {("en", OWN_HEADS.id), ("en", replace(OWN_HEADS, kind="random", draw=0).id)}
        levels = [row for row in found.levels if (row.part, row.condition) not in lacking]
        found = replace(found, levels=tuple(levels))
    return OffTarget(
        evidence=found,
        details=OffTargetDetails(
            **prompts_of(de=8, en=9), ask="translate", heads={}, without_heads=(),
            identifier=None, written={}, not_measured={"off_target": "x"} if not measured else {},
        ),
    )  # fmt: skip


def test_outputs_without_an_identified_language_say_nothing(tmp_path: Path) -> None:
    one = other(tmp_path, data=DATA)
    finish(one, "off-target-continue", off_result(None))
    shown = tell(one, "off-target")
    assert shown.found == "" and not claims_of({"told": shown})


def steered_result(change: float, beside: float, p_draws: float, half: float) -> Steered:
    kinds = replace(OWN_HEADS, gate=3.0), replace(OWN_HEADS, of="en")
    rows = [
        effect("off_target", 0.3, 0.3 + change, 0.3 + change - beside, half, "lower", each,
               p_draws=p_draws, p_same=p_draws)
        for each in kinds
    ]  # fmt: skip
    return Steered(
        evidence=written(rows, de=20, ru=20),
        details=SteeringDetails(
            **prompts_of(de=20, ru=20), steer=("de", "ru"), away="en", factors=(3.0,), gate=None,
            heads={}, identifier=None, written={},
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("change", "beside", "p_draws", "helps"),
    [
        (-0.2, -0.2, 0.02, True),
        (-0.2, -0.2, 0.1, None),  # a random draw does as well
        (0.2, 0.2, 1.0, False),  # harm is no help
        (0.2, -0.2, 0.02, False),  # nor is less harm than random heads do
    ],
)
def test_mitigation_asks_for_a_change_that_random_heads_do_not_make(
    tmp_path: Path, change: float, beside: float, p_draws: float, helps: bool | None
) -> None:
    one = setting(tmp_path)
    finish(one, "mitigation", steered_result(change, beside, p_draws, 0.1))
    shown = tell(one, "mitigation")
    assert list(verdicts(told=shown).values()) == [helps, helps]
    first, _ = claims_of({"told": shown})
    assert "30.0 % as is" in first.by and "40 prompts, 20 in each of 2 languages" in first.by


def test_answers_go_astray_in_directions_with_documents_on_both_sides(tmp_path: Path) -> None:
    ways = ("en-de=a", "de-fr=b", "en-ru=c", "en-xx=d")
    one = other(tmp_path, data=replace(DATA, pairs=ways))
    assert scales.astray(one) == ("en", ("en-de=a", "en-ru=c"))
    assert scales.astray(replace(one, data=replace(DATA, pairs=("en-xx=d",)))) == ("", ())


def test_answers_are_led_back_with_heads_of_either_language(tmp_path: Path) -> None:
    one, found = setting(tmp_path), heads_result()
    own = dict.fromkeys(("en", "de", "es", "tr"), found.languages["de"])
    none = replace(found.languages["de"], specific=())
    finish(one, "heads", replace(found, languages=own | {"ru": none}))
    config = asked(one, [steps.mitigation(one)])["mitigation"]
    assert config.languages == ("de", "es", "tr")  # Russian has no head of its own to turn up
    assert (config.away, config.factors, config.k, config.draws) == ("en", (3.0,), 4, 259)
    rows = lines_of(config.data[0])
    assert len(rows) == scales.SHORT.steered
    before, instruction = rows[0]["text"].split("\n", 1)
    assert len(before) > 50 and instruction.startswith("Translate this sentence from English to")
    assert len({one["text"] for one in rows}) == len(rows)


def transfer_result(up: Row, down: Row) -> Transfer:
    """The second pair has no heads of B."""
    lens = LensExample(pair="de-en", id="1", prompt="?", answers_a=(), answers_b=(), conditions=())
    a, b = replace(OWN_HEADS, of="A", gate=3.0), replace(OWN_HEADS, of="B")
    rows = [up._replace(condition=a), down._replace(condition=b)]
    found = written(rows, **{"de-en": 8, "en-de": 9})
    levels = [row for row in found.levels if (row.part, row.condition) != ("en-de", b.id)]
    return Transfer(
        evidence=replace(found, levels=tuple(levels)),
        details=TransferDetails(
            **prompts_of(**{"de-en": 8, "en-de": 9}), up=3.0, down=0.0, heads={}, lens=lens
        ),
    )


# What results show: gates


def gates_result(trained: float, random: float, trainings: int = 2) -> SoftGateResult:
    """A hundred questions, each on a context of its own."""
    selected = Condition("selected", k=2, gate=None, heads=("0.0", "0.1"))
    draws = [
        replace(selected, kind=kind, draw=at, heads=(f"{at // 4}.{at % 4}", f"9.{at}"))
        for kind in ("random", "same layers") for at in range(trainings)
    ]  # fmt: skip
    shares = {Condition(): 0.3, replace(selected, draw=0): trained}
    shares |= dict.fromkeys(draws, random) | {replace(selected, gate=0.0): 0.1}
    values = {
        each: dict.fromkeys(("accuracy", "normalized", "nll"), np.repeat([1.0, 0.0], [n, 100 - n]))
        for each, share in shares.items() for n in [round(100 * share)]
    }  # fmt: skip
    training = Training(
        heads=(GatedHead(0, 0, 1.5), GatedHead(0, 1, 0.5)), steps=1, best_step=1,
        stopped_early=False, checks=(Look(0, 1.0),), loss=(1.0,),
    )  # fmt: skip
    details = SoftGateDetails(
        pairs=PairCounts(20, 10, 100, 0, 0, 0), seeds=(Seed(seed=4, trained=training),),
        gate_seed=4, by_seed={"accuracy": (trained,)},
    )  # fmt: skip
    table = effects(values, [str(at) for at in range(100)])
    return SoftGateResult(scored=scored(0.5, 0.5), evidence=table, details=details)


@pytest.mark.parametrize(
    ("trained", "random", "trainings", "holds", "decides"),
    [
        (0.5, 0.3, 2, None, "19 random sets or more"),
        (0.5, 0.3, 19, True, ""),
        (0.1, 0.3, 2, False, ""),
    ],
)
def test_few_trained_random_gates_decide_nothing(
    tmp_path: Path, trained: float, random: float, trainings: int, holds: bool | None, decides: str
) -> None:
    one = setting(tmp_path)
    finish(one, "soft-gate", gates_result(trained, random, trainings))
    shown = tell(one, "head-mask")
    (claim,) = claims_of({"told": shown})
    words = claim.by.replace("\u00a0", " ")
    assert f"30.0 % of 100 questions answered as is, {100 * trained:.1f} % with them" in words
    assert f"{100 * random:.1f} % with gates of random heads trained alike" in words
    assert "10.0 % without these heads" in words
    assert (claim.holds, claim.p) == (
        holds, pytest.approx(1 if trained <= random else 1 / (1 + trainings))
    )  # fmt: skip
    assert claim.decides.startswith(decides) and bool(claim.decides) is bool(decides)
    assert shown.tables[0].rows[0].cells == (Cell(2, published=20, digits=0),)
    assert shown.tables[0].reference is not None and not shown.tables[0].reference.comparable


# Nothing run, and the whole answer


def told_of_all(folder: Path, p_draws: float, turned: bool = False) -> dict[str, Any]:
    """Everything written under changed heads, each far beyond random ones by its interval; or as
    far on the other side of the original."""
    tests = {"draws": 999, "p_draws": p_draws, "p_same": p_draws}
    sign = -1 if turned else 1
    up = effect("off_target", 0.5, 0.5 + 0.3 * sign, 0.5, 0.05, **tests)
    one = setting(folder, geometry=TWO_LAYERS)
    results = {
        "summaries": summaries_result(effect("rouge_l", 50, 50 - 10 * sign, 49, 2, **tests)),
        "off-target-translate": off_result(up),
        "off-target-continue": off_result(up),
        "transfer": transfer_result(*2 * (up._replace(statistic="follows_a"),)),
        "mitigation": steered_result(-0.2 * sign, -0.2 * sign, p_draws, 0.05),
    }
    for step, result in results.items():
        finish(one, step, result)
    return {each.name: each.show(one) for each in PAPER.experiments}


def test_no_interval_holds_without_p_over_draws(tmp_path: Path) -> None:
    told = told_of_all(tmp_path / "few", 0.005)
    held = verdicts(**told)
    assert len(held) == 7 and set(held.values()) == {True}
    assert set(verdicts(**told_of_all(tmp_path / "many", 0.2)).values()) == {None}
    assert set(verdicts(**told_of_all(tmp_path / "turned", 0.005, turned=True)).values()) == {False}
    # Shares are told in per cent, scores as they are.
    grounds = {claim.name: claim.by for claim in claims_of(told)}
    for name, numbers in (
        ("general heads are needed for summaries", "50.0 as is, 40.0 without 3 general heads"),
        ("without a language's own heads translations leave it", "50.0 % as is, 80.0 % without"),
        ("turning up a language's heads makes its statement believed more often",
         "50.0 % as is, 80.0 % with A's heads times 3 (change 30.0, 25.0 to 35.0)"),
    ):  # fmt: skip
        assert numbers in grounds[name]


def test_holm_is_over_all_claims_of_the_paper(tmp_path: Path) -> None:
    one = setting(tmp_path)
    tests = {"draws": 99, "p_draws": 0.03, "p_same": 0.03}
    finish(one, "perplexity", losses_result({"de": 0.1, "en": -0.1}, **tests))
    alone, others = tell(one, "ppl"), told_of_all(tmp_path / "others", 0.05)
    name = "text in de needs the heads specific to it"
    assert verdicts(**(others | {"ppl": alone}))[name] is None
    claims = {claim.name: claim for claim in PAPER.answer(one, others | {"ppl": alone}).claims}
    assert "p over draws is 0.27 after Holm" in claims[name].decides  # 9 * 0.03


def test_the_bundled_model_has_the_draws_that_its_claims_take(tmp_path: Path) -> None:
    """As many as let the smallest p hold after Holm, and no more after one does as much."""
    one = setting(tmp_path)
    finish(one, "perplexity", losses_result(dict.fromkeys(("en", "de", "es", "ru", "tr"), 0.1)))
    finish(one, "soft-gate", gates_result(0.5, 0.3))
    told = told_of_all(tmp_path / "others", 0.05)
    told |= {name: tell(one, name) for name in ("ppl", "ppl-cross", "head-mask")}
    tested = [claim.p for claim in claims_of(told) if claim.p is not None]
    assert len(tested) == scales.CLAIMS
    least = 1 / (1 + scales.DRAWS)
    assert min(holm([least] + [1.0] * (len(tested) - 1))) <= 0.05 < scales.CLAIMS / scales.DRAWS
    for draws in (None, 19):
        known = configured(replace(one, steering=Steering(draws=draws)))
        names = ("perplexity", "summaries", "off-target-translate", "off-target-continue",
                 "transfer")  # fmt: skip
        assert {known[name].draws for name in names} == {draws or scales.DRAWS}
        assert {known[name].in_sequence for name in names} == {None if draws else "first"}
        assert known["off-target-continue"].claims == (None if draws else ("own",))
        assert known["layers"].claims is None
        plan = make_plan(PAPER.experiments, replace(one, steering=Steering(draws=draws)))
        early = {entry.step.name for entry in plan.steps if entry.step.at_most}
        assert early == (set() if draws else {*names, "mitigation"})
        assert scales.scale(replace(one, steering=Steering(draws=19))).steering_draws == 19
    # A number that belongs to other models stays as it was.
    large = other(tmp_path, data=DATA)
    assert (scales.scale(large).draws, large.claims()) == (99, None)


# Of the bundled model itself


def test_what_the_bundled_model_shows_is_what_its_runs_hold(
    tmp_path: Path, loaded: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = replace(scales.SHORT, found=3, tested=2, draws=1, layer_draws=1)
    monkeypatch.setattr(scales, "SHORT", few)
    one = setting(tmp_path)
    for step in (steps.heads(one), steps.layers(one)):
        step.run(one, one.at(step.name), None)
    stored = read_scores(one.at("heads"))["ru"]
    shown = tell(one, "importance")
    drawn = next(each for each in shown.figures if each.title.endswith("ru"))
    assert drawn.values[5][3] == pytest.approx(stored.values[5, 3])
    assert (len(drawn.values), len(drawn.values[0])) == (6, 16)
    assert shown.tables and tell(one, "language-heads").figures
    layers = tell(one, "layers")
    result = one.result("layers")
    assert result is not None and layers.figures
    changes = {
        row["part"]: row["change"]["value"]
        for row in result["levels"]
        if row["condition"].startswith("selected layer 2") and row["statistic"] == "nll"
    }
    (lines,) = (figure for figure in layers.figures if figure.title.startswith("Change of loss"))
    drawn = {line.name: dict(line.points)[2.0] for line in lines.series if line.name in changes}
    assert len(drawn) > 1 and drawn == pytest.approx({name: changes[name] for name in drawn})
