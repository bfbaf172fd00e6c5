"""COMET and BLEURT as commands: real scripts stand in for them, well and badly behaved."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
import time
from pathlib import Path

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


@pytest.fixture(autouse=True)
def _nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for variable in (
        "HEADSCOPE_COMET",
        "HEADSCOPE_BLEURT",
        "HEADSCOPE_BERTSCORE",
        "HEADSCOPE_METRIC_TIMEOUT",
    ):
        monkeypatch.delenv(variable, raising=False)
    empty = tmp_path / "bin"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


def script(folder: Path, *parts: str) -> str:
    """A command line that runs Python code; the folder has a space in its name."""
    place = folder / "a folder"
    place.mkdir(exist_ok=True)
    path = place / "command.py"
    path.write_text("".join(parts), encoding="utf-8")
    return shlex.join([sys.executable, str(path)])


@pytest.fixture
def comet_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def install(body: str, options: str = "") -> None:
        monkeypatch.setenv("HEADSCOPE_COMET", script(tmp_path, COMET, body) + options)

    return install


@pytest.fixture
def bleurt_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def install(body: str, options: str = "") -> None:
        monkeypatch.setenv("HEADSCOPE_BLEURT", script(tmp_path, BLEURT, body) + options)

    return install


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


# Absent


def test_what_is_not_installed_has_no_value() -> None:
    assert "not installed" in no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert "HEADSCOPE_COMET" in comet(SOURCES, OUTPUTS, REFERENCES).reason
    assert "not installed" in no_scores(bleurt(OUTPUTS, REFERENCES))
    assert "HEADSCOPE_BLEURT" in bleurt(OUTPUTS, REFERENCES).reason


def test_a_command_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADSCOPE_COMET", str(tmp_path / "none"))
    assert "could not be started" in no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    monkeypatch.setenv("HEADSCOPE_COMET", "comet-score 'never closed")
    assert "not a command line" in no_scores(comet(SOURCES, OUTPUTS, REFERENCES))


# Well behaved


@pytest.mark.parametrize("form", ["{given.translations[0]: rows}", "rows"])
def test_comet_scores_every_sentence(comet_is, form: str) -> None:
    comet_is(LENGTHS + f"write({form})\n")
    found = comet(SOURCES, OUTPUTS, REFERENCES)
    # The second output is empty and the third one line: "We go now."
    assert found == External(pytest.approx((15 + 0.25 + 10.5) / 3), (15.0, 0.25, 10.5), "")


def test_comet_gets_the_texts_themselves(comet_is) -> None:
    comet_is(
        "assert texts['src'] == ['Die Katze schläft.', 'Ein Hund', 'Wir gehen.'], texts\n"
        "assert texts['mt'] == ['The cat sleeps.', '', 'We go now.'], texts\n"
        "assert texts['ref'] == ['The cat is asleep.', 'A dog', 'We go.'], texts\n" + WELL
    )
    assert comet(SOURCES, OUTPUTS, REFERENCES).reason == ""


def test_comet_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "bin" / "comet-score"
    path.write_text(f"#!{sys.executable}\n{COMET}{WELL}", encoding="utf-8")
    path.chmod(0o755)
    assert comet(SOURCES, OUTPUTS, REFERENCES).scores == (15.0, 0.25, 10.5)
    # The variable goes before the path; nothing in it is nothing.
    monkeypatch.setenv("HEADSCOPE_COMET", " ")
    assert comet(SOURCES, OUTPUTS, REFERENCES).scores == (15.0, 0.25, 10.5)
    monkeypatch.setenv("HEADSCOPE_COMET", str(tmp_path / "none"))
    assert comet(SOURCES, OUTPUTS, REFERENCES).scores is None


def test_options_of_the_variable_reach_the_command(comet_is, bleurt_is) -> None:
    comet_is("assert given.model == 'mine and yours'\n" + WELL, " --model 'mine and yours'")
    assert comet(SOURCES, OUTPUTS, REFERENCES).reason == ""
    bleurt_is(
        "assert given['bleurt_checkpoint'] == 'BLEURT-20'\nwrite([0] * 3)\n",
        " -bleurt_checkpoint=BLEURT-20",
    )
    assert bleurt(OUTPUTS, REFERENCES) == External(0.0, (0.0, 0.0, 0.0), "")


def test_bleurt_scores_every_sentence(bleurt_is) -> None:
    bleurt_is("write([len(a) - len(b) / 4 for a, b in pairs])\n")
    found = bleurt(OUTPUTS, REFERENCES)
    assert found == External(pytest.approx((10.5 - 1.25 + 8.5) / 3), (10.5, -1.25, 8.5), "")


def test_negative_scores_and_half_characters(bleurt_is) -> None:
    bleurt_is("write([-0.5 for _ in pairs])\n")
    found = bleurt(["half a pair \ud83d", "\x0b\x85"], ["one", "two"])
    assert found == External(-0.5, (-0.5, -0.5), "")


# Badly behaved


def test_a_failing_command_shows_its_last_words(comet_is) -> None:
    comet_is(
        "print('first ' * 2000, file=sys.stderr)\n"
        "print('step 1\\rstep 2\\nno such model: grüße', file=sys.stderr)\nsys.exit(3)\n"
    )
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert reason.startswith("comet-score failed with status 3; its stderr ends with: ")
    assert reason.endswith("step 1 / step 2 / no such model: grüße")
    assert len(reason) < 1200


def test_a_command_that_dies(comet_is) -> None:
    comet_is("os.kill(os.getpid(), signal.SIGKILL)\n")
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert "killed by signal 9" in reason and reason.endswith("its stderr is empty")


@pytest.mark.parametrize("deaf", [False, True])
def test_a_hanging_command_is_ended_with_all_it_started(
    comet_is, tmp_path: Path, deaf: bool
) -> None:
    pids = tmp_path / "pids"
    ignoring = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" if deaf else ""
    comet_is(
        ignoring
        + "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        + f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        + "print('loading …', file=sys.stderr, flush=True)\ntime.sleep(600)\n"
    )
    start = time.monotonic()
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES, timeout=3))
    assert "stopped after 3 seconds" in reason and reason.endswith("loading …")
    assert time.monotonic() - start < 300
    both = [int(pid) for pid in pids.read_text().split()]
    assert len(both) == 2
    deadline = time.monotonic() + 60
    while any(alive(pid) for pid in both) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [alive(pid) for pid in both] == [False, False]


def test_the_time_limit_of_the_environment(comet_is, monkeypatch: pytest.MonkeyPatch) -> None:
    comet_is("time.sleep(600)\n")
    monkeypatch.setenv("HEADSCOPE_METRIC_TIMEOUT", "0.5")
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert "stopped after 0.5 seconds" in reason and "HEADSCOPE_METRIC_TIMEOUT" in reason
    for wrong in ("soon", "-1", "nan", "inf", "0"):
        monkeypatch.setenv("HEADSCOPE_METRIC_TIMEOUT", wrong)
        assert "no number of seconds" in no_scores(comet(SOURCES, OUTPUTS, REFERENCES))


def test_a_command_waits_for_no_input(comet_is) -> None:
    comet_is("assert sys.stdin.read() == ''\n" + WELL)
    assert comet(SOURCES, OUTPUTS, REFERENCES).reason == ""


@pytest.mark.parametrize("count", [0, 2, 4])
def test_a_wrong_number_of_scores(bleurt_is, count: int) -> None:
    bleurt_is(f"write([0.5] * {count})\nprint('Done.', file=sys.stderr)\n")
    reason = no_scores(bleurt(OUTPUTS, REFERENCES))
    assert f"{count} scores for 3 sentences" in reason and "Done." in reason


@pytest.mark.parametrize("bad", ["nan", "inf", "-inf"])
def test_a_score_that_is_no_finite_number(comet_is, bleurt_is, bad: str) -> None:
    bleurt_is(f"write([0.5, {bad!r}, 0.5])\n")
    assert "for 1 of 3 sentences, first for number 2" in no_scores(bleurt(OUTPUTS, REFERENCES))
    comet_is(LENGTHS + f"rows[2]['COMET'] = float({bad!r})\nwrite({{'t': rows}})\n")
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert "no finite number" in reason and "number 3" in reason


@pytest.mark.parametrize(
    "body",
    [
        "open(given.to_json, 'w').write('score: 0.8')",
        "write({'t': rows})",
        "write({})",
        "write({'t': rows, 'u': rows})",
        "write(3)",
        "write({'t': ['x'] * 3})",
        "for row in rows: row['COMET'] = 'good'\nwrite({'t': rows})",
        "for row in rows: row['COMET'] = None\nwrite({'t': rows})",
    ],
)
def test_scores_of_an_unknown_form(comet_is, body: str) -> None:
    comet_is(body + "\n")
    assert "unknown form" in no_scores(comet(SOURCES, OUTPUTS, REFERENCES))


def test_no_scores_at_all(comet_is, bleurt_is) -> None:
    comet_is("print('nothing to do', file=sys.stderr)\n")
    reason = no_scores(comet(SOURCES, OUTPUTS, REFERENCES))
    assert "wrote no scores" in reason and "nothing to do" in reason
    bleurt_is("")
    assert "wrote no scores" in no_scores(bleurt(OUTPUTS, REFERENCES))


def test_nothing_is_left_behind(comet_is, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import tempfile

    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    for body in (WELL, "sys.exit(1)\n"):
        comet_is(body)
        comet(SOURCES, OUTPUTS, REFERENCES)
        assert list(place.iterdir()) == []


# Input


def test_texts_must_belong_together() -> None:
    with pytest.raises(InputError, match="3 outputs but 2 references"):
        comet(SOURCES, OUTPUTS, REFERENCES[:2])
    with pytest.raises(InputError, match="3 outputs but 1 sources"):
        comet(SOURCES[:1], OUTPUTS, REFERENCES)
    with pytest.raises(InputError, match="no outputs"):
        bleurt([], [])


def test_the_mean_is_that_of_the_scores(bleurt_is) -> None:
    bleurt_is("write([0.1] * len(pairs))\n")
    found = bleurt(["a"] * 30, ["b"] * 30)
    assert found.scores == (0.1,) * 30
    assert found.value is not None and math.isclose(found.value, 0.1, rel_tol=1e-15)
    assert json.loads(json.dumps(found.value)) == found.value


# BERTScore, which prints its scores

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


@pytest.fixture
def bert_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def install(body: str = "", options: str = "") -> None:
        monkeypatch.setenv("HEADSCOPE_BERTSCORE", script(tmp_path, BERT, body) + options)

    return install


def test_bert_score_is_the_f1_of_every_sentence(bert_is) -> None:
    bert_is()
    found = bert_score(OUTPUTS, REFERENCES, "en")
    assert found == External(pytest.approx((0.15 + 0 + 0.1) / 3), (0.15, 0.0, 0.1), "")


def test_bert_score_gets_the_language_and_options(bert_is) -> None:
    bert_is("assert (given.lang, given.model) == ('zh', 'mine'), given\n", " -m mine")
    assert bert_score(OUTPUTS, REFERENCES, "zh_Hans").reason == ""
    assert bert_score(OUTPUTS, REFERENCES, "zh-TW").reason == ""


def test_bert_score_that_is_not_there_or_fails(bert_is, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADSCOPE_BERTSCORE", raising=False)
    assert "HEADSCOPE_BERTSCORE" in no_scores(bert_score(OUTPUTS, REFERENCES, "en"))
    bert_is("sys.exit('no such model')\n")
    assert "no such model" in no_scores(bert_score(OUTPUTS, REFERENCES, "en"))
    bert_is("print('1\\t2\\t3')\n")
    assert "4 scores for 3 sentences" in no_scores(bert_score(OUTPUTS, REFERENCES, "en"))
    with pytest.raises(InputError, match="3 outputs but 2 references"):
        bert_score(OUTPUTS, REFERENCES[:2], "en")
