"""What every command finds and shows is what it was: the goldens in `data/goldens`.

Keys, counts, head sets and texts are the same, numbers to 1e-5, and numbers on pages and in the
terminal to one unit of their last digit, or to 1e-5 where a column is of millionths. A mask that is
trained amplifies the rounding of the processor: its weights, and what is measured under it, are
held to 1e-3. Digests of such weights, of bounds, losses and rankings are left out: their last bits
are the processor's.
`GOLDENS=write pytest tests/test_goldens.py` writes them anew, which is a commit of its own that
says why.
"""

from __future__ import annotations

import json
import math
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial, reduce
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from command_runs import CommandRun
from conftest import Said
from headscope.heads.store import RUN_FORMAT
from headscope.runs.codec import SHARED
from headscope.shown.words import sentence_of
from headscope.studies.registry import study_of
from headscope.studies.report import read_run, write_report
from headscope.studies.study import shown_of
from test_cli_app import commands

GOLDENS = Path(__file__).parent / "data" / "goldens"
WRITE = os.environ.get("GOLDENS") == "write"
#: Keys whose values tell about the machine or the moment.
PASSING = {"seconds", "seconds_a_step", "tokens_per_second", "software", "run",
           "cpu_seconds_a_word"}  # fmt: skip
#: Runs that train a mask, or measure under one.
TRAINED = {"find-mask", "verify-mask", "verify-scaling"}
#: Digests of trained weights, of bounds of intervals, of losses or of rankings by them, by run.
OF_ROUNDED = {
    "compare-masks": ("signature",),
    "compare-methods": ("signature",),
    "compare-overlap": ("signature",),
    "compare-classes": ("signature",),
    "use-mix": ("signature", "details.digest"),
    "judged": ("details.judges.signature",),
}
#: Dates, seconds and rates in what is shown.
MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d(?: \d\d:\d\d:\d\d)?|seconds\n[\d.]+|together\n.+"
    r"|[\d,\u202f]+\s(?:tokens\s)?a\ssecond|[\d.]+\ss\b"
)
NUMBER = re.compile(r"(?<![\w.])[-\u2212]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


def steady(value: Any, folder: str) -> Any:
    """A JSON value without what passes, and without the place of the folder."""
    if isinstance(value, dict):
        return {key: steady(of, folder) for key, of in value.items() if key not in PASSING}
    if isinstance(value, list):
        return [steady(item, folder) for item in value]
    if isinstance(value, float):
        return float(f"{value:.7g}")
    return value.replace(folder, "FOLDER") if isinstance(value, str) else value


def differences(
    was: Any, now: Any, within: float, place: str = "", of: float = 1.0
) -> Iterator[str]:
    """Where two JSON values differ: keys, lengths and words at all, numbers by more than `within`,
    of 1 or of themselves, and a change of the level that it is of, which rounds it."""
    if isinstance(was, dict) and isinstance(now, dict):
        for key in sorted(was.keys() ^ now.keys()):
            yield f"{place}.{key} is only {'here now' if key in now else 'in the golden'}"
        for key in was.keys() & now.keys():
            level = was.get("value") if key == "change" else None
            level = of if level is None else max(1.0, abs(level))
            yield from differences(was[key], now[key], within, f"{place}.{key}", level)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for at, (old, new) in enumerate(zip(was, now, strict=True)):
            yield from differences(old, new, within, f"{place}[{at}]", of)
    elif isinstance(was, float) and isinstance(now, int | float) and not isinstance(now, bool):
        if not math.isclose(was, now, rel_tol=within, abs_tol=within * of):
            yield f"{place} was {was} and is {now}"
    elif was != now or type(was) is not type(now):
        yield f"{place} was {str(was)[:200]} and is {str(now)[:200]}"


class Words(HTMLParser):
    """The text of a page, with the data that it carries, without scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.hidden = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden = tag == "style" or (
            tag == "script" and ("type", "application/json") not in attrs
        )

    def handle_endtag(self, tag: str) -> None:
        self.hidden = False

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.words.append(data)


def numbers(text: str) -> list[str]:
    """The numbers in a text by size."""
    found = [one.replace("\u2212", "-") for one in NUMBER.findall(MOMENT.sub(" ", text))]
    return sorted(found, key=lambda number: (float(number), number))


def same(was: str, now: str, unit: float = 1.0) -> bool:
    """Whether two written numbers are as many, or differ by a unit of the last digit at most; or,
    where the least `unit` of a column is below 1, by 1e-5 of 1 and half a percent of themselves."""
    digits, apart = min(len(was.partition(".")[2]), 5), abs(float(was) - float(now))
    rounding = min(1e-5 / unit, 0.005 * abs(float(was))) if unit < 1 else 0.0
    return was == now or (digits > 0 and apart <= max(1.01 * 10.0**-digits, rounding))


def least_unit(text: str) -> float:
    """The smallest power of ten, such as 10⁻⁶, that a column of a text is written in."""
    powers = re.findall("10\u207b([\u2070\u00b9\u00b2\u00b3\u2074-\u2079]+)", text)
    return min((10.0 ** -int(unicodedata.normalize("NFKC", each)) for each in powers), default=1.0)


def golden(made: CommandRun) -> dict[str, Any]:
    """What is kept of a run."""
    folder = str(made.folder.parent.parent)
    rows = {
        file.name: [json.loads(line) for line in file.open(encoding="utf-8")]
        for file in sorted(made.folder.glob("*.jsonl"))
    }
    result = json.loads((made.folder / "result.json").read_text("utf-8"))
    page = Words()
    html = write_report(made.folder, made.folder / "golden.html").read_text("utf-8")
    if made.command != "survey":  # a table of its page tells seconds
        page.feed(html.partition('<section id="provenance"')[0])
    return {
        **steady(result, folder),
        "rows": steady(rows, folder),
        "terminal": numbers(made.terminal.replace(folder, "")),
        "page": numbers("\n".join(page.words).replace(folder, "")),
    }


def test_every_command_finds_and_shows_what_it_did(command_runs: list[CommandRun]) -> None:
    wrong: list[str] = []
    for made in command_runs:
        file = GOLDENS / made.folder.parent.name / f"{made.folder.name}.json"
        now = golden(made)
        if WRITE:
            file.parent.mkdir(parents=True, exist_ok=True)
            lines = (
                f"{json.dumps(key)}: {json.dumps(now[key], ensure_ascii=False)}" for key in now
            )
            file.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        was = json.loads(file.read_text("utf-8"))
        for shown in ("terminal", "page"):
            old, new = was.pop(shown), now.pop(shown)
            unit = least_unit(made.terminal)
            if len(old) != len(new) or not all(map(partial(same, unit=unit), old, new)):
                lost, more = list(Counter(old) - Counter(new)), list(Counter(new) - Counter(old))
                wrong.append(f"{file.stem}: {shown} lost {lost[:9]} and has {more[:9]} more")
        for place in OF_ROUNDED.get(file.stem, ()):
            *above, last = place.split(".")
            for kept in (was, now):
                del reduce(dict.__getitem__, above, kept)[last]
        within = 1e-3 if file.stem in TRAINED else 1e-5
        wrong += [f"{file.stem}{words}" for words in differences(was, now, within)]
    assert wrong == []
    assert {file.stem for file in GOLDENS.glob("*/*.json")} == {
        made.folder.name for made in command_runs
    }


def test_what_is_shown_and_what_json_says_are_the_same(command_runs: list[CommandRun]) -> None:
    """Of every command: the answer and every caution, on the page, in the terminal, in JSON."""
    for made in command_runs:
        written = json.loads((made.folder / "result.json").read_text("utf-8"))
        assert [name for name in SHARED if name in written] + ["details"] == list(written), (
            f"{made.command}: {list(written)}"
        )
        assert (written["format"], written["command"]) == (RUN_FORMAT, made.command)
        study = study_of(made.command)
        shown = shown_of(study, read_run(made.folder), made.folder)
        verdict, finding = written["verdict"], " ".join(shown.finding)
        assert verdict and finding.startswith(sentence_of(verdict).removesuffix(".")), made.command
        warning = [shown.warning] if shown.warning else []
        assert sorted(written["cautions"]) == sorted([*warning, *shown.cautions]), made.command
        if made.terminal:
            said = " ".join(made.terminal.split())
            stated = (sentence_of(verdict), *written["cautions"])
            sentences = (" ".join(words.split()).removesuffix(".") for words in stated)
            missing = [words for words in sentences if words not in said]
            assert missing == [], made.command


def test_every_command_says_how_it_is_used(
    command: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    texts = {
        path: re.sub(r"([ \u2500])\1+", r"\1", command(*path.split(), "--help").out)
        for path, _ in commands()
    }
    file = GOLDENS / "help.json"
    if WRITE:
        file.write_text(json.dumps(texts, indent=0, ensure_ascii=False) + "\n", "utf-8")
    assert texts == json.loads(file.read_text("utf-8"))
