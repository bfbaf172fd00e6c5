"""COMET, BLEURT and BERTScore, each called as a command of its own.

They need packages that cannot live beside transformers 5 (COMET), want TensorFlow (BLEURT) or
download a model of their own (BERTScore), so they are installed elsewhere, and headscope calls what
it finds:

- COMET: the command line in the environment variable HEADSCOPE_COMET, such as
  ``/opt/comet/bin/comet-score --gpus 0 --model Unbabel/wmt22-comet-da``, else ``comet-score``
  where that is on the PATH.
- BLEURT: the command line in HEADSCOPE_BLEURT, such as
  ``/opt/bleurt/bin/python -m bleurt.score_files -bleurt_checkpoint=/opt/BLEURT-20``.
- BERTScore: the command line in HEADSCOPE_BERTSCORE, such as
  ``/opt/bertscore/bin/bert-score -m microsoft/mdeberta-v3-base -l 9``, else ``bert-score`` where
  that is on the PATH.

A command that is absent, fails, takes too long (an hour, or the seconds in
HEADSCOPE_METRIC_TIMEOUT) or answers with something else than one finite number a sentence gives no
value and the reason, never 0 and never an exception.
"""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headscope.measure.metrics import check_texts
from headscope.scratch import scratch

COMET = "HEADSCOPE_COMET"
BLEURT = "HEADSCOPE_BLEURT"
BERTSCORE = "HEADSCOPE_BERTSCORE"
TIMEOUT = "HEADSCOPE_METRIC_TIMEOUT"
HOUR = 3600.0
# What a reason shows of the end of a command's stderr.
LAST_LINES = 5
LAST_CHARACTERS = 1000
# How long a command that was told to stop may take before it is killed.
GRACE = 2.0


@dataclass(frozen=True)
class External:
    """What a command said: the mean over sentences, the score of each, and why there is none.

    `value` and `scores` are both None, and `reason` says why, or neither is, and `reason` is ''.
    """

    value: float | None
    scores: tuple[float, ...] | None
    reason: str


class _NoScores(Exception):
    """Why there are no scores."""


def comet(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    timeout: float | None = None,
) -> External:
    """COMET (Rei et al. 2020) by Unbabel's `comet-score`; `timeout` in seconds.

    Which model is used is said in HEADSCOPE_COMET (``--model``), else it is the command's default.
    Raises InputError only where sources, outputs and references are not of the same sentences.
    """
    check_texts(outputs, sources=sources, references=references)
    texts = {"sources": sources, "outputs": outputs, "references": references}
    arguments = "-s {}/sources -t {}/outputs -r {}/references --quiet --to_json {}/scores"
    return _score("comet-score", COMET, arguments, texts, _comet_scores, timeout)


def bleurt(
    outputs: Sequence[str], references: Sequence[str], timeout: float | None = None
) -> External:
    """BLEURT (Sellam et al. 2020) by its `bleurt.score_files`; `timeout` in seconds.

    The checkpoint is named in HEADSCOPE_BLEURT (``-bleurt_checkpoint=…``). Raises InputError only
    where outputs and references are not of the same sentences.
    """
    check_texts(outputs, references=references)
    texts = {"outputs": outputs, "references": references}
    arguments = "-candidate_file={}/outputs -reference_file={}/references -scores_file={}/scores"
    return _score("bleurt.score_files", BLEURT, arguments, texts, str.split, timeout)


def bert_score(
    outputs: Sequence[str],
    references: Sequence[str],
    language: str,
    timeout: float | None = None,
) -> External:
    """BERTScore F1 (Zhang et al. 2020) by the command `bert-score`; `timeout` in seconds.

    The model is the command's own for texts in `language`, a code such as `de`, unless
    HEADSCOPE_BERTSCORE names one (``-m``). Raises InputError only where outputs and references are
    not of the same sentences.
    """
    check_texts(outputs, references=references)
    texts = {"outputs": outputs, "references": references}
    code = language.replace("_", "-").split("-")[0]
    arguments = f"-c {{}}/outputs -r {{}}/references --lang {code} --seg_level"
    return _score("bert-score", BERTSCORE, arguments, texts, _bert_scores, timeout, prints=True)


def _command(name: str, variable: str) -> list[str]:
    """The command line in an environment variable, else the command `name` on the PATH."""
    try:
        words = shlex.split(os.environ.get(variable, ""))
    except ValueError as error:
        raise _NoScores(f"{variable} is not a command line: {error}") from error
    if words:
        return words
    path = shutil.which(name)
    if path is None:
        raise _NoScores(f"not installed: there is no command {name}, and {variable} names no other")
    return [path]


def _limit() -> float:
    limit = os.environ.get(TIMEOUT, "").strip()
    try:
        seconds = float(limit) if limit else HOUR
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise _NoScores(f"{TIMEOUT} is {limit!r}, which is no number of seconds")
    return seconds


def _score(
    name: str,
    variable: str,
    arguments: str,
    texts: dict[str, Sequence[str]],
    read: Callable[[str], list[Any]],
    timeout: float | None,
    prints: bool = False,
) -> External:
    """Writes the texts to files, runs the command on them and reads its scores.

    In `arguments`, words with spaces between them, `{}` is the folder of the texts, where the
    scores are to go, too. `prints`: the command prints its scores and writes no file of them.
    """
    try:
        command = _command(name, variable)
        seconds = _limit() if timeout is None else timeout
        with scratch("measure") as folder:
            for file, lines in texts.items():
                _write(folder / file, lines)
            stderr = _run(
                name,
                [*command, *(word.replace("{}", str(folder)) for word in arguments.split())],
                folder,
                seconds,
                prints,
            )
            scores = _scores(name, folder / "scores", read, len(texts["outputs"]), stderr)
    except _NoScores as error:
        return External(None, None, str(error))
    return External(math.fsum(scores) / len(scores), tuple(scores), "")


def _write(path: Path, texts: Sequence[str]) -> None:
    """One text a line: white space, of which line breaks are one kind, becomes single spaces."""
    lines = [" ".join(text.split()) + "\n" for text in texts]
    # Half a surrogate pair cannot be written as UTF-8.
    path.write_text("".join(lines), encoding="utf-8", errors="replace", newline="\n")


def _run(name: str, command: list[str], folder: Path, timeout: float, prints: bool) -> str:
    """Runs a command with all processes it starts, and gives what it wrote to stderr.

    What it prints is kept as its scores where it `prints` them.
    """
    log, printed = folder / "stderr", folder / "scores" if prints else Path(os.devnull)
    with log.open("wb") as stderr, printed.open("wb") as stdout:
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                # The command reads and writes text as this module does.
                env={**os.environ, "PYTHONUTF8": "1"},
                start_new_session=True,
            )
        except OSError as error:
            raise _NoScores(f"{name} could not be started: {error}") from error
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise _NoScores(
                f"{name} was stopped after {timeout:g} seconds ({TIMEOUT} gives it another time)"
                f"{_tail(_text(log))}"
            ) from None
        finally:
            _stop(process)
    if status:
        how = f"was killed by signal {-status}" if status < 0 else f"failed with status {status}"
        raise _NoScores(f"{name} {how}{_tail(_text(log))}")
    return _text(log)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends the process group of a command: what it started must not outlive it."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, how)
        except (ProcessLookupError, PermissionError):
            # All have ended; macOS says of a group of ended ones that it is not ours.
            break
        try:
            process.wait(GRACE)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def _scores(
    name: str, path: Path, read: Callable[[str], list[Any]], sentences: int, stderr: str
) -> list[float]:
    if not path.is_file():
        raise _NoScores(f"{name} wrote no scores{_tail(stderr)}")
    try:
        given = [float(score) for score in read(_text(path))]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _NoScores(
            f"{name} wrote scores of an unknown form ({type(error).__name__}: {error})"
            f"{_tail(stderr)}"
        ) from error
    if len(given) != sentences:
        raise _NoScores(f"{name} gave {len(given)} scores for {sentences} sentences{_tail(stderr)}")
    bad = [number for number, score in enumerate(given, 1) if not math.isfinite(score)]
    if bad:
        raise _NoScores(
            f"{name} gave a score that is no finite number for {len(bad)} of {sentences} "
            f"sentences, first for number {bad[0]}{_tail(stderr)}"
        )
    return given


def _comet_scores(text: str) -> list[Any]:
    """Scores by sentence: a list of records, which lies under the name of the file in COMET 2."""
    scores = json.loads(text)
    if isinstance(scores, dict):
        (scores,) = scores.values()
    return [record["COMET"] for record in scores]


def _bert_scores(text: str) -> list[Any]:
    """F1 by sentence: the third of the numbers between tabs; the line before them is the mean."""
    rows = [line.split("\t") for line in text.splitlines()]
    return [row[2] for row in rows if len(row) == 3]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _tail(stderr: str) -> str:
    """The last lines of a command's stderr, to be put behind a reason."""
    lines = [line.strip() for line in stderr.replace("\r", "\n").splitlines() if line.strip()]
    shown = " / ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]
    return f"; its stderr ends with: {shown}" if shown else "; its stderr is empty"
