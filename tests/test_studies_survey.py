"""A survey runs what it can, says what it leaves out, goes on after a stop, compares and judges."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import torch

from headscope.data.prompts import translation_prompts
from headscope.data.split import known_digests, leakage, text_digests
from headscope.errors import InputError
from headscope.find import registry
from headscope.find.knockouts_regression import random_gates
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.results.methods import JudgesResult, SurveyResult
from headscope.runs import decode, encode, open_run
from headscope.studies.judging import circuit_settings, judges, tokens_of
from headscope.studies.leakage import FOUND_ON
from headscope.studies.models import ModelChoice
from headscope.studies.pairs import PairsChoice, read_directions, read_test_directions
from headscope.studies.registry import study_of
from headscope.studies.survey import Survey, survey
from headscope.studies.survey_plans import SurveyData, SurveyPlan
from headscope.studies.tasks import TaskChoice, read_tasks
from headscope.studies.verify.circuit import VerifyCircuit
from headscope.studies.verify.circuit import comparison as circuit
from headscope.verify.removal_translations import Removal
from lm_helpers import folded
from loss_helpers import of_sentence

CALLS: list[str] = []
POCKET = Geometry.uniform(6, 16)


def _recipe(name: str, seed: int) -> Callable[..., dict[str, Any]]:
    def run(model: ModelChoice, out: Path, quick: bool, progress: object) -> dict[str, Any]:
        with open_run(out, f"find {name}", {"quick": quick}, {}) as opened:
            if opened.finished:
                return opened.result()
            CALLS.append(name)
            values = np.random.default_rng(seed).random(POCKET.shape)
            save_scores(out, HeadScores(POCKET, values, name))
            result = {"signature": opened.signature, "run": str(out), "seconds": 0.5}
            opened.finish(result)
            return result

    return run


one, two = _recipe("one", 1), _recipe("two", 2)


def fails(model: ModelChoice, out: Path, quick: bool, progress: object) -> dict[str, Any]:
    raise InputError("there is nothing to count")


def stops(model: ModelChoice, out: Path, quick: bool, progress: object) -> dict[str, Any]:
    if "stopped" not in CALLS:
        CALLS.append("stopped")
        raise KeyboardInterrupt
    return two(model, out, quick, progress)


@pytest.fixture(autouse=True)
def methods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_methods", dict(registry._methods))
    CALLS.clear()
    for name in ("one", "two", "fails", "stops"):
        registry.register(
            name, __name__, "Config", name, "nothing", f"what {name} does", f"{__name__}:{name}"
        )


def test_a_survey_goes_on_after_a_stop_and_tells_what_was_left_out(tmp_path: Path) -> None:
    config = Survey(methods=("one", "mask", "single-removal", "fails", "stops"), quick=True)
    with pytest.raises(KeyboardInterrupt):
        survey(config, tmp_path / "s")
    assert CALLS == ["one", "stopped"]
    result = survey(config, tmp_path / "s")
    assert CALLS == ["one", "stopped", "two"]  # the first method was not run again
    rows = {row.method: row for row in result.runs}
    assert rows["one"].compared and rows["stops"].run == "runs/stops"
    for long in ("mask", "single-removal"):
        assert rows[long].run is None and "--quick" in str(rows[long].why)
    assert rows["fails"].why == "there is nothing to count"
    assert [row.name for row in result.comparison.methods] == ["one", "two"]
    assert Path(str(result.report)).is_file()
    again = survey(config, tmp_path / "s")
    assert again.comparison.heads == result.comparison.heads and CALLS[-1] == "two"


def test_methods_without_data_are_left_out_for_other_models(tmp_path: Path) -> None:
    model = ModelChoice("somewhere/else")
    for one in registry.methods():
        if one.recipe is None:
            known = one.name == "single-removal"
            study = study_of("verify heads" if known else f"find {one.name}")
            assert study.survey is not None, one.name
            planned = study.survey(SurveyPlan(model, SurveyData(), False, tmp_path))
            assert isinstance(planned, str) is (one.name != "induction"), one.name


def test_too_few_methods_and_unknown_ones_are_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"fewer than two methods.*fails: there is nothing"):
        survey(Survey(methods=("one", "fails")), tmp_path / "s")
    with pytest.raises(InputError, match="did you mean lahis"):
        survey(Survey(methods=("lahsi",)), tmp_path / "t")


def test_the_command_line_surveys_and_lists_methods(
    tmp_path: Path, command: Callable[..., Any]
) -> None:
    said = command(
        "survey", "pocket", "--method", "one", "--method", "two", "--out", tmp_path / "s"
    )
    assert said.code == 0, said.err
    listed = command("methods")
    assert listed.code == 0
    for each in registry.methods():
        assert each.name in listed.out and each.measures in listed.out


JUDGED = 6


@pytest.fixture
def found(tmp_path: Path) -> dict[str, str]:
    """Runs of two methods that rank heads, by name."""
    for name, run in {"one": one, "two": two}.items():
        run(ModelChoice(), tmp_path / name, False, None)
    return {name: str(tmp_path / name) for name in ("one", "two")}


def judged_by(tmp_path: Path, found: dict[str, str], task: str = "", **more: Any) -> JudgesResult:
    data = SurveyData(task=(task,) if task else ())
    plan = SurveyPlan(ModelChoice(), data, False, tmp_path, JUDGED)
    return judges(plan, found, 3, 10, tmp_path / "judges", **more)


@pytest.mark.parametrize("task", ["", "plural-de"])
def test_areas_are_those_of_a_circuit_by_itself(
    tmp_path: Path, found: dict[str, str], task: str
) -> None:
    result = judged_by(tmp_path, found, task)
    for kind in ("mean", "resample") if task else ("zero", "mean", "resample"):
        alone = VerifyCircuit(
            heads=found["two"],
            pairs=PairsChoice() if task else PairsChoice(("en-de",), limit=JUDGED),
            ablate=(kind,),
            draws=3,
            controls=("random",),
            tasks=TaskChoice((task,), held_out=JUDGED) if task else TaskChoice(),
        )
        evidence = circuit.run(alone, tmp_path / kind).evidence
        curve = evidence.curve
        for area in ("cpr", "cmd"):
            own, test = evidence.level(area, curve), evidence.against(area, curve)["random"]
            judgement = result.of(f"{area.upper()} {kind}")["two"]
            assert own is not None and judgement.difference is not None
            assert judgement.value == pytest.approx(own.value, abs=1e-5)
            assert (judgement.low, judgement.high) == pytest.approx((own.low, own.high), abs=1e-5)
            assert judgement.difference.value == pytest.approx(test.difference.value, abs=1e-5)
            assert judgement.p_draws == test.p_draws
            draws = evidence.draws(area, curve, "random")
            assert result.random[f"{area.upper()} {kind}"].mean == pytest.approx(draws.mean, 1e-4)


def test_examples_of_which_one_answer_begins_the_other_are_counted(
    tmp_path: Path, found: dict[str, str]
) -> None:
    task = read_tasks(TaskChoice(("plural-de",), held_out=20), "pocket")["plural-de"].test
    wrong = [f"{each.output}n" if at % 5 == 0 else "Haus" for at, each in enumerate(task.examples)]
    file = tmp_path / "wrong.json"
    file.write_text(json.dumps([
        {"clean": each.input, "corrupted": other.input, "answer": each.output, "wrong": word}
        for each, other, word in zip(task.examples, task.examples[::-1], wrong, strict=True)
    ]))  # fmt: skip
    result = judged_by(tmp_path, {"one": found["one"]}, str(file))
    assert result.measure == "difference" and result.draws == 3
    # One of them is set aside for what replaces heads.
    assert 0 < result.left_out == JUDGED - 1 - result.examples


def test_predictions_equal_a_naive_loop_over_removed_sets(
    tmp_path: Path, found: dict[str, str]
) -> None:
    result = judged_by(tmp_path, found)
    lm = ModelChoice().load()
    (pairs,) = read_test_directions(PairsChoice(("en-de",), limit=JUDGED), "pocket", 0).values()
    prompts = translation_prompts(pairs, Removal().template, None, "")
    sets, losses = random_gates(POCKET, 10, result.size, 0), []
    assert {len({*own}) for own in sets} == {5} and len({*map(frozenset, sets)}) == 10
    for own in sets:
        gate = torch.ones(POCKET.shape)
        for head in own:
            gate[head.layer, head.head] = 0
        model, rows = folded(lm, gate), zip(prompts, pairs.pairs, strict=True)
        losses.append(fmean(fmean(chain(*of_sentence(lm, model, *row))) for row in rows))
    for name, place in found.items():
        values = HeadScores.from_pretrained(Path(place) / "scores").values
        sums = [sum(values[head.layer, head.head] for head in own) for own in sets]
        ranks = [np.argsort(np.argsort(numbers)) for numbers in (losses, sums)]
        prediction = result.of("prediction")[name]
        assert prediction.value == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-9)
        assert prediction.low <= prediction.high
    low, high = (getattr(result.random["prediction"], end) for end in ("low", "high"))
    assert -1 <= low < high <= 1


def test_the_first_two_methods_are_compared_on_the_same_examples(
    tmp_path: Path, found: dict[str, str]
) -> None:
    result = judged_by(tmp_path, found)
    first, second = result.of("CPR zero").values()
    assert result.ahead is not None and first.value > second.value
    assert result.ahead.value == pytest.approx(first.value - second.value, abs=1e-9)
    assert result.ahead.low < result.ahead.value < result.ahead.high
    assert decode(JudgesResult, json.loads(json.dumps(encode(result)))).of("CMD mean") == result.of(
        "CMD mean"
    )


def test_judging_goes_on_where_it_was(tmp_path: Path, found: dict[str, str]) -> None:
    def stop(title: str, done: int, total: int) -> None:
        # Of what is read together, eight conditions at most, nothing is kept before its end.
        if title == "reading references" and done > total / 2 + 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged_by(tmp_path, found, progress=stop)
    left: list[int] = []
    told: list[str] = []
    result = judged_by(
        tmp_path,
        found,
        progress=lambda title, done, total: left.append(total - done) if "read" in title else None,
        tell=told.append,
    )
    whole = judged_by(tmp_path / "whole", found)
    assert result.judgements == whole.judgements and result.random == whole.random
    # What was read before the stop is not read again, and each condition only once.
    ((total, _, _),) = [told[0].partition(": ")[2].partition(" ")]
    assert 0 < max(left) < int(total) / 2
    inner = 5  # sizes with some of the 96 heads; three kinds; two rankings and three random ones
    assert int(total) == 1 + 3 + inner * 3 * (2 + 3) + 10


def test_what_cannot_be_judged_is_told(tmp_path: Path, found: dict[str, str]) -> None:
    (tmp_path / "set").mkdir()
    HeadScores(POCKET, np.ones(POCKET.shape), "all").top(5).save_pretrained(tmp_path / "set/heads")
    tested = read_directions(PairsChoice(("en-de",), limit=3), "pocket", "test")
    digests = {name: text_digests(pairs.pairs) for name, pairs in tested.items()}
    (Path(found["two"]) / FOUND_ON).write_text(json.dumps(digests))
    result = judged_by(tmp_path, {**found, "set": str(tmp_path / "set")})
    assert result.unjudged.keys() == {"two", "set"} and [*result.of("CPR zero")] == ["one"]
    assert result.ahead is None
    with pytest.raises(InputError, match="no method has a ranking"):
        judged_by(tmp_path, {"two": found["two"]})


def test_methods_find_on_other_examples_than_they_are_judged_by(tmp_path: Path) -> None:
    file = tmp_path / "pairs.tsv"
    rows = [f"source {i}\tziel {i}" for i in range(40)]
    file.write_text("\n".join(["source\ttarget", *rows]))
    for data in (SurveyData(), SurveyData(pairs=(f"en-de={file}",))):
        plan = SurveyPlan(ModelChoice(), data, False, tmp_path, JUDGED)
        sides = [
            read_directions(plan.pairs(split), "pocket", "dev") for split in ("find", "verify")
        ]
        known = known_digests({name: text_digests(own.pairs) for name, own in sides[0].items()})
        assert sides[1].keys() == {"en-de"} and known
        assert not leakage(known, sides[1]["en-de"].pairs)
        trained = read_tasks(plan.task(), "pocket")["en-de"].train
        assert trained is not None
        inputs = {example.input for example in trained.examples}
        assert not inputs & {pair.source for pair in sides[1]["en-de"].pairs}


@pytest.mark.parametrize("named", [{"task": ("plural-de",)}, {"pairs": ("en-de=pairs.tsv",)}])
@pytest.mark.parametrize("chat", [None, False, True])
def test_a_chat_template_is_used_by_methods_and_judges_alike(
    named: dict[str, Any], chat: bool | None, tmp_path: Path
) -> None:
    plan = SurveyPlan(ModelChoice(), SurveyData(chat=chat, **named), False, tmp_path, JUDGED)
    assert plan.task(pairs=True).chat is chat
    assert circuit_settings(plan).chat is chat  # verify circuit gives it to its tasks


def test_tokens_are_counted_by_layer_and_with_gradients() -> None:
    lm = ModelChoice().load()
    batch = lm.collate([[5, 6, 7], [8, 9, 10]])
    with tokens_of(lm) as counted:
        with torch.no_grad():
            lm.forward(batch)
        assert counted == {"forward_tokens": pytest.approx(6), "gradient_tokens": 0}
        with torch.enable_grad():
            lm.forward(batch)
    with torch.no_grad():
        lm.forward(batch)  # no longer counted
    assert counted == {"forward_tokens": pytest.approx(6), "gradient_tokens": pytest.approx(6)}


def test_a_survey_judges_its_methods(tmp_path: Path) -> None:
    config = Survey(methods=("one", "induction"), quick=True, judge=True, judged=JUDGED, draws=2)
    result = survey(config, tmp_path / "s")
    assert result.judges is not None and result.judges.baseline_works
    assert result.judges.of("CPR zero").keys() == {"one", "induction"}
    costs = {row.method: (row.forward_tokens, row.gradient_tokens) for row in result.runs}
    assert costs["induction"][0] and costs["induction"][1] == 0
    stored = json.loads((tmp_path / "s" / "result.json").read_text())
    again = decode(SurveyResult, stored).judges
    assert again is not None and again.judgements == result.judges.judgements
    del stored["details"]["judges"]
    assert decode(SurveyResult, stored).judges is None  # of an older version


def test_judging_without_what_it_needs_is_told(tmp_path: Path, command: Callable[..., Any]) -> None:
    for more, words in (
        (("--draws", "3"), "--judge"),
        (("--judge", "--task", "plural-de", "--task", "ioi"), "2 tasks"),
        (("--judge", "--task", "nothing"), "nothing"),
    ):
        said = command("survey", "pocket", "--quick", *more, "--out", tmp_path / "s")
        assert said.code == 2 and words in said.err and not (tmp_path / "s").exists()
    elsewhere = SurveyPlan(ModelChoice("somewhere/else"), SurveyData(), False, tmp_path, JUDGED)
    with pytest.raises(InputError, match="--pairs"):
        judges(elsewhere, {}, 3, 10, tmp_path / "judges")
