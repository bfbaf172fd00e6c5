"""The command `headscope`: its tree of commands, and what every error becomes."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.main import get_command

from headscope.cli import (
    align,
    architectures,
    atlas,
    check,
    costs,
    methods,
    output,
    report,
    reproduce,
    survey,
)
from headscope.cli.compare import classes as compare_classes
from headscope.cli.compare import formation as compare_formation
from headscope.cli.compare import masks as compare_masks
from headscope.cli.compare import methods as compare_methods
from headscope.cli.compare import overlap as compare_overlap
from headscope.cli.compare import states as compare_states
from headscope.cli.find import causal_gating as find_causal_gating
from headscope.cli.find import first_order as find_first_order
from headscope.cli.find import induction as find_induction
from headscope.cli.find import key_tokens as find_key_tokens
from headscope.cli.find import lahis as find_lahis
from headscope.cli.find import mask as find_mask
from headscope.cli.find import patching as find_patching
from headscope.cli.find import retrieval as find_retrieval
from headscope.cli.find import soft_gate as find_soft_gate
from headscope.cli.find import translation_score as find_translation_score
from headscope.cli.pocket import sample as pocket_sample
from headscope.cli.pocket import tasks as pocket_tasks
from headscope.cli.pocket import train as pocket_train
from headscope.cli.pocket import trater as pocket_trater
from headscope.cli.use import adapt as use_adapt
from headscope.cli.use import export as use_export
from headscope.cli.use import mix as use_mix
from headscope.cli.use import rate as use_rate
from headscope.cli.verify import attention as verify_attention
from headscope.cli.verify import failures as verify_failures
from headscope.cli.verify import families as verify_families
from headscope.cli.verify import heads as verify_heads
from headscope.cli.verify import layers as verify_layers
from headscope.cli.verify import mask as verify_mask
from headscope.cli.verify import measure as verify_measure
from headscope.cli.verify import off_target as verify_off_target
from headscope.cli.verify import one_by_one as verify_one_by_one
from headscope.cli.verify import perplexity as verify_perplexity
from headscope.cli.verify import removal as verify_removal
from headscope.cli.verify import scaling as verify_scaling
from headscope.cli.verify import summaries as verify_summaries
from headscope.cli.verify import tasks as verify_tasks
from headscope.cli.verify import transfer as verify_transfer
from headscope.errors import Caution, InputError

__all__ = ["main"]

INTERRUPTED = 130
#: What a place that is full or may not be written says, also where it cannot tell its name.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)

app = typer.Typer(
    name="headscope",
    pretty_exceptions_enable=False,
    help="Find, prove, compare and use single attention heads of decoder language models.",
)
find = typer.Typer(help="Score heads: one method a command.")
compare = typer.Typer(help="Compare sets of heads, methods, checkpoints and models.")
verify = typer.Typer(help="Prove heads: what the model does without them, beside controls.")
use = typer.Typer(help="Put heads to use: rate and mix a corpus, apply gates, export them.")
pocket = typer.Typer(help="The bundled model and its world.")

app.command("atlas")(atlas.atlas)
app.command("align")(align.align)
app.add_typer(find, name="find")
find.command("translation-score")(find_translation_score.translation_score)
find.command("key-tokens")(find_key_tokens.key_tokens)
find.command("soft-gate")(find_soft_gate.soft_gate)
find.command("causal-gating")(find_causal_gating.causal_gating)
find.command("lahis")(find_lahis.lahis)
find.command("first-order")(find_first_order.first_order)
find.command("mask")(find_mask.mask)
find.command("induction")(find_induction.induction)
find.command("retrieval")(find_retrieval.retrieval)
find.command("patching")(find_patching.patching)
app.add_typer(compare, name="compare")
compare.command("overlap")(compare_overlap.overlap)
compare.command("methods")(compare_methods.methods)
compare.command("formation")(compare_formation.formation)
compare.command("classes")(compare_classes.classes)
compare.command("masks")(compare_masks.masks)
compare.command("states")(compare_states.states)
app.add_typer(verify, name="verify")
verify.command("removal")(verify_removal.removal)
verify.command("heads")(verify_heads.heads)
verify.command("tasks")(verify_tasks.tasks)
verify.command("attention")(verify_attention.attention)
verify.command("one-by-one")(verify_one_by_one.one_by_one)
verify.command("perplexity")(verify_perplexity.perplexity)
verify.command("layers")(verify_layers.layers)
verify.command("summaries")(verify_summaries.summaries)
verify.command("off-target")(verify_off_target.off_target)
verify.command("transfer")(verify_transfer.transfer)
verify.command("measure")(verify_measure.measure)
verify.command("failures")(verify_failures.failures)
verify.command("mask")(verify_mask.mask)
verify.command("scaling")(verify_scaling.scaling)
verify.command("families")(verify_families.families)
app.add_typer(use, name="use")
use.command("adapt")(use_adapt.adapt)
use.command("export")(use_export.export)
use.command("rate")(use_rate.rate)
use.command("mix")(use_mix.mix)
app.command("survey")(survey.survey)
app.command("reproduce")(reproduce.reproduce)
app.command("methods")(methods.methods)
app.command("report")(report.report)
app.command("check")(check.check)
app.command("costs")(costs.costs)
app.command("architectures")(architectures.architectures)
app.add_typer(pocket, name="pocket")
pocket.command("sample")(pocket_sample.sample)
pocket.command("tasks")(pocket_tasks.tasks)
pocket.command("train")(pocket_train.train)
pocket.command("trater")(pocket_trater.trater)


def _version(wanted: bool) -> None:
    if wanted:
        import headscope

        typer.echo(f"headscope {headscope.__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Tell the version.")
    ] = False,
) -> None:
    """The options of the command itself, which has a single one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    0: done. 2: input that cannot be used, with one sentence on stderr. 130: interrupted. Anything
    else is an error of headscope's own and keeps its traceback.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell (`>&-`)
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        # A terminal that cannot show a letter gets its code, and no traceback.
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Remarks of the libraries beneath are no part of a command's output, nor are download bars
    # where nobody watches; whoever sets these variables gets what they ask for.
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_VERBOSITY", "error")
    os.environ.setdefault("DATASETS_VERBOSITY", "error")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")
    command = get_command(app)
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    try:
        for one in arguments:
            if not one.isascii() and any("\ud800" <= sign <= "\udfff" for sign in one):
                raise InputError(f"{one!r} is not valid UTF-8; rename it or give it as UTF-8")
        with warnings.catch_warnings():
            warnings.simplefilter("always", Caution)
            warnings.showwarning = output.caution
            code = command.main(arguments, prog_name="headscope", standalone_mode=False)
    except InputError as error:
        output.fail(str(error))
        return error.exit_code
    except typer.TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "headscope"
        message = error.format_message().replace("Value error, ", "").rstrip(".")
        output.fail(f"{message}; `{path} --help` tells what there is")
        return error.exit_code
    except OSError as error:
        # A place that cannot be used, where nothing more exact could be said before.
        if error.errno in _FULL:
            where = f"{error.filename}: " if error.filename else ""
            fix = "make room or name another place; what is written so far is kept"
            output.fail(f"{where}{error.strerror}; {fix}")
        elif error.filename is not None:
            output.fail(f"{error.filename}: {error.strerror}; check the path and its permissions")
        else:
            raise
        return InputError.exit_code
    except typer.Abort:
        return _interrupted()
    except RuntimeError as error:
        if not _out_of_memory(error):
            raise
        output.fail(
            "memory does not suffice, not even for one text at a time; give shorter texts (such as "
            "--max-tokens), --dtype bfloat16, --quantise or --device-map auto; what is done so far "
            "is kept"
        )
        return InputError.exit_code
    return _interrupted() if code == INTERRUPTED else int(code or 0)


def _out_of_memory(error: RuntimeError) -> bool:
    """Whether torch ran out of memory; a command that never loads torch does not load it here."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(error, torch.OutOfMemoryError)


def _interrupted() -> int:
    output.fail("interrupted; run the same command again and it goes on where it stopped")
    return INTERRUPTED
