"""The LAHIS paper as a recipe: what is run, with which settings, and which claims follow."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from headscope.data.split import sentence_digest
from headscope.data.transfer import read_prompts
from headscope.errors import InputError
from headscope.evidence.controls import Draws, planned
from headscope.evidence.rows import SELECTED, Condition, Evidence
from headscope.evidence.texts import TEXT_MEASURES
from headscope.find.lahis_scores import expected_general
from headscope.heads import Geometry, Head, HeadSet, read_scores
from headscope.measure.statistics import holm
from headscope.papers.claims import claims_of
from headscope.papers.lahis import scale as scales
from headscope.papers.lahis import steps
from headscope.papers.lahis.paper import PAPER
from headscope.papers.paper import Missing, PaperData, Setting, Steering
from headscope.papers.plan import make_plan
from headscope.papers.published import published_claims
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
from headscope.shown.blocks import Claim, Findings
from headscope.studies.find.soft_gate import effects
from headscope.verify.language_texts.conditions import (
    FULL,
    LanguageHeads,
    layer_sets,
    plan_layers,
    read_on,
    sets_by_language,
)
from headscope.verify.language_texts.evidence import STATISTICS, TOGETHER
from headscope.verify.writing.measures import (
    TRANSFER_STATISTICS,
)
from paper_helpers import Row, around, asked, evidence, experiment, put
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
    assert len(short) == len(long) == 16


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
    monkeypatch.setattr(steps, "statements", lambda one: Path("all.jsonl"))
    found = configured(other(tmp_path, data=DATA, seed=3))
    assert set(found) == {
        "heads", "heads-moving", "perplexity", "layers", "summaries", "off-target-translate",
        "off-target-continue", "transfer", "soft-gate-de", "soft-gate-xx",
    }  # fmt: skip
    assert found["heads-moving"] == replace(
        found["heads"], score=replace(found["heads"].score, update_gate=True)
    )
    heads = found["heads"]
    assert (heads.general_in, heads.quantile, heads.documents) == (4, None, ("found", None))
    assert found["perplexity"].k == ()  # 2 %, which the recipe takes for such a model
    assert found["perplexity"].documents == ("tested", None)
    for name in ("summaries", "off-target-translate", "off-target-continue", "transfer"):
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
    assert (found["transfer"].up, found["transfer"].down) == (3, 0)
    assert found["transfer"].data == "all.jsonl"
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
    asked_in = {name: each.questions for name, each in found.items() if "soft-gate" in name}
    assert {each.data for each in asked_in.values()} == {None}
    assert {name[-2:]: each.language for name, each in asked_in.items()} == {
        code: code for code in scales.POCKET_LANGUAGES
    }


def test_gates_of_a_language_are_those_its_own_text_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "documents", lambda one, side, limit=None: None)
    monkeypatch.setattr(steps, "statements", lambda one: Path("all.jsonl"))
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


def test_one_run_has_the_statements_of_all_files(tmp_path: Path) -> None:
    files, rows = [], []
    for pair in ("en-de", "de-fr"):
        a, _, b = pair.partition("-")
        rows.append({"a": a, "b": b, "prompt": pair, "stem": "It is", "id": pair,
                     "answers_a": ["red", "rot"], "answers_b": "blue"})  # fmt: skip
        files.append(f"{pair}={tmp_path / pair}.jsonl")
        (tmp_path / f"{pair}.jsonl").write_text(json.dumps(rows[-1]))
    one = other(tmp_path / "run", data=PaperData(statements=tuple(files)))
    apart = [read_prompts(file.partition("=")[2]) for file in files]
    whole = read_prompts(scales.statements(one))
    assert {pair: file.prompts for pair, file in whole.items()} == {
        pair: file.prompts for each in apart for pair, file in each.items()
    }


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


def answered(one: Setting, told: dict[str, Findings]) -> dict[str, Claim]:
    """The claims of the paper with their verdicts, of what experiments found."""
    return {claim.key: claim for claim in PAPER.answer(one, told).claims}


def naive_tails(number: int, expected: float) -> tuple[float, float]:
    """At least, and at most, so many where so many are expected (Poisson)."""
    chances = [math.exp(-expected) * expected**at / math.factorial(at) for at in range(120)]
    return math.fsum(chances[number:]), math.fsum(chances[: number + 1])


def shared_heads(number: int, in_layers: tuple[int, ...]) -> LahisResult:
    """Two languages with so many important heads in each layer of 16, and `number` general ones."""
    every = [Head(layer, at) for layer in range(6) for at in range(16)]
    every.sort(key=lambda head: head.head >= in_layers[head.layer])
    important = sum(in_layers)
    heads = tuple(
        ScoredHead(head.layer, head.head, 0.5 if rank <= important else 0.0, rank=rank)
        for rank, head in enumerate(every, 1)
    )
    each = replace(language((0.0,) * 4, ()), scored=heads, important=important)
    return replace(
        heads_result(), scored=heads, languages={"de": each, "en": each},
        general=tuple(GeneralHead(at // 16, at % 16, 2) for at in range(number)),
    )  # fmt: skip


#: Important heads in each layer.
IN_ONE, IN_ALL = (1, 0, 0, 0, 0, 0), (7,) * 6


@pytest.mark.parametrize(
    ("number", "in_layers", "holds"),
    [(6, IN_ONE, True), (1, IN_ONE, None), (0, IN_ONE, None), (0, IN_ALL, False),
     (20, IN_ALL, None), (60, IN_ALL, True)],
)  # fmt: skip
def test_general_heads_are_counted_against_chance(
    tmp_path: Path, number: int, in_layers: tuple[int, ...], holds: bool | None
) -> None:
    one = setting(tmp_path)
    finish(one, "heads", shared_heads(number, in_layers))
    claim = answered(one, {"language-heads": tell(one, "language-heads")})["general"]
    # A head of a layer is important in both languages by so many chances of 16 times 16.
    more, at_most = naive_tails(number, sum(some * some / 16 for some in in_layers))
    assert claim.p == pytest.approx(min(1, 2 * more))
    assert claim.p_against == pytest.approx(min(1, 2 * at_most))
    assert (claim.holds, claim.p_draws) == (holds, None)


def test_random_sets_share_no_more_heads_than_their_p_says() -> None:
    """Heads of sets of fixed sizes are not independent; Poisson's tail is no lower for that."""
    random, sizes, heads, needed = np.random.default_rng(0), (10, 12, 10, 9, 10), 96, 3
    counts = np.zeros((4000, heads), dtype=int)
    for size in sizes:
        counts += random.permuted(np.tile(np.arange(heads) < size, (4000, 1)), axis=1)
    shared = (counts >= needed).sum(axis=1)
    expected = expected_general(list(sizes), heads, needed)
    assert shared.mean() == pytest.approx(expected, rel=0.1)
    for number in (1, 2, 3, 4):
        found = (shared >= number).mean()
        tail, _ = naive_tails(number, expected)
        assert found <= tail + 4 * math.sqrt(tail / 4000)


def test_of_one_language_no_head_is_general(tmp_path: Path) -> None:
    one = setting(tmp_path)
    alone = replace(heads_result(0), general_in=None, general_expected=None)
    finish(one, "heads", alone)
    shown = tell(one, "language-heads")
    assert shown.found and not claims_of({"told": shown})


# What results show: losses

OWN_HEADS = Condition(SELECTED, "own", 3, 0.0)


def losses_result(
    changes: dict[str, float], half: float = 0.01, others: float = 0.06, **tests: Any
) -> TextWithoutHeads:
    """Other text is harmed by 0.06 unless said otherwise; random heads cost 0.02."""
    heads = {code: Condition(SELECTED, code, 4, 0.0, heads=("0.0",)) for code in changes}
    rows = [
        Row(text, heads[code], "nll", 2.0, 2 + (change if text == code else others), half, 2.02)
        for code, change in changes.items() for text in changes
    ]  # fmt: skip
    own = [
        OwnText(
            condition=heads[code].id, language=code, p_draws={},
            other=next(each for each in changes if each != code),
            difference=around(change - others, half), mean_difference=around(change - others, half),
        )
        for code, change in changes.items()
    ]  # fmt: skip
    rows = [row._replace(**tests) if row.part == row.condition.of else row for row in rows]
    change, every = np.mean([*changes.values()]), replace(OWN_HEADS, k=4)
    pooled = [
        Row("", every, "nll", 2.0, 2 + change, half, 2.02, **tests),
        Row("", every, "contrast", 0.0, change - others, half, 0.0, **tests),
    ]
    return TextWithoutHeads(
        evidence=evidence({"nll": STATISTICS["nll"]}, rows),
        details=TextDetails(
            k=(4,), draws=3, seed=0, leakage=Leakage(True, 0, 7), sets=(), empty=(),
            own=tuple(own), data={code: {"examples": 7, "tokens": 90} for code in changes},
            together=evidence(TOGETHER, pooled),
        ),
    )  # fmt: skip


FEW = {"draws": 3, "p_draws": 0.25, "p_same": 0.25}
MANY = {"draws": 119, "p_draws": 1 / 120, "p_same": 1 / 120}
OFTEN = {"draws": 119, "p_draws": 0.5, "p_same": 0.5}


@pytest.mark.parametrize(
    ("changes", "others", "half", "tests", "own", "specific"),
    [
        ((0.1, 0.12), 0.06, 0.01, MANY, True, True),
        ((0.1, 0.12), 0.06, 0.01, FEW, None, None),  # three sets show nothing
        ((0.1, 0.12), 0.06, 0.01, OFTEN, None, None),  # random sets do as much
        ((0.1, 0.12), 0.2, 0.01, MANY, True, False),  # other text suffers more
        ((0.1, -0.02), 0.03, 0.01, MANY, True, None),  # one language of two does not decide
        ((-0.1, -0.12), -0.06, 0.01, MANY, False, False),
        ((-0.1, -0.12), -0.06, 0.01, FEW, False, False),  # no draw is needed to refute
        ((0.1, 0.12), 0.06, 0.1, MANY, None, None),  # and no wide interval refutes or shows
        ((-0.1, -0.12), -0.06, 0.2, MANY, None, None),
    ],
)
def test_text_of_all_languages_decides_together(
    tmp_path: Path, changes: tuple[float, float], others: float, half: float,
    tests: dict[str, Any], own: bool | None, specific: bool | None,
) -> None:  # fmt: skip
    one = setting(tmp_path)
    result = losses_result(dict(zip(("de", "en"), changes, strict=True)), half, others, **tests)
    finish(one, "heads", heads_result())
    finish(one, "perplexity", result)
    told = {name: tell(one, name) for name in ("ppl", "ppl-cross")}
    claims = answered(one, told)
    assert (claims["own"].holds, claims["specific"].holds) == (own, specific)
    for key in ("own", "specific"):
        assert claims[key].p_draws == tests["p_draws"]
        assert bool(claims[key].decides) is (claims[key].holds is None)
    cells = dict(zip(told["ppl"].tables[0].columns, told["ppl"].tables[0].rows[1].cells,
                     strict=True))  # fmt: skip
    cell = cells["change"]
    assert (cell.low, cell.value, cell.high) == pytest.approx(
        (changes[0] - half, changes[0], changes[0] + half)
    )


@pytest.mark.parametrize("half", [0.01, 0.03, 0.04, 0.08])
def test_neither_verdict_is_easier_than_the_other(tmp_path: Path, half: float) -> None:
    """Opposite effects with intervals as wide: what shows the claim there refutes it here."""
    claims = []
    for sign in (1, -1):
        one = setting(tmp_path / str(sign))
        changes = {"de": 0.1 * sign, "en": 0.12 * sign}
        finish(one, "perplexity", losses_result(changes, half, 0.06 * sign, **MANY))
        claims.append(answered(one, {"ppl-cross": tell(one, "ppl-cross")})["specific"])
    up, down = claims
    assert down.holds is {True: False, None: None}[up.holds]
    assert (up.p, up.p_against) == (pytest.approx(down.p_against), pytest.approx(down.p))


@pytest.mark.parametrize("p_same", [1 / 120, 1.0])
def test_sets_of_the_same_layers_decide_nothing(tmp_path: Path, p_same: float) -> None:
    one = setting(tmp_path)
    known = MANY | {"p_same": p_same}
    finish(one, "perplexity", losses_result({"de": 0.1, "en": 0.1}, **known))
    claim = answered(one, {"ppl": tell(one, "ppl")})["own"]
    assert claim.holds and claim.note


def test_a_run_of_before_has_no_claim(tmp_path: Path) -> None:
    one, result = setting(tmp_path), losses_result({"de": 0.1, "en": 0.1})
    finish(one, "perplexity", result)
    place = one.at("perplexity") / "result.json"
    written = json.loads(place.read_text("utf-8"))
    del written["details"]["together"]
    for row in written["details"]["own"]:
        del row["mean_difference"]
    put(one, "perplexity", written, "verify perplexity")
    for name in ("ppl", "ppl-cross"):
        shown = tell(one, name)
        assert shown.tables and not claims_of({"told": shown})


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


def steered_result(
    changes: Sequence[tuple[float, float]], p_draws: Sequence[float], half: float
) -> Steered:
    """By way the change, and that beyond random heads."""
    kinds = replace(OWN_HEADS, gate=3.0), replace(OWN_HEADS, of="en")
    rows = [
        effect("off_target", 0.3, 0.3 + change, 0.3 + change - beside, half, "lower", each,
               draws=239, p_draws=p, p_same=p)
        for each, (change, beside), p in zip(kinds, changes, p_draws, strict=True)
    ]  # fmt: skip
    return Steered(
        evidence=written(rows, de=20, ru=20),
        details=SteeringDetails(
            **prompts_of(de=20, ru=20), steer=("de", "ru"), away="en", factors=(3.0,), gate=None,
            heads={}, identifier=None, written={},
        ),
    )  # fmt: skip


#: Changes of both ways, and how far beyond random heads; p over draws of both.
FELL, ROSE, SHOWN, LIKELY = (-0.2, -0.2), (0.2, 0.2), 1 / 240, 0.5


@pytest.mark.parametrize(
    ("up", "away", "p_draws", "half", "holds"),
    [
        (FELL, FELL, (SHOWN, SHOWN), 0.05, True),
        (FELL, ROSE, (SHOWN, 1.0), 0.05, True),  # one of both ways is enough
        (ROSE, FELL, (1.0, SHOWN), 0.05, True),
        (FELL, FELL, (1 / 120, 1 / 120), 0.05, None),  # twice p is too much
        (FELL, FELL, (LIKELY, LIKELY), 0.05, None),
        (FELL, FELL, (SHOWN, SHOWN), 0.25, None),
        (ROSE, ROSE, (1.0, 1.0), 0.05, False),  # harm is no help
        (ROSE, FELL, (1.0, LIKELY), 0.05, None),  # what one way cannot, the other may
        ((0.2, -0.2), (0.2, -0.2), (SHOWN, SHOWN), 0.05, False),  # less harm than random heads do
    ],
)
def test_either_way_may_lead_answers_back(
    tmp_path: Path, up: tuple[float, float], away: tuple[float, float],
    p_draws: tuple[float, float], half: float, holds: bool | None,
) -> None:  # fmt: skip
    one = setting(tmp_path)
    finish(one, "mitigation", steered_result((up, away), p_draws, half))
    told = {"mitigation": tell(one, "mitigation")}
    (alone,) = claims_of(told)
    claim = answered(one, told)["mitigate"]
    assert claim.holds is holds
    assert claim.p_draws in [pytest.approx(min(1, 2 * p)) for p in p_draws]
    assert claim.least_p == pytest.approx(2 / 240)
    # Prompts of both languages, not of one alone.
    assert alone.by.count("40 prompts, 20 in each of 2 languages") == 2


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
    assert (config.away, config.factors, config.k, config.draws) == ("en", (3.0,), 4, 239)
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


def gated(folder: Path, trained: Sequence[float], random: float) -> tuple[Claim, Findings]:
    """The claim about the gates of some languages."""
    one = setting(folder)
    for code, share in zip(scales.POCKET_LANGUAGES, trained, strict=False):
        finish(one, f"soft-gate-{code}", gates_result(share, random))
    shown = tell(one, "head-mask")
    return answered(one, {"head-mask": shown})["gates"], shown


@pytest.mark.parametrize("random", [0.1, 0.3, 0.9])
def test_gates_are_compared_with_the_original_model(tmp_path: Path, random: float) -> None:
    """What gates of random heads do is told, and decides nothing; nor is any draw needed."""
    for number, (trained, holds) in enumerate(
        (((0.5, 0.6), True), ((0.1, 0.05), False), ((0.31, 0.33), None), ((0.5, 0.1), None))
    ):
        claim, shown = gated(tmp_path / str(number), trained, random)
        assert (claim.holds, claim.p_draws) == (holds, None)
        assert claim.note
        cells = {row.name: row.cells[0] for row in shown.tables[0].rows}
        assert {code: cell.value for code, cell in cells.items()} == {
            code: 2 if at < 2 else None for at, code in enumerate(scales.POCKET_LANGUAGES)
        }
        assert {cell.published for cell in cells.values()} == {20}


def test_gates_of_all_languages_are_pooled(tmp_path: Path) -> None:
    trained = (0.5, 0.7, 0.3)
    claim, _ = gated(tmp_path, trained, 0.4)
    changes = []
    for share in trained:
        table = gates_result(share, 0.4).evidence
        level = table.level("accuracy", table.main)
        assert level is not None and level.change is not None
        changes.append(level.change)
    low, value, high = (
        math.fsum(getattr(each, end) for each in changes) / 3 for end in ("low", "value", "high")
    )
    assert value == pytest.approx(0.2)
    # The normal distribution whose 95 % interval reaches as far.
    sizes = (0.2 - low, high - 0.2)
    expected = math.erfc(NormalDist().inv_cdf(0.975) * 0.2 / sizes[0] / math.sqrt(2))
    assert claim.p == pytest.approx(expected, rel=1e-6) and claim.p_against == 1
    assert f"{100 * value:.1f}, {100 * low:.1f} to {100 * high:.1f}" in claim.by


# Nothing run, and the whole answer


def told_of_all(folder: Path, turned: bool = False) -> tuple[Setting, dict[str, Findings]]:
    """Every experiment that a claim is about, each effect far beyond random sets and intervals, or
    as far on the other side; and what no claim is about."""
    one, sign = setting(folder), -1 if turned else 1
    tests = {"draws": 239, "p_draws": 1 / 240, "p_same": 1.0}
    shares = effect("off_target", 0.5, 0.5 + 0.3 * sign, 0.5, 0.05, **tests)
    results = {
        "heads": shared_heads(0, IN_ALL) if turned else shared_heads(9, IN_ONE),
        "perplexity": losses_result({"de": 0.1 * sign, "en": 0.1 * sign}, others=0.02 * sign,
                                    **tests),
        "summaries": summaries_result(effect("rouge_l", 50, 50 - 10 * sign, 49, 2, **tests)),
        "off-target-translate": off_result(shares),
        "off-target-continue": off_result(shares),
        "transfer": transfer_result(*2 * (shares._replace(statistic="follows_a"),)),
        "mitigation": steered_result(2 * [(-0.2 * sign,) * 2], (1 / 240, 1 / 240), 0.05),
        "soft-gate-en": gates_result(0.3 + 0.25 * sign, 0.3),
    }  # fmt: skip
    for step, result in results.items():
        finish(one, step, result)
    return one, {each.name: each.show(one) for each in PAPER.experiments}


@pytest.mark.parametrize("turned", [False, True])
def test_every_claim_of_the_paper_has_one_test(tmp_path: Path, turned: bool) -> None:
    one, told = told_of_all(tmp_path, turned)
    measured = claims_of(told)
    assert [claim.key for claim in measured] == [
        key for name in told for key, claim in published_claims("lahis").items()
        if claim.experiments[0] == name
    ]  # fmt: skip
    assert {claim.key for claim in measured} == set(published_claims("lahis"))
    assert {claim.holds for claim in answered(one, told).values()} == {not turned}
    described = [claims_of({"": told[name]}) for name in ("general-head", "off-target")]
    assert told["general-head"].tables and not any(described)


def test_pairs_of_statements_are_pooled_and_told_together(tmp_path: Path) -> None:
    one, told = told_of_all(tmp_path)
    claim = answered(one, told)["transfer"]
    assert claim.p_draws == pytest.approx(2 / 240)  # both ways
    assert "50.0 % as is, 80.0 % with A's heads times 3 (change 30.0, 25.0 to 35.0)" in claim.by
    assert "17 prompts" in claim.by and "8 prompts" in claim.by  # B has no heads in one pair


def test_the_bundled_model_has_the_draws_that_its_claims_take(tmp_path: Path) -> None:
    """As many as let the smallest p hold after Holm; where texts are written no more after one that
    does as much."""
    one = setting(tmp_path)
    family = len(published_claims("lahis"))
    for ways, draws in ((1, scales.DRAWS), (2, scales.DRAWS_OF_TWO)):
        ends = [ways / (1 + most) for most in (draws, draws - 1)]
        assert [min(holm([p] + [1.0] * (family - 1))) <= 0.05 for p in ends] == [True, False]
    described = ("summaries", "off-target-translate", "off-target-continue")
    for draws in (None, 19):
        steered = replace(one, steering=Steering(draws=draws))
        known = configured(steered)
        assert {known[name].draws for name in ("perplexity", *described)} == {draws or scales.DRAWS}
        assert known["transfer"].draws == (draws or scales.DRAWS_OF_TWO)
        assert scales.scale(steered).steering_draws == (draws or scales.DRAWS_OF_TWO)
        for name in (*described, "transfer"):
            assert known[name].in_sequence == (None if draws else "first")
        # Languages are pooled, so that all have the same sets.
        assert known["perplexity"].in_sequence is known["layers"].in_sequence is None
        assert known["off-target-continue"].claims == (None if draws else ("own",))
        plan = make_plan(PAPER.experiments, steered)
        early = {entry.step.name for entry in plan.steps if entry.step.at_most}
        assert early == (set() if draws else {*described, "transfer", "mitigation"})
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
