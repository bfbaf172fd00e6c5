"""Small models of every known architecture, checked against slow references: a page of the docs.

    python bench/architectures.py --registered --out docs/architectures.md

Half a minute, and ten minutes with `--registered`: then every causal language model that the
installed transformers registers is tried, each in a process of its own, so that one that crashes
or never ends says so in its line. The command ends with 1 if a known architecture fails.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import logging
import multiprocessing
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

import numpy as np
import torch
from small_models import ARCHITECTURES, VOCABULARY, build, build_registered, registered

from headscope.data.files import write_text_atomically
from headscope.errors import InputError, first_line
from headscope.heads import Gate
from headscope.lm.attention.recording import capture_way
from headscope.lm.check import (
    CheckReport,
    check_model,
    gate_difference,
    row_gate_difference,
    sample_batch,
)
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.weights import changeable_weights
from headscope.use.exporting.lora import lora_adapter
from headscope.use.exporting.proof import largest_difference, logits_of, lora_loaded

#: Rows of one batch may be rounded differently where experts group the tokens of all rows.
ROW_TOLERANCE = 1e-4
#: Gradients are sums over all tokens, in another order.
GRADIENT_TOLERANCE = 1e-4
#: How far logits of a LoRA adapter in float32 may be apart, as a share of the largest one.
LORA_LIMIT = 1e-5
LORA_VALUES = (0.0, 0.3, 1.0, 1.7)
#: Seconds for building and checking one registered architecture.
SECONDS = 180.0
#: What every process needs.
PRELOADED = [
    "architectures",
    "transformers.models.auto.modeling_auto",
    "transformers.models.llama.modeling_llama",
    "transformers.generation.utils",
]
EAGER = 'peaks need attn_implementation="eager"'


@dataclass(frozen=True)
class Checked:
    """One known architecture.

    `gradient` is the largest difference between the gradient of a gate of ones and what follows
    from the gradient of W_O, as a share of the largest.
    """

    name: str
    report: CheckReport
    gradient: float

    @property
    def passed(self) -> bool:
        """Whether gates, peaks, generation and gradients are right."""
        return self.report.passed and self.gradient <= GRADIENT_TOLERANCE


def checked(name: str) -> Checked:
    """Check a small random model of a known architecture, under its own default kernel."""
    lm = LanguageModel.wrap(build(name), name=name, check=False)
    try:
        capture_way(lm)
        return _checked(name, lm)
    except InputError:
        eager = LanguageModel.wrap(build(name, attn_implementation="eager"), name=name)
        return _checked(name, eager, EAGER)


def _checked(name: str, lm: LanguageModel, note: str = "") -> Checked:
    report = check_model(lm)
    report = dataclasses.replace(report, note="; ".join(filter(None, (note, report.note))))
    return Checked(name, report, gradient_difference(lm))


def gradient_difference(lm: LanguageModel) -> float:
    """Gradients of all gates at 1 beside Σ W_h · ∂/∂W_h, W_h the slice of W_O that reads head h.

    They are equal because a gate multiplies what W_h reads. Of the log probability of the batch's
    own tokens, which no head leaves as it is.
    """
    from transformers.pytorch_utils import Conv1D

    _, batch, _ = sample_batch(lm)
    inputs = forward_inputs(lm.model, batch)
    seen = batch.attention_mask[:, 1:].to(lm.device)

    def likelihood() -> torch.Tensor:
        logits = lm.model(**inputs).logits[:, :-1].float().log_softmax(dim=-1)
        own: torch.Tensor = logits.gather(-1, inputs["input_ids"][:, 1:, None])[..., 0]
        return (own * seen).sum()

    gate = torch.ones(lm.geometry.shape, requires_grad=True)
    projections: list[Any] = [site.projection for site in lm.sites]
    weights = [projection.weight for projection in projections]
    needed = [weight.requires_grad for weight in weights]
    with torch.enable_grad():
        with lm.gated(gate):
            (by_gate,) = torch.autograd.grad(likelihood(), gate)
        try:
            for weight in weights:
                weight.requires_grad_(True)
            gradients = torch.autograd.grad(likelihood(), weights)
        finally:
            for weight, before in zip(weights, needed, strict=True):
                weight.requires_grad_(before)
    expected = torch.zeros_like(by_gate)
    for site, projection, gradient in zip(lm.sites, projections, gradients, strict=True):
        product = projection.weight.detach() * gradient
        channels = product.sum(dim=1 if isinstance(projection, Conv1D) else 0)
        expected[site.layer, : site.heads] = channels.view(site.heads, -1).sum(dim=1)
    return float((by_gate - expected).abs().max() / expected.abs().max())


def gates_are_exact(lm: LanguageModel) -> bool:
    """Whether gates, of the whole batch and of its rows, and their gradient are exact."""
    _, batch, _ = sample_batch(lm)
    with evaluating(lm.model), torch.no_grad(), changeable_weights(lm) as weights:
        exact = gate_difference(lm, batch, weights) == 0.0
        near = row_gate_difference(lm, batch, weights) <= ROW_TOLERANCE
    return exact and near and gradient_difference(lm) <= GRADIENT_TOLERANCE


@dataclass(frozen=True)
class LoraCheck:
    """What became of an adapter.

    Attributes:
        projections: the classes of the output projections.
        difference: the largest difference in logits between PEFT's model and the gated one, as a
            share of the largest logit; None: there is no adapter.
        reason: why there is none, or why PEFT does not load it.
    """

    projections: tuple[str, ...]
    difference: float | None = None
    reason: str = ""

    @property
    def equal(self) -> bool:
        """Whether the logits are equal but for rounding."""
        return self.difference is not None and self.difference <= LORA_LIMIT


def lora_check(lm: LanguageModel) -> LoraCheck:
    """Write an adapter of a gate on all heads of a small model, load it by PEFT, and compare."""
    projections = tuple(sorted({type(site.projection).__name__ for site in lm.sites}))
    values = np.resize(LORA_VALUES, lm.geometry.shape)
    gate = Gate(lm.geometry, np.where(lm.geometry.mask(), values, 1))
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in (14, 9)]
    with TemporaryDirectory() as folder:
        adapter = Path(folder) / "adapter"
        try:
            lora_adapter(lm, gate, adapter)
            with lm.gated(gate):
                wanted = logits_of(lm.model, rows)
            with lora_loaded(lm.model, adapter, gate, lm.sites) as model:
                found = logits_of(model, rows)
        except InputError as error:
            return LoraCheck(projections, reason=first_line(error))
        except Exception as error:  # whatever PEFT raises for a stranger's model is the answer
            return LoraCheck(projections, reason=f"{type(error).__name__}: {first_line(error)}")
    largest = max(float(logits.abs().max()) for logits in wanted)
    return LoraCheck(projections, largest_difference(found, wanted) / largest)


Outcome = Literal["passes", "gates", "fails", "refused", "not built"]


@dataclass(frozen=True)
class Trial:
    """What became of one registered architecture.

    Attributes:
        name: its ``model_type``.
        outcome: ``passes``: gates, peaks, generation and gradient are right; ``gates``: gates are
            right, and peaks are refused; ``refused``: it is not loaded; ``fails``: it is loaded and
            something is not right; ``not built``: no small model of it could be made, or not in
            time.
        heads: query heads of each layer, where they were found.
        reason: why it does not pass, or what to know if it does.
        lora: whether an adapter is the gate, of a model that is loaded and if it was asked for.
    """

    name: str
    outcome: Outcome
    heads: tuple[int, ...] = ()
    reason: str = ""
    lora: LoraCheck | None = None


def try_one(name: str, lora: bool = False) -> Trial:
    """Build and check one registered architecture, and with `lora` its adapter."""
    try:
        model = build_registered(name)
    except Exception as error:  # whatever a stranger's code raises is the answer
        return Trial(name, "not built", reason=f"{type(error).__name__}: {_short(error)}")
    try:
        lm = LanguageModel.wrap(model, name=name)
    except InputError as error:
        return Trial(name, "refused", reason=_short(error))
    return dataclasses.replace(_tried(name, lm), lora=lora_check(lm) if lora else None)


def _tried(name: str, lm: LanguageModel) -> Trial:
    heads = lm.geometry.counts
    try:
        try:
            found = _checked(name, lm)
        except InputError:  # Falcon, for one, shows its weights under eager attention alone
            lm = LanguageModel.wrap(build_registered(name, "eager"), name=name)
            try:
                found = _checked(name, lm, EAGER)
            except InputError as error:
                outcome: Outcome = "gates" if gates_are_exact(lm) else "fails"
                return Trial(name, outcome, heads, _short(error))
    except Exception as error:
        return Trial(name, "fails", heads, f"{type(error).__name__}: {_short(error)}")
    return Trial(name, "passes" if found.passed else "fails", heads, found.report.note)


def _short(error: Exception) -> str:
    text = " ".join(str(error).split()).split("; ")[0].rstrip(".")
    return textwrap.shorten(text, 240, placeholder=" …")


def try_all(names: Sequence[str], lora: bool = False) -> Iterator[Trial]:
    """Try architectures one by one, each in a process of its own."""
    ways = multiprocessing.get_all_start_methods()
    # A server that has imported everything and computed nothing: its children start at once.
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in ways else "spawn")
    if "forkserver" in ways:
        context.set_forkserver_preload([*PRELOADED, *["peft"] * lora])
    for name in names:
        here, there = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(name, there, lora), daemon=True)
        child.start()
        there.close()
        try:
            if here.poll(SECONDS):
                yield here.recv()
            else:
                yield Trial(name, "not built", reason=f"not done within {SECONDS:.0f} seconds")
        except EOFError:
            child.join()
            yield Trial(name, "not built", reason=f"its process ended with {child.exitcode}")
        finally:
            child.kill()
            child.join()


def _child(name: str, there: Connection, lora: bool) -> None:
    import os
    import warnings

    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(logging.ERROR)
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    there.send(try_one(name, lora))
    there.close()


INTRODUCTION = """\
# Architectures

Small models with random weights, built from their configurations, with grouped heads and padding \
on the left. *Gate vs W_O*: the largest difference in logits between removing a head by its gate \
and setting its slice of the output projection to zero, over all heads; *row gates*: with a gate \
of its own for each row of a batch (where experts take the tokens of all rows together, rounding \
differs). *Wrong peaks*: keys that are not the one with the largest weight in the full attention \
matrices of the same model under eager attention, in fp32; then the same while text is generated \
with a dynamic and a static cache. *Gradient vs W_O*: the largest difference between gradients of \
gates and those that follow from the gradient of W_O, as a share of the largest. *Peaks from*: the \
attention function, or the weights that the attention module returns. \
`python bench/architectures.py --registered` makes this page, and `headscope check MODEL` checks \
one model.
"""
LORA = """\
## LoRA adapters

`headscope use export --as lora` adds to the output of W_O, so W_O has to be a Linear or a Conv1D. \
*LoRA vs gate*: the largest difference in logits, in fp32 and as a share of the largest logit, \
between the gated model and PEFT's with the adapter of the same gate (0, 0.3, 1 and 1.7 in turn, \
on all heads); up to 1e-5 they count as equal. Layers without heads have no part in an adapter.
"""
REGISTERED = """\
## Every registered architecture

transformers {version} registers {count} architectures of causal language models. Of each a small \
model with random weights was made from its configuration, with grouped heads where that is \
allowed, and checked as above in a process of its own; gradients of gates were compared with those \
of W_O. Encoders that can be decoders were built as such. Models that are not loaded are refused \
before any number is computed; *gates* means that heads can be removed and weighed, and that \
asking for peaks is refused.
"""


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """The lines of a table in Markdown."""
    lines = [header, *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    first, *rest = (f"| {' | '.join(cells)} |" for cells in lines)
    return [first, "|" + "---|" * len(header), *rest]


def checked_table(architectures: Sequence[Checked]) -> list[str]:
    """The table of the known architectures, one a line."""
    header = (
        "architecture",
        "heads by layer",
        "kernel",
        "peaks from",
        "gate vs W_O",
        "row gates vs W_O",
        "gradient vs W_O",
        "wrong peaks",
        "dynamic cache",
        "static cache",
        "",
    )
    rows = []
    for architecture in architectures:
        report = architecture.report
        verdict = "passes" if architecture.passed else "**fails**"
        rows.append(
            (
                architecture.name,
                ", ".join(map(str, report.heads)),
                report.kernel,
                report.way,
                f"{report.gate_difference:.1g}",
                f"{report.row_gate_difference:.1g}",
                f"{architecture.gradient:.1g}",
                f"{report.wrong} of {report.peaks}",
                *(f"{of[1]} of {of[0]}" if of else "–" for of in (report.dynamic, report.static)),
                f"{verdict}; {report.note}" if report.note else verdict,
            )
        )
    return table(header, rows)


def lora_tables(adapters: Mapping[str, LoraCheck], trials: Sequence[Trial] = ()) -> list[str]:
    """Which architectures have LoRA adapters that are the gate; below it, of the registered ones
    that are loaded, those that have not."""
    lines = table(("architecture", "W_O", "LoRA vs gate", ""), _lora_rows(adapters))
    loaded = {trial.name: trial.lora for trial in trials if trial.lora is not None}
    if loaded:
        equal = [check for check in loaded.values() if check.equal]
        most = max((check.difference for check in equal), default=0.0)
        kinds = Counter(kind for check in equal for kind in check.projections)
        others = {name: check for name, check in loaded.items() if not check.equal}
        lines += [
            "",
            f"Of the {len(trials)} registered architectures (below) {len(loaded)} are loaded. "
            f"{len(equal)} of these have adapters with equal logits, at most {most:.1g} apart, as "
            f"output projections {', '.join(f'{kind} ({n})' for kind, n in kinds.most_common())}.",
        ]
        if others:
            header = ("architecture", "W_O", "LoRA vs gate", "why not")
            lines += ["", *table(header, _lora_rows(others))]
    return lines


def _lora_rows(adapters: Mapping[str, LoraCheck]) -> list[tuple[str, ...]]:
    return [
        (
            name,
            ", ".join(check.projections),
            "–" if check.difference is None else f"{check.difference:.1g}",
            check.reason or ("equal" if check.equal else "**differs**"),
        )
        for name, check in adapters.items()
    ]


def trials_lines(trials: Sequence[Trial]) -> list[str]:
    """How many registered architectures pass, and why the others do not."""
    passing = [trial for trial in trials if trial.outcome == "passes"]
    rest = [trial for trial in trials if trial not in passing or trial.reason]
    rest.sort(key=lambda trial: (get_args(Outcome).index(trial.outcome), trial.name))
    header = ("architecture", "outcome", "why, or what to know")
    return [
        f"**{len(passing)} pass**: {', '.join(trial.name for trial in passing)}.",
        "",
        *table(header, [(trial.name, trial.outcome, trial.reason) for trial in rest]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--registered", action="store_true", help="also try all of transformers")
    parser.add_argument("--out", type=Path, help="the page, in Markdown")
    given = parser.parse_args()
    with_peft = importlib.util.find_spec("peft") is not None
    trials = []
    for trial in try_all(registered() if given.registered else (), with_peft):
        trials.append(trial)
        print(f"{trial.name}: {trial.outcome}", file=sys.stderr, flush=True)
    architectures = [checked(name) for name in ARCHITECTURES]
    lines = [INTRODUCTION, *checked_table(architectures), ""]
    if with_peft:
        models = {name: LanguageModel.wrap(build(name), check=False) for name in ARCHITECTURES}
        adapters = {name: lora_check(lm) for name, lm in models.items()}
        lines += [LORA, *lora_tables(adapters, trials), ""]
    if trials:
        about = REGISTERED.format(version=version("transformers"), count=len(trials))
        lines += [about, *trials_lines(trials), ""]
    page = "\n".join(lines)
    print(page, end="") if given.out is None else write_text_atomically(given.out, page)
    if failed := [architecture.name for architecture in architectures if not architecture.passed]:
        sys.exit(f"{', '.join(failed)}: gates, peaks or gradients differ from the slow reference")


if __name__ == "__main__":
    main()
