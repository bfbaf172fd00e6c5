"""The page of plain head scores: every number shown, texts escaped, damage named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headscope.errors import InputError
from headscope.heads import Geometry, HeadScores, save_scores
from headscope.results.common import ModelFacts, ScoredHead
from headscope.results.head_scores import Place, RetrievalResult
from headscope.runs import encode, open_run
from headscope.studies.report import PAGES, write_report

GEOMETRY = Geometry((5, 0, 40))


def write(folder: Path, command: str, parts: tuple[str, ...] = (), interval: bool = True) -> Path:
    rng = np.random.default_rng(0)
    made = {}
    for name in parts or ("only",):
        values = rng.random(GEOMETRY.shape) - 0.2
        bounds = (values - 0.05, values + 0.05) if interval else (None, None)
        extra = {"chance": np.full(GEOMETRY.shape, 0.25), "<x>": np.full(GEOMETRY.shape, np.nan)}
        made[name] = HeadScores(GEOMETRY, values, "x", *bounds, extra=extra)
    result = RetrievalResult(
        signature="s",
        model=ModelFacts("<script>evil", digest="ab" * 32),
        heads=ScoredHead.all_of(HeadScores.mean(made)),
        examples=7,
        left_out={"a": 2},
        places=(Place(32, 0.5, 7, 40, None),),
    )
    with open_run(folder, command, {}, {}) as run:
        save_scores(folder, made if parts else made["only"])
        run.finish(encode(result))
    return folder


@pytest.mark.parametrize("command", ["find retrieval", "find patching", "find first-order"])
@pytest.mark.parametrize("parts", [(), ("language", "concept")])
def test_the_page_shows_every_head_and_part(
    tmp_path: Path, command: str, parts: tuple[str, ...]
) -> None:
    run = write(tmp_path / "run", command, parts, interval=command != "find first-order")
    page = write_report(run).read_text()
    assert "<script>evil" not in page and "&lt;script&gt;evil" in page
    assert "<x>" not in page and "&lt;x&gt;" in page
    for head in GEOMETRY.heads():
        assert f'<th scope="row">{head}</th>' in page
    assert all(name in page for name in parts)
    assert page.count('class="matrix"') == max(1, len(parts))
    assert ("95\u00a0%" in page) == (command != "find first-order")
    assert ("Hidden facts by place" in page) == (command == "find retrieval")
    assert "NaN" not in page and ">nan<" not in page


def test_an_entry_that_cannot_be_drawn_names_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = write(tmp_path / "run", "find induction")
    for error in (OverflowError("too large"), IndexError("no entry 3"), StopIteration()):

        def broken(_: Path, error: Exception = error) -> None:
            raise error

        monkeypatch.setitem(PAGES, "find induction", broken)
        wanted = str(error) or "an entry is missing"
        with pytest.raises(InputError, match=rf"run/result\.json: is not the .*\({wanted}\)"):
            write_report(run)


def test_a_run_without_scores_or_with_a_damaged_result_is_told(tmp_path: Path) -> None:
    run = write(tmp_path / "run", "find induction")
    (run / "scores" / "config.json").unlink()
    with pytest.raises(InputError, match="holds no scores of heads"):
        write_report(run)
    other = write(tmp_path / "other", "find induction")
    (other / "result.json").write_text("{}")
    with pytest.raises(InputError, match="not the result that"):
        write_report(other)
