"""`headscope use adapt`: write with a mask, soft gates or scaled heads, or steer a language."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from headscope import options
from headscope.errors import InputError
from headscope.evidence.blocks import dose_lines
from headscope.evidence.rows import WHOLE
from headscope.heads import Gate, about_rank
from headscope.heads.adaptation import Adaptation
from headscope.progress import Progress
from headscope.results.adapt import AdaptedModel, AdaptedOutput
from headscope.results.common import Ranking
from headscope.results.writing import Steering
from headscope.runs import decode, encode
from headscope.runs.reading import damaged_line, read_rows
from headscope.settings import UNSIGNED, Nested, Option, Settings
from headscope.shown.blocks import (
    Cell,
    HeadSets,
    Row,
    Section,
    Shown,
    Table,
    Text,
    p_cell,
    table_of,
)
from headscope.shown.words import count, enumeration, percent
from headscope.studies.models import PROMPTED, ModelChoice, run_with_model
from headscope.studies.shows import model_facts, named_places
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
from headscope.studies.use.steering import COMMAND, Steer, steer
from headscope.studies.verify.writing import in_words, writing_shown

if TYPE_CHECKING:
    from headscope.runs import Run


#: New tokens of an output where nobody says.
NEW_TOKENS = 128
#: Rows that the result itself holds, those of a page, and of a terminal; all are in
#: `outputs.jsonl`.
SHOWN, ON_PAGE, BRIEF = 10, 60, 3
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
        adaptation = config.gate.read(lm.geometry)
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
    gate = result.gate
    share = percent(result.changed / result.prompts) if result.changed and result.prompts else ""
    finding = [
        f"{result.changed} of {count(result.prompts, 'output')}{share and f' ({share})'} differ "
        "from those of the original model."
        if result.changed is not None
        else f"{count(result.prompts, 'output')} written; the original model wrote none."
    ]
    queries = "the queries of " if gate.on == "query" else ""
    several = f"{count(gate.different, 'gate')}, one a prompt; " if gate.different else ""
    applied = (
        f"{gate.name}: {several}{queries}{gate.heads} of {count(gate.of, 'head')} are multiplied, "
        f"{gate.removed} of them removed (by 0)"
    )
    if gate.feed_forward:
        applied += f"; so are {count(gate.feed_forward, 'feed-forward part')}"
    before = "" if result.empty_as_is is None else f" (original {result.empty_as_is})"
    finding += [f"{applied}.", f"Empty outputs: {result.empty}{before}."]
    cautions = []
    if result.prompts < FEW:
        cautions.append(f"Few prompts ({result.prompts}): other prompts may change more or less.")
    outputs = _first_outputs(run / "outputs.jsonl")
    return Shown(
        "An adapted model",
        "How do the outputs change under the gate?",
        finding,
        "Greedy decoding, one output a prompt. That outputs differ does not say which are better.",
        "" if result.changed is not None else "--compare",
        cautions,
        [
            *model_facts(result.model_name, gate.of),
            ("tokens of an output, at most", str(result.max_new_tokens)),
        ],
        [
            Section("First outputs", list(map(_brief, outputs[:BRIEF])), brief=True),
            Section("Outputs", [_outputs(outputs, result.prompts)]),
            *factors_section(result.model, gate.applied),
        ],
    )


def _brief(output: AdaptedOutput) -> Text:
    given = output.prompt if isinstance(output.prompt, str) else output.prompt[-1]["content"]
    texts = {"prompt": given, "original": output.text_as_is, "adapted": output.text}
    made = ((name, _line(text)) for name, text in texts.items() if text is not None)
    return Text(f"Prompt {output.id}", tuple(made))


def _line(text: str, width: int = 88) -> str:
    return textwrap.shorten(text, width, placeholder="\u2026")


def _outputs(outputs: Sequence[AdaptedOutput], prompts: int) -> Table:
    compared = any(output.text_as_is is not None for output in outputs)
    referenced = any(output.reference is not None for output in outputs)
    gated = any(output.heads is not None for output in outputs)
    rows = []
    for output in outputs:
        texts = [output.prompt_text, *([output.text_as_is] if compared else []), output.text]
        texts += [output.reference] if referenced else []
        texts += ["yes" if output.changed else "no"] if compared else []
        factors = (output.heads or {}).items()
        texts += [", ".join(f"{head} \u00d7 {of:g}" for head, of in factors)] if gated else []
        rows.append(Row(output.id, tuple(map(Cell, texts))))
    columns = ("prompt", *(["original"] if compared else []), "adapted")
    columns += (*(["reference"] if referenced else []), *(["differs"] if compared else []))
    columns += ("heads",) if gated else ()
    note = (
        f"{len(rows)} of {count(prompts, 'output')}, those that differ first; all are in "
        "outputs.jsonl of the run folder"
    )
    return Table("Outputs", columns, tuple(rows), note=note)


def _first_outputs(path: Path) -> list[AdaptedOutput]:
    """The first outputs that differ from the original model's and, if room is left, others."""
    changed: list[AdaptedOutput] = []
    same: list[AdaptedOutput] = []
    for line, row in read_rows(path):
        try:
            output: AdaptedOutput = decode(AdaptedOutput, row)
        except (KeyError, ValueError) as error:
            raise damaged_line(path, line) from error
        kept = changed if output.changed else same
        if len(kept) < ON_PAGE:
            kept.append(output)
    return [*changed, *same][:ON_PAGE]


def asked(
    adapt: UseAdapt, steering: Annotated[dict[str, Any], Nested(of=Steer, make=dict)]
) -> UseAdapt | Steer:
    """Generate text under a mask, soft gates or scaled heads, compared with the original model.

    With --steer: scale the --heads of a language where the model answers in the wrong one, compared
    with random heads; a --gate then applies in every condition, and --k is 1% by default for a run
    of find lahis. Without prompts the pocket model is given its own translations.
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
) -> AdaptedModel | Steering:
    if isinstance(settings, Steer):
        return steer(settings, out, progress)
    return use_adapt(settings, out, progress)


def _show(result: AdaptedModel | Steering, run: Path) -> Shown:
    if isinstance(result, Steering):
        return show_steered(result, run)
    return _show_adapted(result, run)


def show_steered(result: Steering, run: Path) -> Shown:
    """Answers in another language under every factor, with tests, charts, heads and answers."""
    details, found = result.details, result.evidence
    sets = {code: named_places(heads) for code, heads in details.heads.items()}
    lines = [line for name in found.statistics for line in dose_lines(found, name)]
    lead = "At 1 the model is the original one. The identifier errs on short texts."
    return writing_shown(
        result,
        run,
        "Steering the language of answers",
        "Are fewer answers in another language than asked for if a language's heads are scaled?",
        ["off_target", "chrf"],
        ["empty"],
        _finding(result),
        [
            *([Section("By factor", lines, lead)] if lines else []),
            Section("The heads", [HeadSets("Heads of each language", sets), *_changes(result)]),
            *(factors_section(result.model, details.gate.applied) if details.gate else []),
        ],
        [("identified by", details.identifier)] if details.identifier else [],
    )


def _finding(result: Steering) -> list[str]:
    """What the gate that is on the model throughout does by itself."""
    if (gate := result.details.gate) is None:
        return []
    own = result.evidence.statistics.get("off_target")
    without = [
        f"{own.number(scores['off_target'])} in {code}"
        for code, scores in result.details.without_gate.items()
        if own is not None and "off_target" in scores and code != WHOLE
    ]
    words = f"{gate.name} is on the model throughout ({gate.heads} heads changed)"
    return [f"{words}{'; without it ' if without else ''}{enumeration(without)}."]


def _changes(result: Steering) -> list[Table]:
    """p of a paired test of the prompts before and after."""
    found = result.evidence
    names = {each.id: in_words(each) for each in found.selected}
    rows = [
        (f"{part or f'mean of {len(found.single)}'}, {names[condition]}", ps)
        for part, own in result.details.p_change.items()
        for condition, ps in own.items()
    ]

    def column(name: str) -> Callable[[Mapping[str, float | None]], Cell]:
        return lambda ps: p_cell(ps.get(name))

    columns = {own.words: column(name) for name, own in found.statistics.items()}
    note = "Two-sided, paired by prompts; random heads play no part"
    return [table_of("p of the change", rows, columns, note)] if rows else []


command = Study(asked, _carry_out, result=AdaptedModel | Steering, show=_show)
