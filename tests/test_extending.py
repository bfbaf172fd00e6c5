"""What docs/extending.md shows, made from the page: a method (command, help, resume, JSON, page,
views), a control, a measure, a replacement."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import headscope
from conftest import Said, json_of
from headscope.evidence.headline import NOT_SHOWN, OPEN
from headscope.heads import Head, HeadSet
from headscope.lm import LanguageModel, answers_at, replacement
from headscope.lm.generation import GenerateConfig
from headscope.runs import Run
from headscope.studies.registry import COMMANDS

PAGE = (Path(__file__).parents[1] / "docs" / "extending.md").read_text("utf-8")
STUDY, LINE = (
    re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("python", "text")
)


@pytest.fixture
def method(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The study and the line of the page, the study as a module of another package."""
    (tmp_path / "reach_of_the_page.py").write_text(STUDY, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    (name,) = json.loads(f"{{{LINE}}}")
    monkeypatch.setitem(COMMANDS, name, "reach_of_the_page")
    yield
    sys.modules.pop("reach_of_the_page", None)


def test_the_page_makes_a_command(
    method: None, command: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "reach" in command("find", "--help").out
    told = command("find", "reach", "--help").out
    assert "--distance" in told and "--limit" in told and "far back" in told
    refused = command("find", "reach", "--distance", 0)
    assert refused.code == 2 and "distance" in refused.err

    out = tmp_path / "run"
    asked = ("find", "reach", "--language", "en", "--limit", 6, "--batch-tokens", 30, "--out", out)
    kept, batches = Run.append_tensors, []

    def stopped(self: Run, *given: object) -> None:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(given)
        kept(self, *given)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "append_tensors", stopped)
        assert command(*asked).code == 130
    made = command(*asked, "--json")
    result = json_of(made.out)
    assert (out / "DONE.json").exists() and result["examples"] == 6
    assert command(*asked, "--json").out == made.out

    lm = headscope.load("pocket")
    documents = headscope.read_run(out)
    expected = naive(lm, 16, 6)
    ours = {(head["layer"], head["head"]): head["score"] for head in result["scores"]}
    assert ours == {place: pytest.approx(value) for place, value in expected.items()}
    shown = command(*asked).out
    assert "Strongest: " in shown and "run: " in shown
    assert command("report", out).code == 0
    assert "Which attention heads look far back?" in (out / "report.html").read_text("utf-8")
    assert documents._repr_html_().startswith("<iframe")
    again = headscope.find.reach(lm, language="en", limit=6, distance=4, out=tmp_path / "other")
    assert again.scores.top(1).heads[0].layer < lm.geometry.layers


def test_the_page_makes_a_method_of_surveys(
    method: None, command: Callable[..., Said], tmp_path: Path
) -> None:
    listed = command("methods").out
    assert "reach " in listed and "how often a head looks far back" in listed
    wanted = ("--method", "reach", "--method", "induction")
    made = command("survey", "pocket", *wanted, "--quick", "--out", tmp_path / "s", "--json")
    rows = json_of(made.out)["runs"]
    assert [(row["method"], row["compared"]) for row in rows] == [
        ("reach", True),
        ("induction", True),
    ]
    assert rows[0]["needs"] == "documents of one or more languages"
    assert "no method" in command("survey", "pocket", "--method", "rech").err


def naive(lm: LanguageModel, distance: int, limit: int) -> dict[tuple[int, int], float]:
    """The score from the attention weights of plain transformers, document by document."""
    from headscope.pocket.sample import sample_documents

    shares = []
    lm.model.set_attn_implementation("eager")
    for document in sample_documents("en", "dev", limit, 0).documents:
        ids = torch.tensor([lm.encode(document.text)])
        with torch.no_grad():
            weights = lm.model(ids, output_attentions=True).attentions
        peaks = np.stack([layer[0].argmax(-1).T.numpy() for layer in weights], axis=1)
        at = np.arange(ids.shape[1])[:, None, None]
        if ids.shape[1] > distance:
            shares.append((at - peaks >= distance)[distance:].mean(axis=0))
    mean = np.mean(shares, axis=0)
    return {(layer, head): mean[layer, head] for layer, head in np.ndindex(mean.shape)}


def block(holding: str, kind: str = "python") -> str:
    """The one block of the page that holds some words."""
    blocks = re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)
    (found,) = (block for block in blocks if holding in block)
    return str(found)


def test_the_page_makes_a_command_that_compares(
    command: Callable[..., Said], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    section = PAGE.partition("## A command that compares")[2]
    (source,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert source.count("\n") <= 120
    (tmp_path / "repeats_of_the_page.py").write_text(source, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(COMMANDS, "verify repeats", "repeats_of_the_page")
    asked = ("verify", "repeats", "--heads", "5.1,4.3,5.3", "--language", "en", "--limit", 4,
             "--draws", 2, "--out", tmp_path / "run")  # fmt: skip
    made = command(*asked, "--json")
    assert made.code == 0, made.err
    result = json_of(made.out)
    assert command(*asked, "--json").out == made.out
    assert result["verdict"] and "not recorded which texts" in result["cautions"][0]
    assert {test["control"] for test in result["tests"]} == {"random", "same layers"}

    level = command(*asked[:-1], tmp_path / "level", "--level", 0.34, "--json")
    decided = json_of(level.out)
    assert (result["alpha"], decided["alpha"]) == (0.05, 0.34)
    assert OPEN in result["verdict"] or NOT_SHOWN in result["verdict"]
    assert OPEN not in decided["verdict"]
    assert decided["signature"] != result["signature"]

    lm = headscope.load("pocket")
    rows = (tmp_path / "run" / "prompts.jsonl").read_text("utf-8").splitlines()
    prompts = [json.loads(row)["prompt"] for row in rows]
    how = GenerateConfig(24, stop_at_newline=False)
    by_id = {row["id"]: row["heads"] for row in result["conditions"]}
    for level in result["levels"]:
        heads = tuple(map(Head.parse, by_id[level["condition"]]))
        removed = HeadSet(lm.geometry, heads)
        with lm.gated(removed.removed()):
            texts = [lm.generate([prompt], how)[0].text for prompt in prompts]
        shares = [1 - len(set(own)) / len(own) for text in texts if (own := text.split())]
        assert level["value"] == pytest.approx(sum(shares) / 4)
    assert command("report", tmp_path / "run").code == 0
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "Does the model repeat itself more without these heads?" in page
    sys.modules.pop("repeats_of_the_page")


def test_the_page_makes_a_control_and_a_measure(tmp_path: Path) -> None:
    """In a copy of the package, where they are written as the page says."""
    source = Path(headscope.__file__).parent
    package = tmp_path / "headscope"
    shutil.copytree(source, package, copy_function=os.symlink)

    def written(name: str, old: str, new: str) -> None:
        text = (source / name).read_text("utf-8")
        assert text.count(old) == 1
        (package / name).unlink()
        (package / name).write_text(text.replace(old, new), "utf-8")

    controls = "evidence/controls"
    (package / controls / "same_depth.py").write_text(block("SAME_DEPTH = Control"), "utf-8")
    imported = "from headscope.evidence.controls.same_depth import SAME_DEPTH\n"
    before, line = '    "same layers": SAME_LAYERS,\n', block("SAME_DEPTH", "text")
    written(f"{controls}/__init__.py", before, f"{before}    {line}")
    registry = package / controls / "__init__.py"
    first = "from headscope.evidence.controls.same_layers"
    registry.write_text(registry.read_text("utf-8").replace(first, imported + first), "utf-8")
    last = "def _scores("
    written("evidence/texts.py", last, f"{block('@text_measure')}\n\n{last}")
    taken = block("TEXTS = ", "text").rstrip()
    written("verify/removal_translations/evidence.py", taken.replace(', "exact"', ""), taken)

    out = tmp_path / "run"
    words = ("verify", "removal", "--pair", "en-de", "--heads", "5.3,5.1,4.3,2.0", "--limit", "4",
             "--draws", "3", "--control", "same-depth", "--control", "same layers",
             "--out", str(out), "--json")  # fmt: skip
    made = subprocess.run(
        [sys.executable, "-m", "headscope", *words],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stderr
    result = json_of(made.stdout)
    tested = [row for row in result["tests"] if row["control"] == "same depth"]
    assert tested[0]["statistic"] == "chrf" and tested[0]["draws"] == 3
    assert tested[0]["p_draws"] in (0.25, 0.5, 0.75, 1.0)
    assert result["controls"]["same depth"]["null"]
    drawn = [set(each["heads"]) for each in result["conditions"] if each["kind"] == "same depth"]
    assert len({*map(frozenset, drawn)}) == 3
    for heads in drawn:
        assert sorted(int(head.split(".")[0]) // 2 for head in heads) == [1, 2, 2, 2]

    rows = [json.loads(line) for line in (out / "outputs.jsonl").read_text("utf-8").splitlines()]
    expected: dict[str, list[bool]] = {}
    for row in rows:
        expected.setdefault(row["condition"], []).append(row["output"] == row["reference"])
    shares = {row["condition"]: row["value"] for row in result["levels"]
              if row["statistic"] == "exact"}  # fmt: skip
    assert shares == {name: sum(equal) / 4 for name, equal in expected.items()}
    assert len(shares) == 8 and shares["original"] > 0


def test_the_page_makes_a_replacement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacement, "MAKERS", dict(replacement.MAKERS))
    exec(block("MAKERS["), {})
    lm = headscope.load("pocket")
    rows, starts = [lm.encode("Mira sings."), lm.encode("The old dog sleeps.")], [3, 4]
    made = replacement.replacement_of("first-token", lm, rows, starts)
    site, seen = lm.sites[-1], []
    removed = HeadSet(lm.geometry, (Head(site.layer, 1),)).removed()
    ids = torch.tensor([rows[1]])

    def look(_: object, args: tuple[torch.Tensor]) -> None:
        seen.append(args[0][0].unflatten(-1, (site.heads, site.head_width)))

    with torch.no_grad():
        for row in rows:
            with site.projection.register_forward_pre_hook(look):
                lm.model(input_ids=torch.tensor([row]))
        with (
            lm.gated(removed, made),
            site.projection.register_forward_pre_hook(look),
            answers_at([starts[1]]),
        ):
            lm.model(input_ids=ids)
    *plain, changed = seen
    expected = plain[1].clone()
    expected[:, 1] = (plain[0][0, 1] + plain[1][0, 1]) / 2
    torch.testing.assert_close(changed, expected, rtol=1e-5, atol=1e-5)
