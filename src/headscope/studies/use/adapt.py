"""`headscope use adapt`: write with a mask, soft gates or scaled heads, or steer a language."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.heads import Gate, Head, about_rank
from headscope.heads.adaptation import Adaptation
from headscope.measure.intervals import wilson_interval
from headscope.progress import Progress
from headscope.results.adapt import AdaptedModel, AdaptedOutput, AppliedGate
from headscope.results.common import ComparedResult, Ranking
from headscope.results.writing import Steering
from headscope.runs import decode, encode
from headscope.runs.reading import damaged_line, read_rows
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Bars,
    Section,
    Shown,
)
from headscope.shown.words import count
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts
from headscope.studies.study import Study
from headscope.studies.use.gates import (
    GateChoice,
    about,
    about_gates,
    factors_of,
    factors_section,
    read_gates,
)
from headscope.studies.use.prompts import (
    OneLine,
    PromptsChoice,
    prompts_digest,
    rendered,
    written,
)
from headscope.studies.use.steering import Steer, comparison
from headscope.studies.verify.writing import shown_outputs

if TYPE_CHECKING:
    from headscope.runs import Run

COMMAND = "use adapt"
#: New tokens of an output where nobody says.
NEW_TOKENS = 128
#: Rows that the result itself holds, and those of a page; all are in `outputs.jsonl`.
SHOWN, ON_PAGE = 10, 60
#: Fewer prompts than this are few.
FEW = 30


@dataclass(frozen=True)
class UseAdapt(Settings):
    """A whole run of the command: what is applied, what the model is given, how it writes."""

    gate: GateChoice
    prompts: PromptsChoice
    model: Annotated[ModelChoice, PROMPTED] = field(default_factory=ModelChoice)
    # None: 128. The context bounds it, too.
    max_new_tokens: options.MaxNewTokens = None
    one_line: OneLine = False
    gates: Annotated[
        str | None,
        Option(
            "Instead of --gate and --heads, a JSON Lines file with a gate for each prompt, in "
            'their order: {"heads": {"5.3": 0, "7.11": 0.5}}, the others times 1.',
            metavar="FILE",
            panel="Expert",
        ),
    ] = field(default=None, metadata=UNSIGNED)
    compare: Annotated[
        bool, Option("Also write with the model as it is.", flag="--compare/--no-compare")
    ] = True
    batch_tokens: options.BatchTokens = field(default=8192, metadata=UNSIGNED)


def use_adapt(
    config: UseAdapt, out: Path | None = None, progress: Progress | None = None
) -> AdaptedModel:
    """Let the model write with the gates on, and as it is; a run that was stopped goes on.

    Greedy. Beside the result the run holds `outputs.jsonl` (a row a prompt: `text`, and
    `text_as_is`) and `gate/`, the gate on heads as it was applied; where every prompt has a gate of
    its own, its row holds it.
    """
    from headscope.lm.generation import GenerateConfig

    if config.gates is None:
        config.gate.check()
    elif config.gate != GateChoice():
        raise InputError(
            "--gates says what every head is multiplied by; leave --gate, --heads, --k, --scale "
            "and --outside away"
        )
    prompts = config.prompts.read()
    data = {"prompts": prompts_digest(prompts)}
    lm = config.model.load_for()
    gates: list[Gate] | None = None
    if config.gates is None:
        adaptation = config.gate.read(lm.geometry, lm.name)
        applied = about(adaptation)
    else:
        ids = [prompt.id for prompt in prompts]
        gates, data["gates"] = read_gates(config.gates, ids, lm.geometry)
        adaptation = Adaptation(Gate.identity(lm.geometry), name=Path(config.gates).name)
        applied = about_gates(adaptation.name, gates)
    rows = rendered(lm, prompts, config.prompts.chat)
    limit = config.max_new_tokens or NEW_TOKENS
    how = GenerateConfig(limit, config.batch_tokens, config.one_line)
    ranking = decode(Ranking, about_rank(adaptation.gate))
    settings = {
        "settings": config,
        "applied": adaptation.as_dict(),
        "rank": ranking.rank,
        "new_tokens": limit,
    }

    def make(run: Run) -> AdaptedModel:
        with lm.adapted(adaptation):
            texts = written(lm, rows, "adapted", how, limit, run, progress, gates)
        plain: Sequence[str | None] = [None] * len(rows)
        each: Sequence[Gate | None] = [None] * len(rows) if gates is None else gates
        if config.compare:
            plain = written(lm, rows, "as is", how, limit, run, progress)
        outputs = tuple(
            AdaptedOutput(
                id=row.prompt.id,
                prompt=row.prompt.given,
                text=text,
                text_as_is=own,
                reference=row.prompt.reference,
                heads=factors_of(gate) if gate else None,
            )
            for row, text, own, gate in zip(rows, texts, plain, each, strict=True)
        )
        run.write_jsonl("outputs.jsonl", map(encode, outputs))
        if gates is None:
            adaptation.gate.save_pretrained(run.path / "gate")
        return AdaptedModel(
            gate=applied,
            ranked=ranking,
            prompts=len(rows),
            changed=sum(output.changed for output in outputs) if config.compare else None,
            empty=sum(not text.strip() for text in texts),
            empty_as_is=sum(not text.strip() for text in plain if text is not None)
            if config.compare
            else None,
            max_new_tokens=limit,
            chat=config.prompts.chat,
            data={
                "prompts": {
                    "path": config.prompts.data or "--prompt",
                    "digest": data["prompts"],
                    "prompts": len(rows),
                }
            },
            outputs=outputs[:SHOWN],
        )

    chat = not all(row.special for row in rows)
    return run_with_model(
        lm, COMMAND, out, settings, data, make, seed=0, kind=AdaptedModel, chat=chat
    )


def _show_adapted(result: AdaptedModel, run: Path) -> Shown:
    """How many outputs differ and are empty, outputs side by side, and what was applied."""
    gate, prompts = result.gate, result.prompts
    if result.changed is None:
        finding = f"{count(prompts, 'output')} written; the original model wrote none."
    else:
        many = f"all {prompts}" if result.changed == prompts else f"{result.changed} of {prompts}"
        finding = f"Outputs that differ from those of the original model: {many}."
    outputs = sorted(_read(run / "outputs.jsonl"), key=lambda output: not output.changed)
    few = f"Few prompts ({prompts}): other prompts may change more or less."
    note = (
        f"{min(ON_PAGE, prompts)} of {count(prompts, 'output')}, those that differ first; all are "
        "in outputs.jsonl of the run folder"
    )
    texts = shown_outputs(list(map(_texts, outputs[:ON_PAGE])), note)
    return Shown(
        "An adapted model",
        "How do the outputs change under the gate?",
        [finding, f"{_applied(gate)}."],
        "Greedy decoding, one output a prompt. That outputs differ does not say which are better.",
        "" if result.changed is not None else "--compare",
        [few] if prompts < FEW else [],
        [
            *model_facts(result.model_name, gate.of),
            ("gate", gate.name),
            ("tokens of an output, at most", str(result.max_new_tokens)),
        ],
        [
            Section("Outputs", texts[:-1], brief=True),
            Section("All outputs", texts[-1:]),
            *factors_section(result.model, gate.applied),
        ],
        _shares(result, outputs),
    )


def _applied(gate: AppliedGate) -> str:
    """How many heads a gate changes, and how."""
    what = f"{count(gate.different, 'gate')}, one a prompt: " if gate.different else ""
    what += "queries of " if gate.on == "query" else ""
    how = "removed" if 0 < gate.heads == gate.removed else "scaled"
    how += f", {gate.removed} of them removed" if 0 < gate.removed < gate.heads else ""
    parts = f"{count(gate.feed_forward, 'feed-forward part')} scaled" if gate.feed_forward else ""
    words = "; ".join(filter(None, [f"{gate.heads} of {count(gate.of, 'head')} {how}", parts]))
    return f"{what}{words}"


def _shares(result: AdaptedModel, outputs: Sequence[AdaptedOutput]) -> Bars | None:
    """How many outputs equal the reference and the original ones and are empty, before and after;
    None where none does."""
    prompts, compared = result.prompts, result.changed is not None
    known = [(each, each.reference.strip()) for each in outputs if each.reference is not None]
    counts = {
        "equal to the reference": (
            sum((output.text_as_is or "").strip() == reference for output, reference in known),
            sum(output.text.strip() == reference for output, reference in known),
            len(known),
        ),
        "equal to the original": (prompts, prompts - (result.changed or 0), prompts * compared),
        "empty": (result.empty_as_is or 0, result.empty, prompts),
    }
    none = [name for name, (*hits, of) in counts.items() if of and not any(hits)]
    ends = {
        name: [(hit / of, *(wilson_interval(hit, of) if of > 1 else (None, None)))
               for hit in hits[not compared :]]
        for name, (*hits, of) in counts.items()
        if of and any(hits)
    }  # fmt: skip
    if compared:  # of the original model by definition, so without an interval
        ends["equal to the original"][0] = (1.0, None, None)
    values, low, high = (
        tuple(tuple(share[at] and 100 * share[at] for share in own) for own in ends.values())
        for at in range(3)
    )
    return Bars(
        "Outputs before and after", tuple(ends), ("original", "adapted")[not compared :], values,
        "% of outputs", low, high, start=0.0, end=100.0,
        note=f"No output is {' or '.join(none)}" if none else "",
    ) if ends else None  # fmt: skip


def _texts(output: AdaptedOutput) -> tuple[str, dict[str, str]]:
    factors = (output.heads or {}).items()
    texts = {
        "prompt": output.prompt_text,
        "original": output.text_as_is,
        "adapted": output.text,
        "reference": output.reference,
        "heads": ", ".join(f"{Head.parse(head)} \u00d7 {of:g}" for head, of in factors) or None,
    }
    return f"Prompt {output.id}", {name: text for name, text in texts.items() if text is not None}


def _read(path: Path) -> Iterator[AdaptedOutput]:
    for line, row in read_rows(path):
        try:
            yield decode(AdaptedOutput, row)
        except (KeyError, ValueError) as error:
            raise damaged_line(path, line) from error


def asked(
    adapt: UseAdapt, steering: Annotated[dict[str, Any], Nested(of=Steer, make=dict)]
) -> UseAdapt | Steer:
    """Generate text under a mask, soft gates or scaled heads, compared with the original model.

    With --steer: scale the --heads of a language where the model answers in the wrong one, compared
    with random heads; a --gate then applies in every condition, and --k is 1% by default for a run
    of find lahis. Without prompts --steer gives the pocket model its own translations.
    """
    gate, data = adapt.gate, steering.get("data", ())
    if not steering["languages"]:
        if {"factors", "away"} & steering.keys() or steering.get(
            "ranking", "specific"
        ) != "specific":
            raise InputError(
                "--factor, --away and --ranking are for --steer; name a language there"
            )
        if len(data) > 1:
            raise InputError("--data names one file of prompts; put them into one")
        return replace(adapt, prompts=replace(adapt.prompts, data=data[0] if data else None))
    if adapt.gates is not None:
        raise InputError("--steer turns the same heads up for every prompt; leave --gates away")
    if gate.heads is None:
        raise InputError(
            "--steer needs the languages' heads; name a run of find lahis with --heads"
        )
    if gate.scale is not None or not adapt.compare:
        raise InputError("--steer takes --factor instead of --scale, and always compares")
    own = None if gate.gate is None else replace(gate, heads=None, k=None)
    return Steer(**{**steering, "heads": gate.heads, "k": gate.k, "rank": gate.rank, "gate": own})


def _carry_out(
    settings: UseAdapt | Steer, out: Path | None, progress: Progress | None
) -> AdaptedModel | ComparedResult:
    if isinstance(settings, Steer):
        return comparison.run(settings, out, progress)
    return use_adapt(settings, out, progress)


def _show(result: AdaptedModel | Steering, run: Path) -> Shown:
    if isinstance(result, Steering):
        return comparison.page(result, run)
    return _show_adapted(result, run)


command = Study(
    asked,
    _carry_out,
    result=AdaptedModel | Steering,
    show=_show,
    usage="--heads 5.3 --scale 0.5 --prompt 'The dog sleeps.'",
)
