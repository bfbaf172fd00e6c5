"""The pages of summaries, off-target rates and attention transfer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from find_helpers import model, tokenizer
from headscope.errors import InputError
from headscope.heads.store import write_bytes
from headscope.lm import load
from headscope.runs import file_digest
from headscope.runs.reading import result_of
from headscope.shown.blocks import Table
from headscope.studies.registry import study_of
from headscope.studies.report import write_report
from headscope.studies.study import shown_of
from writing_helpers import language_run

HOSTILE = "<script>window.hacked=1</script>"
Command = Callable[..., Any]
#: Of each command a kind, a measure, the title of its table, and what scores are multiplied by.
MEASURES = {
    "summaries": ("general", "chrf", "chrF++", 1),
    "off-target": ("specific", "empty", "Empty outputs", 100),
    "transfer": ("up", "follows_a", "Answers that follow A", 100),
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("writing")
    model("pocket-like").save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    lm = load(str(folder / "model"))
    language_run(folder / "run", lm.geometry, {"de": "0.1,1.2", "en": "0.3,1.4"}, "0.2,1.1")
    rows = [{"language": code, "text": f"{HOSTILE} ein Hund", "summary": HOSTILE, "id": HOSTILE}
            for code in ("de", "en")]  # fmt: skip
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "summaries.jsonl").write_text(lines, encoding="utf-8")
    own = {"a": "de", "b": "en", "prompt": f"{HOSTILE} or not?", "answers_a": ["red", HOSTILE],
           "answers_b": "blue", "id": HOSTILE}  # fmt: skip
    (folder / "prompts.jsonl").write_text(json.dumps(own) + "\n", encoding="utf-8")
    lines = "".join(
        json.dumps({"id": f"{n} {HOSTILE}", "text": f"der Hund {HOSTILE} sieht {n}"}) + "\n"
        for n in range(4)
    )
    (folder / "de.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def made(place: Path, command: Command) -> Callable[[str], Path]:
    """The run folder of a command, made once."""

    def run(name: str) -> Path:
        out = place / name
        if out.exists():
            return out
        more: dict[str, list[object]] = {
            "summaries": ["--data", place / "summaries.jsonl", "--k", 2],
            "off-target": ["--ask", "continue", "--data", f"de={place / 'de.jsonl'}", "--k", 1,
                           "--start-tokens", 6],
            "transfer": ["--data", place / "prompts.jsonl", "--k", 1],
        }  # fmt: skip
        said = command(
            "verify", name, "--model", place / "model", "--heads", place / "run", *more[name],
            "--draws", 2, "--max-new-tokens", 5, "--out", out, "--json",
        )  # fmt: skip
        assert (said.code, said.err) == (0, "")
        told = json.loads(said.out)
        assert {"signature", "run", "seconds", "baseline", "conditions", "effects"} <= set(told)
        assert told == json.loads((out / "result.json").read_text())
        return out

    return run


@pytest.mark.parametrize("name", MEASURES)
def test_tables_hold_the_effects(name: str, made: Callable[[str], Path]) -> None:
    out, study = made(name), study_of(f"verify {name}")
    kind, measure, title, factor = MEASURES[name]
    result = result_of(out, study.result, name)
    shown = shown_of(study, result, out)
    tables = {
        block.title: block
        for section in shown.sections
        for block in section.blocks
        if isinstance(block, Table)
    }
    effect = result.whole.effect(kind, measure)
    scores = [effect.baseline, effect.value, effect.change.value, effect.free.draws.mean]
    cells = tables[title].rows[0].cells
    assert [cell.value for cell in cells[2:6]] == pytest.approx([factor * one for one in scores])
    against = tables[f"{title}: selected minus random heads"].rows[0].cells
    assert against[0].value == pytest.approx(factor * effect.free.against.difference.value)
    assert against[2].value == pytest.approx(effect.free.against.p_draws)
    assert any(words.startswith("Few prompts") for words in shown.cautions)
    page = write_report(out).read_text(encoding="utf-8")
    assert HOSTILE not in page and "window.hacked" in page


@pytest.mark.parametrize("damage", ["result", "outputs"])
def test_damage_is_named(damage: str, made: Callable[[str], Path], tmp_path: Path) -> None:
    out = tmp_path / "copy"
    shutil.copytree(made("off-target"), out)
    if damage == "outputs":
        (out / "outputs.jsonl").write_text('{"language": "de"}\n')
        with pytest.raises(InputError, match=r"outputs\.jsonl, line 1: is damaged"):
            write_report(out)
        return
    result = json.loads((out / "result.json").read_text())
    del result["languages"]["de"]["effects"]
    write_bytes(out / "result.json", json.dumps(result).encode())
    done = json.loads((out / "DONE.json").read_text())
    write_bytes(
        out / "DONE.json", json.dumps({**done, "result": file_digest(out / "result.json")}).encode()
    )
    with pytest.raises(InputError, match=r"result\.json: holds no 'result.languages.de.effects'"):
        write_report(out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["summaries", "--heads", "0.1"], "no data given for the model"),
        (["transfer", "--heads", "0.1", "--pair", "de-fi"], "no sentences in Finnish"),
        (["transfer", "--heads", "0.1", "--pair", "de-en", "--up", "nan"], "not a finite number"),
        (["off-target", "--heads", "0.1"], "no data given for the model"),
        (["off-target", "--heads", "0.1", "--ask", "sing"], "'sing' is not one of"),
    ],
)
def test_bad_input_is_one_sentence(
    arguments: list[str], message: str, place: Path, command: Command
) -> None:
    name, *rest = arguments
    said = command("verify", name, "--model", place / "model", *rest)
    assert said.code == 2 and said.out == ""
    assert message in said.err and said.err.count("\n") == 1
