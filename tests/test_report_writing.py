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
from headscope.results.writing import OffTarget, Summaries, Transfer, WritingResult
from headscope.runs import decode, file_digest
from headscope.studies.report import write_report
from writing_helpers import language_run

HOSTILE = "<script>window.hacked=1</script>"
Command = Callable[..., Any]
GROUPS = {"summaries": "languages", "off-target": "languages", "transfer": "pairs"}


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


@pytest.mark.parametrize("name", GROUPS)
def test_a_page_says_what_was_measured(name: str, made: Callable[[str], Path]) -> None:
    out = made(name)
    page = write_report(out).read_text(encoding="utf-8")
    result = json.loads((out / "result.json").read_text())
    assert HOSTILE not in page and "window.hacked" in page
    for group in result[GROUPS[name]]:
        assert f"<bdi>{group}</bdi>" in page or f"asked for {group}" in page
    assert 'id="numbers"' in page and 'id="provenance"' in page
    first = "general" if name == "summaries" else "specific" if name == "off-target" else "up"
    for measure in result["effects"][first].values():
        # Shares are told in per cent, scores as they are.
        scaled = measure["value"] * (100 if measure["value"] <= 1 else 1)
        assert f"{scaled:.1f}" in page
    if name == "transfer":
        assert page.count("<h3>") >= 3 and 'id="lens-figure"' in page


@pytest.mark.parametrize("name", GROUPS)
def test_the_table_of_a_command(name: str, made: Callable[[str], Path], command: Command) -> None:
    out = made(name)
    said = command("report", out)
    assert said.code == 0
    result = json.loads((out / "result.json").read_text())
    from headscope.cli.verify.off_target import off_target_table
    from headscope.cli.verify.summaries import summaries_table
    from headscope.cli.verify.transfer import transfer_table

    made_by: dict[str, tuple[Callable[[Any], str], type[WritingResult]]] = {
        "summaries": (summaries_table, Summaries),
        "off-target": (off_target_table, OffTarget),
        "transfer": (transfer_table, Transfer),
    }
    table, kind = made_by[name]
    text = table(decode(kind, result))
    assert text.endswith(f"run: {result['run']}")
    rows = sum(len(one["effects"]) for one in result[GROUPS[name]].values())
    assert text.count("+") + text.count("-") >= rows


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
