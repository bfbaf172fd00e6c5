"""A survey runs what it can, says what it leaves out, goes on after a stop, and compares."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.find import registry
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.runs import open_run
from headscope.studies.models import ModelChoice
from headscope.studies.registry import study_of
from headscope.studies.survey import Survey, survey
from headscope.studies.survey_plans import SurveyData, SurveyPlan

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
