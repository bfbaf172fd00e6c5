"""COMET, BLEURT and BERTScore as commands: real scripts stand in for them, good and bad ones."""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headscope.errors import InputError
from headscope.measure import External, bert_score, bleurt, comet

pytestmark = pytest.mark.skipif(os.name != "posix", reason="commands end by process groups")

SOURCES = ["Die Katze schläft.", "Ein Hund", "Wir gehen."]
OUTPUTS = ["The cat sleeps.", "", "We\ngo\u2028now.\r\n"]
REFERENCES = ["The cat is asleep.", "A dog", "We go."]

# What all stand-ins for comet-score share: its options, read as its own parser does.
COMET = """
import argparse, json, os, signal, subprocess, sys, time
parser = argparse.ArgumentParser()
parser.add_argument("-s", "--sources")
parser.add_argument("-t", "--translations", nargs="+")
parser.add_argument("-r", "--references")
parser.add_argument("--to_json")
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--model", default="usual")
given = parser.parse_args()
read = lambda path: [line.strip() for line in open(path).readlines()]
texts = {"src": read(given.sources), "mt": read(given.translations[0]),
         "ref": read(given.references)}
rows = [dict(zip(texts, values)) for values in zip(*texts.values())]
assert len({len(values) for values in texts.values()}) == 1, texts
def write(found):
    with open(given.to_json, "w") as file:
        json.dump(found, file)
"""
BLEURT = """
import sys
given = dict(word.lstrip("-").split("=", 1) for word in sys.argv[1:])
read = lambda path: open(path, encoding="utf-8", newline="").read().split("\\n")[:-1]
pairs = list(zip(read(given["candidate_file"]), read(given["reference_file"]), strict=True))
def write(scores):
    with open(given["scores_file"], "w") as file:
        file.writelines(f"{score}\\n" for score in scores)
"""
LENGTHS = "for at, row in enumerate(rows): row['COMET'] = len(row['mt']) + at / 4\n"
WELL = LENGTHS + "write({given.translations[0]: rows})\n"
BERT = """
import argparse, os, signal, sys
parser = argparse.ArgumentParser()
parser.add_argument("--lang")
parser.add_argument("-m", "--model", default="usual")
parser.add_argument("-s", "--seg_level", action="store_true")
parser.add_argument("-r", "--ref", nargs="+")
parser.add_argument("-c", "--cand")
given = parser.parse_args()
assert os.path.isfile(given.cand) and os.path.isfile(given.ref[0]) and given.seg_level
cands = [line.strip() for line in open(given.cand)]
refs = [line.strip() for line in open(given.ref[0])]
assert len(cands) == len(refs), "# of sentences"
print("usual_L9_no-idf_version=0.3.12(hug_trans=4.57) P: 0.9 R: 0.8 F1: 0.85")
for cand, ref in zip(cands, refs):
    print("{:.6f}\\t{:.6f}\\t{:.6f}".format(0.5, 0.25, len(cand) / 100))
"""
STAND_INS = {"comet": COMET, "bleurt": BLEURT, "bertscore": BERT}


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COMET", "BLEURT", "BERTSCORE", "METRIC_TIMEOUT"):
        monkeypatch.delenv(f"HEADSCOPE_{name}", raising=False)
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Make a stand-in with this body a metric's command; its folder has a space in its name."""

    def install(metric: str, body: str, options: str = "") -> None:
        path = tmp_path / "a folder" / "command.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(STAND_INS[metric] + body, encoding="utf-8")
        command = shlex.join([sys.executable, str(path)]) + options
        monkeypatch.setenv(f"HEADSCOPE_{metric.upper()}", command)

    return install


def score(metric: str, language: str = "en", **more: Any) -> External:
    if metric == "comet":
        return comet(SOURCES, OUTPUTS, REFERENCES, **more)
    if metric == "bleurt":
        return bleurt(OUTPUTS, REFERENCES)
    return bert_score(OUTPUTS, REFERENCES, language)


def no_scores(found: External) -> str:
    assert found.value is None and found.scores is None and found.reason
    return found.reason


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be asked for its status does not."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("metric", STAND_INS)
def test_a_command_that_is_not_there(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = f"HEADSCOPE_{metric.upper()}"
    reason = no_scores(score(metric))
    assert "not installed" in reason and variable in reason
    monkeypatch.setenv(variable, "/not/there")
    assert "could not be started" in no_scores(score(metric))
    monkeypatch.setenv(variable, "comet-score 'never closed")
    assert "not a command line" in no_scores(score(metric))


# The second output is empty and the third one line: "We go now."
@pytest.mark.parametrize(
    ("metric", "body", "scores"),
    [
        ("comet", WELL, (15.0, 0.25, 10.5)),
        ("comet", LENGTHS + "write(rows)\n", (15.0, 0.25, 10.5)),
        ("comet", "assert sys.stdin.read() == ''\n" + WELL, (15.0, 0.25, 10.5)),
        ("bleurt", "write([len(a) - len(b) / 4 for a, b in pairs])\n", (10.5, -1.25, 8.5)),
        ("bertscore", "", (0.15, 0.0, 0.1)),
    ],
)
def test_every_sentence_has_its_score(
    installed: Callable[..., None], metric: str, body: str, scores: tuple[float, ...]
) -> None:
    installed(metric, body)
    assert score(metric) == External(pytest.approx(sum(scores) / 3), scores, "")


@pytest.mark.parametrize(
    ("metric", "body", "options", "language"),
    [
        ("comet", f"""
assert texts['src'] == {SOURCES!r}, texts
assert texts['mt'] == ['The cat sleeps.', '', 'We go now.'], texts
assert texts['ref'] == {REFERENCES!r}, texts
{WELL}""", "", ""),
        ("comet", "assert given.model == 'mine and yours'\n" + WELL,
         " --model 'mine and yours'", ""),
        ("bleurt", "assert given['bleurt_checkpoint'] == 'BLEURT-20'\nwrite([0] * 3)\n",
         " -bleurt_checkpoint=BLEURT-20", ""),
        ("bertscore", "assert (given.lang, given.model) == ('zh', 'mine')", " -m mine", "zh_Hans"),
        ("bertscore", "assert given.lang == 'zh'", "", "zh-TW"),
    ],
)  # fmt: skip
def test_a_command_gets_texts_options_and_language(
    installed: Callable[..., None], metric: str, body: str, options: str, language: str
) -> None:
    installed(metric, body, options)
    assert score(metric, language).reason == ""


def test_comet_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "bin" / "comet-score"
    path.write_text(f"#!{sys.executable}\n{COMET}{WELL}", encoding="utf-8")
    path.chmod(0o755)
    assert score("comet").scores == (15.0, 0.25, 10.5)
    # The variable goes before the path; nothing in it is nothing.
    monkeypatch.setenv("HEADSCOPE_COMET", " ")
    assert score("comet").scores == (15.0, 0.25, 10.5)
    monkeypatch.setenv("HEADSCOPE_COMET", str(tmp_path / "none"))
    assert score("comet").scores is None


def test_negative_scores_and_half_characters(installed: Callable[..., None]) -> None:
    installed("bleurt", "write([-0.1 for _ in pairs])\n")
    found = bleurt(["half a pair \ud83d", "\x0b\x85"] * 15, ["one", "two"] * 15)
    assert found.scores == (-0.1,) * 30
    assert found.value == pytest.approx(-0.1, rel=1e-15)


NO_FORM = (
    "open(given.to_json, 'w').write('score: 0.8')",
    "write({'t': rows})",
    "write({})",
    "write({'t': rows, 'u': rows})",
    "write(3)",
    "write({'t': ['x'] * 3})",
    "for row in rows: row['COMET'] = 'good'\nwrite({'t': rows})",
    "for row in rows: row['COMET'] = None\nwrite({'t': rows})",
)


@pytest.mark.parametrize(
    ("metric", "body", "reason"),
    [
        ("comet", "print('first ' * 2000, file=sys.stderr)\n"
         "print('step 1\\rstep 2\\nno such model: grüße', file=sys.stderr)\nsys.exit(3)\n",
         r"^comet-score failed with status 3; its stderr ends with: .{9,1100}"
         r"step 1 / step 2 / no such model: grüße$"),
        ("comet", "os.kill(os.getpid(), signal.SIGKILL)", "killed by signal 9.*stderr is empty$"),
        ("comet", "print('nothing to do', file=sys.stderr)", "wrote no scores.*nothing to do"),
        ("bleurt", "", "wrote no scores"),
        ("bertscore", "sys.exit('no such model')", "no such model"),
        ("bertscore", "print('1\\t2\\t3')", "4 scores for 3 sentences"),
        *(("bleurt", f"write([0.5] * {n})\nprint('Done.', file=sys.stderr)",
           f"{n} scores for 3 sentences.*Done") for n in (0, 2, 4)),
        *(("bleurt", f"write([0.5, {bad!r}, 0.5])", "for 1 of 3 sentences, first for number 2")
          for bad in ("nan", "inf", "-inf")),
        *(("comet", LENGTHS + f"rows[2]['COMET'] = float({bad!r})\nwrite({{'t': rows}})",
           "no finite number.*number 3") for bad in ("nan", "inf", "-inf")),
        *(("comet", body, "unknown form") for body in NO_FORM),
    ],
)  # fmt: skip
def test_a_command_that_fails_says_why_there_are_no_scores(
    installed: Callable[..., None], metric: str, body: str, reason: str
) -> None:
    installed(metric, body + "\n")
    assert re.search(reason, no_scores(score(metric)), re.DOTALL)


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hanging_command_is_ended_with_all_it_started(
    installed: Callable[..., None], tmp_path: Path, deaf: bool
) -> None:
    pids = tmp_path / "pids"
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    installed(
        "comet",
        ignoring
        + "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        + f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        + "print('loading …', file=sys.stderr, flush=True)\ntime.sleep(600)\n",
    )
    start = time.monotonic()
    reason = no_scores(score("comet", timeout=3))
    assert "stopped after 3 seconds" in reason and reason.endswith("loading …")
    assert time.monotonic() - start < 300
    both = [int(pid) for pid in pids.read_text().split()]
    assert len(both) == 2
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in both) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [alive(pid) for pid in both] == [False, False]


def test_the_time_limit_of_the_environment(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    installed("comet", "time.sleep(600)\n")
    monkeypatch.setenv("HEADSCOPE_METRIC_TIMEOUT", "0.5")
    reason = no_scores(score("comet"))
    assert "stopped after 0.5 seconds" in reason and "HEADSCOPE_METRIC_TIMEOUT" in reason
    for wrong in ("soon", "-1", "nan", "inf", "0"):
        monkeypatch.setenv("HEADSCOPE_METRIC_TIMEOUT", wrong)
        assert "no number of seconds" in no_scores(score("comet"))


def test_nothing_is_left_behind(
    installed: Callable[..., None], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import tempfile

    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    for body in (WELL, "sys.exit(1)\n"):
        installed("comet", body)
        score("comet")
        assert list(place.iterdir()) == []


def test_texts_must_belong_together() -> None:
    with pytest.raises(InputError, match="3 outputs but 2 references"):
        comet(SOURCES, OUTPUTS, REFERENCES[:2])
    with pytest.raises(InputError, match="3 outputs but 2 references"):
        bert_score(OUTPUTS, REFERENCES[:2], "en")
    with pytest.raises(InputError, match="3 outputs but 1 sources"):
        comet(SOURCES[:1], OUTPUTS, REFERENCES)
    with pytest.raises(InputError, match="no outputs"):
        bleurt([], [])
