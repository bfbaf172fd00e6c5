"""Removal with controls: the model as it is, without chosen heads, without random ones.

Here is what runs the model, by text and by losses of the references; what its outputs show is
worked out from them in `verify.removal_translations.evidence`. A reference is teacher-forced: the
model reads it and is asked for each of its tokens. A token is the first one of a linked word, a
later one of such a word (which follows from the first, and so says little about the source), or
belongs to no linked word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, product
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from headscope import options
from headscope.answers import answer_of
from headscope.data.align import Alignment, align_file
from headscope.data.pairs import PairFile
from headscope.data.prompts import (
    DEFAULT_TEMPLATE,
    TEMPLATE_OPTION,
    Prompt,
    Template,
    TemplateField,
)
from headscope.data.words import membership, within
from headscope.errors import InputError, nearest
from headscope.evidence.controls import Changing
from headscope.evidence.rows import AS_IS, Condition
from headscope.evidence.runner import (
    ZERO,
    KeptBatches,
    Replacements,
    Within,
    alone,
    in_groups,
    kept_here,
    kept_texts,
    kept_units,
    passes_of,
    prompts_of,
    room_for,
    rows_at_once,
)
from headscope.heads import Gate, HeadSet
from headscope.installed import Parts
from headscope.own import OwnMeasure
from headscope.progress import Progress, Steps, steps_of
from headscope.runs import Kept, Run, digest
from headscope.settings import GIVEN

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from headscope.lm import LanguageModel
    from headscope.lm.generation import GenerateConfig
    from headscope.lm.replacement import Replacement
    from headscope.lm.shared_losses import AnswerRow


Made = TypeVar("Made")

MEASURES = ("text", "loss")
#: The part of a run that keeps what the untouched model wrote before any condition was planned.
UNTOUCHED, TRANSLATIONS = "untouched", "translations"
#: New tokens for what stands before an answer, where the answer alone counts.
PREAMBLE_TOKENS = 64
#: Draws where losses are measured, if no number is given.
LOSS_DRAWS = 99
#: Gates are applied as numbers of 32 bits, which go no further.
LARGEST_GATE = 3.4e38


def check_gate(gate: float) -> None:
    """Raises `InputError` for a gate that no model can apply."""
    if not abs(gate) <= LARGEST_GATE:
        raise InputError(
            f"the gate {gate} is not a finite number up to {LARGEST_GATE:g}; use 0 to remove heads"
        )


def check_gates(gates: Sequence[float]) -> None:
    """Raises `InputError` unless there are gates, each once, that a model can apply."""
    if not gates:
        raise InputError("there is no gate value; give at least one, 0 to remove heads")
    for gate in gates:
        check_gate(gate)
    if len(set(gates)) != len(gates):
        raise InputError(
            f"a gate is given twice among {', '.join(map(str, gates))}; give each once"
        )


#: Measures of texts that installed packages bring: functions of outputs and references.
INSTALLED: Parts[Callable[..., Any]] = Parts({}, "measures")


def _measure_named(measure: str | OwnMeasure) -> str | OwnMeasure:
    """A measure, of an installed package by its name; `InputError` for one that nobody knows."""
    if isinstance(measure, OwnMeasure) or measure in MEASURES:
        return measure
    if measure in INSTALLED:
        return OwnMeasure.of(INSTALLED[measure])
    known = [*MEASURES, *INSTALLED]
    hint = nearest(measure, known)
    raise InputError(f"the measure {measure!r} is not known; {hint}there are {', '.join(known)}")


@dataclass(frozen=True, kw_only=True)
class Removal(Changing):
    """How heads are removed and what they are compared with.

    Attributes:
        gates: numbers by which the outputs of the heads are multiplied, each a condition of its
            own; 0 removes them, 0.5 or 2 are points of a dose curve.
        measure: "text", what the model translates, and "loss", that of the reference translation;
            None: text alone. Also functions of outputs and references (see `OwnMeasure`), which are
            measured of the translations.
        chat: None: whether the tokenizer has a chat template.
        answer_only: measure what `headscope.answers` leaves of an output.
        max_new_tokens: of an output; None: twice the source tokens and 32.
        loss_draws: random sets of heads whose losses are measured; None: 99. The first `draws` of
            them are those whose texts are.
    """

    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    gates: options.Gates = (0.0,)
    measure: Annotated[tuple[str | OwnMeasure, ...] | None, options.MEASURES] = field(
        default=None, metadata=GIVEN
    )
    threshold: options.Threshold = 0.1
    chat: options.Chat = None
    answer_only: options.AnswerOnly = field(default=None, metadata=GIVEN)
    max_new_tokens: options.MaxNewTokens = None
    loss_draws: int | None = field(default=None, metadata=GIVEN)

    @property
    def all_draws(self) -> dict[str, int]:
        """The draws of each measure."""
        text = super().most_draws
        known = {"text": text, "loss": self.loss_draws or max(text, LOSS_DRAWS)}
        wanted = [
            measure if isinstance(measure, str) else "text" for measure in self.measure or ("text",)
        ]
        return {name: draws for name, draws in known.items() if name in wanted}

    @property
    def most_draws(self) -> int:
        """The draws of the measure that has most."""
        return max(self.all_draws.values())

    @property
    def own_measures(self) -> tuple[OwnMeasure, ...]:
        """The measures of texts that are functions of the user's."""
        return tuple(measure for measure in self.measure or () if isinstance(measure, OwnMeasure))

    def __post_init__(self) -> None:
        if self.measure is not None:
            object.__setattr__(self, "measure", tuple(map(_measure_named, self.measure)))
        check_gates(self.gates)
        super().__post_init__()
        draws = self.all_draws
        if {"text", "loss"} <= set(draws) and draws["loss"] < draws["text"]:
            raise InputError(
                f"draws is {draws['text']} and loss_draws {draws['loss']}; the random sets "
                "of text are the first of those of loss, so give at least as many for loss"
            )


class Translating(Protocol):
    """Settings by which a model translates."""

    @property
    def template(self) -> Template: ...
    @property
    def chat(self) -> bool | None: ...
    @property
    def answer_only(self) -> bool | None: ...
    @property
    def max_new_tokens(self) -> int | None: ...
    @property
    def batch_tokens(self) -> int: ...
    @property
    def seed(self) -> int: ...


def generate(
    lm: LanguageModel,
    directions: Sequence[PairFile],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> list[list[list[str]]]:
    """Greedy translations under every condition: texts by condition, direction and sentence.

    All directions go through the model together, so that batches are full. What is translated is
    kept in `run` some hundred sentences at a time, and a run that was stopped goes on there.
    Conditions with the same gate are generated once, and what `continuations` kept in `run` is not
    generated again. `replacements` are those of each kind (see `headscope.lm.replacement`).
    """
    wordings, limits, settings, special = prompts_with_limits(lm, directions, config)
    every = range(len(wordings))
    passes = passes_of(planned, lm.geometry, every, replacements)
    kept = run.read_part(UNTOUCHED).get(TRANSLATIONS, {})
    keys = _keys(wordings, limits, settings, special)
    known = {at: kept[key][0] for at, key in enumerate(keys) if key in kept and AS_IS in passes}
    if known:
        left = [at for at in every if at not in known]
        passes[AS_IS] = replace(passes[AS_IS], rows=left)
    made = kept_texts(lm, wordings, limits, passes, settings, run, "translating", progress, special)
    made.setdefault(AS_IS, {}).update(known)
    return [
        _by_direction([made[condition.key][at] for at in every], directions)
        for condition in planned
    ]


def translate(
    lm: LanguageModel,
    directions: Sequence[PairFile],
    heads: HeadSet,
    template: Template = DEFAULT_TEMPLATE,
    chat: bool | None = None,
    max_new_tokens: int | None = None,
    batch_tokens: int = 8192,
    answer_only: bool | None = None,
) -> list[list[str]]:
    """Greedy translations of every sentence with `heads` removed, by direction; nothing is kept."""
    settings = Removal(
        template=template,
        chat=chat,
        answer_only=answer_only,
        max_new_tokens=max_new_tokens,
        batch_tokens=batch_tokens,
    )
    with lm.gated(heads.removed()):
        made = continuations(lm, directions, settings)
    return [[text.text for text in rows] for rows in made]


def answers_of(pairs: PairFile, texts: Sequence[str]) -> list[str]:
    """What of the outputs of every pair is the answer (see `headscope.answers`)."""
    return [answer_of(text, pair.source) for pair, text in zip(pairs.pairs, texts, strict=True)]


class Written(NamedTuple):
    """A text that a model wrote, and what ended it (see `headscope.lm.generation.Generation`)."""

    text: str
    stop: str


def continuations(
    lm: LanguageModel,
    directions: Sequence[PairFile],
    config: Translating,
    run: Run | None = None,
    title: str = "translating",
    progress: Progress | None = None,
    unit: str = TRANSLATIONS,
) -> list[list[Written]]:
    """Greedy translations by the model as it is now, with how they ended, by direction.

    Those of the untouched model are kept in `run` under the name of the `unit`, for `generate`.
    """
    wordings, limits, settings, special = prompts_with_limits(lm, directions, config)
    keys = _keys(wordings, limits, settings, special)

    def written(report: Steps | None = None) -> dict[str, tuple[str, str]]:
        made = lm.generate(wordings, settings, limits, special=special, progress=report)
        return {key: (each.text, each.stop) for key, each in zip(keys, made, strict=True)}

    if run is None:
        texts = written()
    else:
        report = steps_of(progress, title)
        if report:
            report(0, len(keys))
        decides = alone(lm, [keys, settings.batch_tokens])
        texts = kept_here(run, UNTOUCHED, unit, lambda: written(report), decides)
    return _by_direction([Written(*texts[key]) for key in keys], directions)


def _keys(
    wordings: Sequence[str], limits: Sequence[int], settings: GenerateConfig, special: bool
) -> list[str]:
    """What decides the text that a model writes to each prompt."""
    how = f"{special} {settings.stop_at_newline}"
    return [f"{how} {limit} {text}" for limit, text in zip(limits, wordings, strict=True)]


def prompts_with_limits(
    lm: LanguageModel, directions: Sequence[PairFile], config: Translating
) -> tuple[list[str], list[int], GenerateConfig, bool]:
    """Wordings with their most new tokens, how they go on, and if special tokens are added."""
    from headscope.lm.generation import GenerateConfig, newline_stop

    template, most = config.template, config.max_new_tokens
    room = PREAMBLE_TOKENS if config.answer_only else 0
    prompts: list[Prompt] = []
    limits: list[int] = []
    for pairs in directions:
        written = prompts_of(lm, pairs, template, config.chat)
        for number, prompt in enumerate(written):
            tokens = len(lm.encode(prompt.text, prompt.special))
            if tokens >= lm.context_length:
                raise pairs.too_long(number, tokens, lm.context_length)
        prompts += written
        limits += [most or room_for(lm, pair.source) + room for pair in pairs.pairs]
    special = all(prompt.special for prompt in prompts)
    settings = GenerateConfig(
        batch_tokens=config.batch_tokens, stop_at_newline=newline_stop(special, config.answer_only)
    )
    return [prompt.text for prompt in prompts], limits, settings, special


def _by_direction(made: Sequence[Made], directions: Sequence[PairFile]) -> list[list[Made]]:
    rest = iter(made)
    return [[next(rest) for _ in pairs.pairs] for pairs in directions]


#: The kinds of tokens, in the order of the arrays.
CLASSES = ("linked", "linked_later", "unlinked")


@dataclass(frozen=True, eq=False)
class ReferenceLosses:
    """The losses of one direction.

    Attributes:
        sums: float64 (C, S, 3): nats over the tokens of each kind, by condition and sentence.
        tokens: int64 (S, 3): how many tokens of each kind a sentence has; at least one in all.
    """

    sums: NDArray[np.float64]
    tokens: NDArray[np.int64]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """The arrays as a file holds them."""
        return {"nll": self.sums, "nll_tokens": self.tokens.astype(np.int32)}


def reference_alignment(pairs: PairFile, run: Run) -> Alignment:
    """The links of the references: those of the data, else eflomal's, computed once a run."""
    name = f"{pairs.source_language}-{pairs.target_language}"
    kept = Kept(run, "reference-links")
    return Alignment.from_dict(kept.made(name, lambda: align_file(pairs).as_dict()))


def answer_rows(
    lm: LanguageModel, pairs: PairFile, alignment: Alignment, config: Removal
) -> tuple[list[AnswerRow], list[NDArray[np.intp]]]:
    """Each prompt with its reference as tokens, and the kind of each of the reference's tokens.

    Raises `InputError` if one is longer than the context or has no token of its own.
    """
    from headscope.lm.shared_losses import AnswerRow

    prompts = prompts_of(lm, pairs, config.template, config.chat)
    rows, kinds = [], []
    for number, (pair, prompt) in enumerate(zip(pairs.pairs, prompts, strict=True)):
        full = prompt.with_target(pair.target)
        text = lm.encoded(full.text, full.special)
        places = np.flatnonzero(within(text.spans, *full.target_span))
        if len(text.ids) > lm.context_length:
            raise pairs.too_long(number, len(text.ids), lm.context_length)
        if not len(places) or places[0] < 1:
            where = f"pair {number + 1}" if pair.line is None else f"line {pair.line}"
            raise InputError(
                f"{pairs.path}, {where}: has {len(text.ids)} tokens with its prompt, "
                f"{len(places)} of them in the translation, and the model's context holds "
                f"{lm.context_length}; leave the pair out"
            )
        links = alignment.links[number] or frozenset()
        of_word = membership(text.spans[places], alignment.target_words[number], full.target_start)
        of_word = of_word[:, sorted({word for _, word in links})]
        first = of_word & (of_word.cumsum(axis=0) == 1)
        kinds.append(np.where(first.any(axis=1), 0, np.where(of_word.any(axis=1), 1, 2)))
        rows.append(AnswerRow(text.ids, places))
    return rows, kinds


def reference_losses(
    lm: LanguageModel,
    directions: Mapping[str, PairFile],
    alignments: Mapping[str, Alignment],
    planned: Sequence[Condition],
    config: Removal,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> dict[str, ReferenceLosses]:
    """The losses of every direction's references under every condition.

    Conditions that are read together are kept in `run` together, and a run that was stopped goes on
    there. Conditions with the same gate are read once. `replacements` are those of each kind.
    """
    texts = {
        name: answer_rows(lm, pairs, alignments[name], config) for name, pairs in directions.items()
    }
    return kept_losses(lm, texts, planned, config.batch_tokens, run, replacements, progress)


def kept_losses(
    lm: LanguageModel,
    texts: Mapping[str, tuple[Sequence[AnswerRow], Sequence[NDArray[np.intp]]]],
    planned: Sequence[Condition],
    batch_tokens: int,
    run: Run,
    replacements: Replacements = ZERO,
    progress: Progress | None = None,
) -> dict[str, ReferenceLosses]:
    """The losses of rows under every condition, by part, as `reference_losses` keeps them; each
    part has rows, and the kinds of the tokens of each. InputError where one is no finite number."""
    from headscope.lm.shared_losses import answer_losses, together

    passes = passes_of(planned, lm.geometry, (), replacements)

    def put(keys: Iterable[str]) -> tuple[list[Gate], list[Replacement | None]]:
        return [passes[key].gate for key in keys], [passes[key].replacement for key in keys]

    groups = in_groups(passes)
    units = {
        f"{name} {number}" + (f" @{group}" if group else ""): (
            name,
            [keys[place] for place in some],
        )
        for group, keys in groups.items()
        for name, (rows, _) in texts.items()
        for number, some in enumerate(together(rows, *put(keys)))
    }
    # A batch takes seconds, so that its losses are kept in time; its size follows from the model.
    batch_tokens = min(batch_tokens, rows_at_once(lm, 1.0, batch_tokens))

    def read(mine: Sequence[str], within: Within) -> Iterator[tuple[str, list[Any]]]:
        for keys, (name, (rows, kinds)) in product(groups.values(), texts.items()):
            asked = [
                unit
                for unit, (of_part, some) in units.items()
                if unit in mine and of_part == name and some[0] in keys
            ]
            wanted = {key for unit in asked for key in units[unit][1]}
            own = [key for key in keys if key in wanted]

            def by_kind(
                row: int, losses: NDArray[np.float32], kinds: Sequence[NDArray[np.intp]] = kinds
            ) -> list[float]:
                sums: list[float] = np.bincount(kinds[row], weights=losses, minlength=3).tolist()
                return sums

            batches = KeptBatches(within, own, [len(row.ids) for row in rows], 1)
            made = answer_losses(lm, rows, *put(own), batch_tokens, by_kind, batches)
            for unit in asked:  # which is computed when its first gate is asked for
                batches.begin(unit)
                by_key = {own[at]: of_rows for at, of_rows in islice(made, len(units[unit][1]))}
                yield unit, [by_key[key] for key in units[unit][1]]

    read_rows = {
        name: digest([[row.ids, row.places, kind] for row, kind in zip(rows, kinds, strict=True)])
        for name, (rows, kinds) in texts.items()
    }

    def decides(unit: str) -> Any:
        name, keys = units[unit]
        return [read_rows[name], [passes[key].decides for key in keys], batch_tokens]

    sizes = {unit: len(keys) for unit, (_, keys) in units.items()}
    kept = kept_units(
        run, "reference-losses", "reading references", sizes, read, progress, alone(lm, decides)
    )
    sums = {
        (name, key): row_sums
        for unit, (name, keys) in units.items()
        for key, row_sums in zip(keys, kept[unit], strict=True)
    }
    losses = {
        name: ReferenceLosses(
            np.array([sums[name, condition.key] for condition in planned], dtype=np.float64),
            np.stack([np.bincount(kind, minlength=3) for kind in kinds]),
        )
        for name, (_, kinds) in texts.items()
    }
    for name, direction_losses in losses.items():
        for condition, nats in zip(planned, direction_losses.sums, strict=True):
            if not np.isfinite(nats).all():
                raise InputError(
                    f"{name}, {condition.id}: losses are no finite numbers; the model may have "
                    "overflowed, try --dtype float32"
                )
    return losses
