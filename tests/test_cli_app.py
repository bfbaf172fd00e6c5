"""The tree of commands, exit codes, and errors as one line on stderr."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from typer.main import get_command

import headscope
import lm_helpers
from headscope import settings
from headscope.cli import app as cli
from headscope.cli.commands import commands_of
from headscope.cli.output import BROKEN_PIPE
from headscope.errors import Caution, InputError, ModelError
from headscope.settings import options_in
from headscope.studies.registry import COMMANDS, VERBS, study_of


def commands(group: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every command with its path, such as "pocket sample"."""
    group = group or get_command(cli.app)
    for name, command in commands_of(group).items():
        if hasattr(command, "commands"):
            yield from commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


def test_where_values_are_listed_the_first_is_the_default() -> None:
    # A check compares kernels, which round alike in float32 alone.
    others = {("check", "--dtype"), ("pocket sample", "--split"), ("pocket tasks", "--split")}
    for path, command in commands():
        for parameter in command.params:
            choices = parameter.type_descriptor.choices
            if choices and (path, parameter.opts[0]) not in others:
                assert parameter.default in (None, choices[0]), (path, parameter.opts)


def test_a_flag_means_the_same_in_every_command() -> None:
    """Commands take the shared types of `options`; those with a type of their own are few."""
    own = {"--split", "--out", "--device", "--k", "--n", "--list", "--steps"}
    own |= {"--pair", "--data"}
    # A series of checkpoints has many revisions; a prompt, a gate and a threshold have a role of
    # their own in the commands that take one.
    own |= {"--model", "--revision", "--prompt", "--gate", "--threshold", "artifacts"}
    # Documents have a default number and languages to choose from; a task has one of its outputs.
    own |= {"--limit", "--language"}
    # A summary's prompt has a text and one language, a translation's a sentence and two.
    own |= {"--template"}
    # Tasks of lm-evaluation-harness are named, and shown examples, in its own way.
    own |= {"--task", "--shots"}
    # Heads of several languages are given by language, masks by task; some commands only count.
    own |= {"--heads"}
    # Prompts of one's own are given as they are unless asked for otherwise.
    own |= {"--chat"}
    # A mixture, what is selected for it, and how, has nothing to do with heads above a quantile.
    own |= {"--kind", "--share", "--quantile"}
    # A removal can hold both kinds of ablation; of these failures are sorted of one.
    own |= {"--ablate"}
    # A circuit keeps one measure of a model, of tasks too.
    own |= {"--measure"}
    # A mask is shuffled, not drawn.
    own |= {"--control"}
    # What a paper decides by itself stands where a flag is left out.
    own |= {"--draws", "--rank", "--decode", "--aligner"}
    # Workers rate a corpus, or train models beside one another.
    own |= {"--workers"}
    # An experiment says how large its corpus is, how much of it is bilingual or a prompt, and how
    # many models it trains.
    own |= {"--documents", "--bilingual", "--prompts", "--seeds"}
    # A paper's experiments ask questions in several languages, a survey in one.
    own |= {"--questions"}
    # A comparison ends after some minutes, a mask's training is planned to take them.
    own |= {"--minutes"}
    # A language model judges failed translations, circuits judge the methods of a survey.
    own |= {"--judge"}
    # A paper is run at its full size, a result printed with all of its tables.
    own |= {"--full"}
    helps: dict[str, set[str]] = {}
    for _, command in commands():
        for parameter in command.params:
            helps.setdefault(parameter.opts[0], set()).add(getattr(parameter, "help", ""))
    assert {flag for flag, texts in helps.items() if len(texts) > 1} == own


def test_help_fits_a_terminal_of_80_columns(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of every command at most 60 lines before what few need, in panels of one order."""
    monkeypatch.setenv("COLUMNS", "80")
    order = re.compile("|".join(get_args(settings.Panel)))
    for path, _ in [*commands(), ("", None), *((verb, None) for verb in VERBS)]:
        lines = command(*path.split(), "--help").out.splitlines()
        assert max(map(len, lines)) <= 80, path
        panels = [line.rstrip("─ ") for line in lines if line.endswith("──")]
        ordinary = lines[: next(at for at, line in enumerate([*lines, "Expert ──"])
                                if line.startswith("Expert ──"))]  # fmt: skip
        assert len(ordinary) <= 60, (path, len(ordinary))
        assert panels and len(set(panels)) == len(panels), path
        if path in COMMANDS:
            assert all(map(order.fullmatch, panels)), path
            assert panels == sorted(panels, key=list(get_args(settings.Panel)).index), path


def test_an_option_is_in_one_panel_or_for_experts() -> None:
    """Where it is what a command is about, it may also be under `What`."""
    panels: dict[str, set[str]] = {}
    for path in COMMANDS:
        for option in options_in(study_of(path).settings):
            panels.setdefault(option.name, set()).add(option.option.panel)
    several = {name for name, own in panels.items() if len(own - {"Expert", "What"}) > 1}
    assert several == set()


def test_every_command_shows_an_example_that_can_be_given() -> None:
    for path, made in commands():
        called, *arguments = shlex.split(made.epilog)
        words = path.split()
        assert [called, *arguments[: len(words)]] == ["headscope", *words]
        given = made.make_context(path, arguments[len(words) :]).params
        values = {name: None if value == () else value for name, value in given.items()}
        assert settings.build(study_of(path).settings, values) is not None


def test_the_command_alone_shows_its_help(command: Callable[..., Any]) -> None:
    assert command() == command("--help")


def test_the_version_is_told(command: Callable[..., Any]) -> None:
    assert command("--version") == (0, f"headscope {headscope.__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["algn"], "No such command 'algn'. Did you mean 'align'?"),
        (["find"], "Missing command"),
        (["align"], "Missing option '--data'"),
        (["align", "--dta", "x"], "No such option: --dta"),
        (["align", "--data"], "Option '--data' requires an argument"),
        (["align", "--data", "x", "--aligner", "best"], "'best' is not one of 'links', 'eflomal'"),
        (["pocket", "sample", "--n", "0"], "'--n'"),
        (["pocket", "sample", "--n", "many"], "'--n'"),
        (["pocket", "sample", "--pair", "en-fr"], "no direction 'en-fr'"),
        (["pocket", "sample", "--pair", "en-xx9"], "unknown language code 'xx9'"),
        (["pocket", "sample"], "add --pair en-de"),
        (["report", "nowhere"], "nowhere"),
        (["atlas", "pockt"], "did you mean pocket?"),
    ],
)
def test_bad_input_is_code_2_and_one_line(
    arguments: list[str], said: str, command: Callable[..., Any]
) -> None:
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert said in err
    assert "Value error" not in err


LONG = "9x" * 60_000


@pytest.mark.parametrize(
    "arguments",
    [
        [LONG],
        ["align", f"--{LONG}"],
        ["align", "--data", LONG],
        ["align", "--data", "x", "--aligner", LONG],
        ["pocket", "sample", "--pair", LONG],
        ["compare", "overlap", "5.1", "4.3", "--geometry", LONG],
        ["compare", "overlap", "5.1", "4.3", "--geometry", "6x16", "--k", LONG],
        ["compare", "overlap", "5.1", "4.3", "--geometry", "6x16", "--out", LONG],
        ["heads", "FILE", "--geometry", "6x16", "--out", "x"],
        ["report", "\x1b" * 60_000],
    ],
)
def test_an_error_is_short_however_long_what_it_repeats(
    arguments: list[str], command: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "file.csv").write_text(f"layer,head\n0,{LONG}\n")
    named = {"FILE": tmp_path / "file.csv", "x": tmp_path / "x"}
    code, out, err = command(*(named.get(argument, argument) for argument in arguments))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("error: ") and len(err) < 2_100


def test_a_long_message_keeps_its_place_and_its_fix() -> None:
    for kind in (InputError, ModelError, Caution):
        assert str(kind("short")) == "short"
        said = str(kind(f"file.csv, line 3: {LONG} is no number; correct it"))
        assert said.startswith("file.csv, line 3: 9x") and said.endswith(
            "9x is no number; correct it"
        )
        assert len(said) < 2_000


def replaced(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Let every sample of the pocket world raise an error."""

    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("headscope.pocket.sample.sample_pairs", fail)


def test_an_interrupted_command_says_how_to_go_on(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, KeyboardInterrupt())
    code, out, err = command("pocket", "sample", "--pair", "en-de")
    assert (code, out) == (130, "")
    assert err == (
        "error: interrupted; if a run had begun, the same command goes on where it stopped\n"
    )


def test_what_an_interrupted_run_says_is_told(
    command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KeyboardInterrupt()
    error.add_note("the run tells what there is")
    replaced(monkeypatch, error)
    code, _, err = command("pocket", "sample", "--pair", "en-de")
    assert code == 130 and err.startswith("the run tells what there is\nerror: interrupted")


def headscope_process(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headscope", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


def test_every_command_that_cuts_heads_takes_their_rank() -> None:
    flags = {
        path: {flag for one in command.params for flag in one.opts} for path, command in commands()
    }
    # The first takes a number that its run removed, the second runs of LAHIS alone.
    exempt = {"verify failures", "verify transfer"}
    assert {path for path, own in flags.items() if "--k" in own and "--rank" not in own} == exempt


def test_an_option_fills_one_field_of_a_command() -> None:
    """`--aligner` is read with and without its heads; the others choose between kinds of data, or
    between gates and steering, whose settings have fields of the same names."""
    several = {"use adapt", "verify one-by-one", "verify off-target"}
    for path in COMMANDS:
        study = study_of(path)
        names = Counter(option.name for option in options_in(study.settings))
        twice = {name for name, fields in names.items() if fields > 1} - {"aligner"}
        assert path in several or not twice, path


#: Options that count in no signature by themselves, by the reason why.
UNSIGNED_OPTIONS = {
    "what it names is read, and its contents count": """data documents example examples
        foreign gate gates haystack heads held_out hybrid check_data needles pairs prompt questions
        reference run set shots_data statements summaries task tasks test_data tokenizer words""",
    "what it comes to counts: a prompt, a column's text, resolved settings": """answer_end
        answer_only bare chat feed_forward gguf hold_out_last input_column instruction k language
        learning_rate limit on one_a_head output_column pair penalty preset rank rank_limit
        reference_column seed seeds shots source_column split start steps target_column
        text_column weight""",
    "it says where and how, and changes no number": """batch batch_tokens check checkpointing device
        device_map executor executor_options max_memory offload_folder threads tp_plan workers""",
    "it says how long, and where numbers are kept": "kept minutes plan",
    "it says what is allowed, repeated, kept or shown besides": """allow_overlap beside full
        keep_peaks list only outputs retrain stream""",
}


WHOLE = settings.Nested()


def _unsigned(owner: Any, part: settings.Nested = WHOLE, own: bool = True) -> Any:
    """The options of settings that do not count in a run's signature by themselves."""
    known = {field.name: field.metadata for field in fields(owner)} if is_dataclass(owner) else {}
    for name, hint, mark, _ in settings._members(owner, part):
        signed = own and known.get(name, {}).get("signature") is not False
        if isinstance(mark, settings.MadeBy):
            yield from _unsigned(mark.function, own=signed)
        elif isinstance(mark, settings.Option):
            if not signed:
                yield settings._option_name(name, mark)
        elif is_dataclass(kind := settings._settings(hint, mark)):
            inside = mark if isinstance(mark, settings.Nested) else settings.Nested()
            yield from _unsigned(kind, inside, signed)


def test_an_option_counts_in_the_signature_or_has_a_reason() -> None:
    """Else a finished run is given back for other settings than it was made with."""
    reasons = {name for names in UNSIGNED_OPTIONS.values() for name in names.split()}
    found = {name for path in COMMANDS for name in _unsigned(study_of(path).settings)}
    assert found == reasons


def test_as_a_process_an_error_is_code_2_and_one_unwrapped_line(tmp_path: Path) -> None:
    name = "a-long-name-" * 15 + ".tsv"
    done = headscope_process("align", "--data", name, "--pair", "en-de", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {name} does not exist; check the path\n"
    assert list(tmp_path.iterdir()) == []


def test_as_a_process_json_is_all_there_is_on_stdout(tmp_path: Path) -> None:
    arguments = ("pocket", "sample", "--pair", "tr-ru", "--n", "2", "--out", "s.tsv", "--json")
    done = headscope_process(*arguments, folder=tmp_path)
    assert done.returncode == 0
    assert json.loads(done.stdout)["run"] == "s.tsv"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device; make room"),
        (OSError(errno.EROFS, "Read-only file system", "a/b"), "a/b: Read-only file system; make"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "a"), "a: File name too long; check"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(
    error: OSError, words: str, monkeypatch: pytest.MonkeyPatch, command: Callable[..., Any]
) -> None:
    def write(*arguments: Any) -> None:
        raise error

    monkeypatch.setattr("headscope.data.pairs.write_pairs", write)
    code, said, err = command("pocket", "sample", "--pair", "en-de", "--n", 1)
    assert (code, said) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_argument_that_is_no_text_is_refused(command: Callable[..., Any]) -> None:
    code, said, err = command("report", "run\udcff")
    assert (code, said) == (2, "")
    assert "is not valid UTF-8" in err


def test_a_reader_that_is_gone_is_no_error() -> None:
    listing = [sys.executable, "-m", "headscope", "pocket", "sample", "--list"]
    for redirection in ("| true", ">&-"):
        line = f'"$@" {redirection}'
        told = subprocess.run(
            ["sh", "-c", line, "sh", *listing], capture_output=True, text=True, check=False
        )
        assert (told.returncode, told.stderr) == (0, "")


def test_a_result_that_nobody_reads_ends_as_by_a_closed_pipe() -> None:
    line = '"$@" | true; exit ${PIPESTATUS[0]}'
    told = subprocess.run(
        ["bash", "-c", line, "bash", sys.executable, "-m", "headscope", "methods"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (told.returncode, told.stderr) == (BROKEN_PIPE, "")


def test_a_letter_that_the_terminal_lacks_is_spelt_out() -> None:
    told = subprocess.run(
        [sys.executable, "-m", "headscope", "report", "Straße"],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )
    assert told.returncode == 2 and rb"Stra\xdfe" in told.stderr


@pytest.mark.parametrize("where", lm_helpers.SCARCE)
def test_memory_that_does_not_suffice_is_told_in_a_sentence(
    where: str, command: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> None:
        lm_helpers.no_memory(where)

    monkeypatch.setattr("headscope.pocket.sample.sample_pairs", full)
    said = command("pocket", "sample", "--pair", "en-de", "--json")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith("error: memory does not suffice") and said.err.count("\n") == 1

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("something else")

    monkeypatch.setattr("headscope.pocket.sample.sample_pairs", broken)
    with pytest.raises(RuntimeError, match="something else"):
        command("pocket", "sample", "--pair", "en-de")
