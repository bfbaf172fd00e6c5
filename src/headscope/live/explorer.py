"""One model that answers what the page asks: outputs with and without heads, beside controls."""

from __future__ import annotations

import functools
import json
import random
import shlex
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, tee
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headscope.data.languages import language_name, parse_direction
from headscope.data.pairs import PairFile, SentencePair
from headscope.data.prompts import Prompt, Template, translation_prompts
from headscope.data.words import plain_words, running_words
from headscope.errors import InputError
from headscope.estimates import known
from headscope.evidence.controls import CONTROLS, sets_of
from headscope.evidence.rows import Basis
from headscope.heads import Gate, Head, HeadSet
from headscope.live.inputs import (
    GATE_BOUNDS,
    Arriving,
    Asked,
    Growing,
    Prepared,
    Wanted,
    pieces,
    prepare,
    read_arriving,
    read_asked,
    token_text,
)
from headscope.live.lesson import Step
from headscope.live.reading import Looks, Reading, looks
from headscope.live.scores import Source, described
from headscope.live.writing import Stop, Written, stoppable, written
from headscope.lm.generation.pool import can_pool
from headscope.lm.generation.settings import refuse_followed
from headscope.lm.prefix import can_share
from headscope.lm.prompting import chat_writer
from headscope.measure.identify import identify, same_language
from headscope.measure.latency import average_lagging
from headscope.measure.metrics import sentence_chrf
from headscope.report.parts import ends
from headscope.results.translation_score import best_sentences
from headscope.runs import whole
from headscope.shown.words import arrow
from headscope.use.simultaneous_translation import Drafted, Drafts, beginnings_of, interpreted
from headscope.use.simultaneous_translation import written as arriving

if TYPE_CHECKING:
    from headscope.lm import LanguageModel
    from headscope.lm.generation import Generation

T = TypeVar("T")

#: Takes an event of an answer: its name under `event`, and what belongs to it.
Emit = Callable[[dict[str, Any]], None]
#: Random draws whose log-probabilities the selected gate is placed among.
DRAWS = 20
#: Small results, and prompts with their hidden states or drafts, that are kept to be shown again.
KEPT, KEPT_READINGS = 256, 2
#: Tokens of a draft that are shown behind what is written of it.
AHEAD = 8
#: What needs the model; all else is looked up.
COMPUTED = ("run", "save", "interpret")
#: Sentences of a run that are shown of a head.
BEST = 10
#: New tokens of an output where the page does not say.
NEW_TOKENS = 64
#: Of texts with fewer words the language is not told: a quarter of them is taken for another.
TELLING = 3
ORIGINAL, GATED, RANDOM = ("original", "gated", "random")


@dataclass(frozen=True)
class Directions:
    """Directions that sentences can be given for, and the data's sentences of each.

    Attributes:
        names: such as `en-de`.
        read: the sentences of one; None where there is no data.
        title: of the data; None where there is none.
    """

    names: tuple[str, ...] = ()
    read: Callable[[str], PairFile] | None = None
    title: str | None = None


class Explorer:
    """A loaded model with what runs know of its heads.

    Attributes:
        sources: scores to colour the map by.
        gates: gates by name that the page offers.
        examples: prompts to begin with, by title.
        lesson: steps to begin with; the page opens with the first.
        pinned: the head that is looked at first.
        unfinished: folders of a run that is being saved.
    """

    def __init__(
        self,
        lm: LanguageModel,
        template: Template,
        *,
        sources: Sequence[Source] = (),
        gates: Mapping[str, Gate] | None = None,
        directions: Directions = Directions(),
        examples: Sequence[tuple[str, Wanted]] = (),
        lesson: Sequence[Step] = (),
        chat: bool | None = None,
        pinned: Head | None = None,
    ) -> None:
        refuse_followed(lm, "the explorer")
        self.lm = lm
        self.sources, self.gates, self.examples = sources, gates or {}, examples
        self.pinned, self.lesson = pinned, lesson
        self.unfinished: set[Path] = set()
        self._directions, self._template = directions, template
        self._chat = chat_writer(lm, chat, template.text)
        self._shares = functools.cache(functools.partial(can_share, lm))
        self._check: Callable[[], object] = bool
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._readings: OrderedDict[Hashable, Reading | None] = OrderedDict()
        self._drafts: OrderedDict[Hashable, Drafts] = OrderedDict()

    def warm(self, stop: Stop = bool) -> None:
        """Find out beforehand what the first answer would have to wait for; `Stopped` once
        ``stop`` says that it is not wanted."""
        with stoppable(self.lm, stop):
            can_pool(self.lm)
        _ = self.lm.stop_table
        identify(["Guten Tag"])

    # ---- answers without a computation --------------------------------------------------------
    def about(self) -> dict[str, Any]:
        """What the page is told of the model, its heads, and what it can begin with."""
        geometry, directions = self.lm.geometry, self._directions
        titled = [{"pair": name, "title": arrow(name)} for name in directions.names]
        return {
            "model": self.lm.name,
            "layers": geometry.layers,
            "counts": list(geometry.counts),
            "gate": list(GATE_BOUNDS),
            "new_tokens": NEW_TOKENS,
            "scores": [described(source) for source in self.sources],
            "sets": [{"title": name, "gates": factors(gate)} for name, gate in self.gates.items()],
            "examples": [
                {"title": title, "input": wanted.plain} for title, wanted in self.examples
            ],
            "lesson": [vars(step) for step in self.lesson],
            "data": None
            if directions.read is None
            else {"name": directions.title, "directions": titled},
            "pairs": titled,
            "chat": bool(getattr(self.lm.tokenizer, "chat_template", None)),
            "draws": DRAWS,
            "pinned": None if self.pinned is None else str(self.pinned),
        }

    def look_up(self, kind: str, body: Any) -> dict[str, Any]:
        """The answer to what needs no pass of the model; `InputError` for what makes no sense."""
        if not isinstance(body, Mapping):
            raise InputError("the question must be a JSON object")
        match kind:
            case "about":
                return {"event": "about", **self.about()}
            case "sentence":
                return self._sentence(body.get("pair"), body.get("at", 0))
            case "best":
                return {"event": "best", **self._best(body.get("scores"), body.get("head"))}
            case "copy":
                return {"event": "copy", **self._copied(read_asked(body, self.lm.geometry))}
            case _:
                raise InputError(f"there is nothing called {kind!r} to ask")

    def _sentence(self, pair: Any, at: Any) -> dict[str, Any]:
        read = self._directions.read
        if read is None or pair not in self._directions.names:
            raise InputError(f"there is no data for the direction {str(pair)[:20]!r}")
        pairs = read(pair).pairs
        if isinstance(at, bool) or not isinstance(at, int) or not 0 <= at < len(pairs):
            raise InputError(f"{repr(at)[:20]} is no sentence; there are 0 to {len(pairs) - 1}")
        wanted = Wanted(pairs[at].source, pair=pair, reference=pairs[at].target)
        return {"event": "sentence", "input": wanted.plain, "at": at, "of": len(pairs)}

    def _best(self, name: Any, head: Any) -> dict[str, Any]:
        """The sentences of a run on which a head has the highest share of hits."""
        source = next((candidate for candidate in self.sources if candidate.name == name), None)
        if source is None or not isinstance(head, str):
            raise InputError(f"there are no scores {str(name)[:40]!r} of such a head")
        head = self.lm.geometry.check(Head.parse(head)).key
        rows = [] if source.folder is None else best_sentences(source.folder, head)
        if source.part is not None:
            rows = [row for row in rows if row.part == source.part]
        rows.sort(key=lambda row: -row.hits / max(1, row.of))
        return {"head": head, "sentences": rows[:BEST]}

    def _copied(self, asked: Asked) -> dict[str, str]:
        """The question as a command, and as Python."""
        prepared, name = self._prepared(asked.wanted), self.lm.name
        typed, chat = self._typed(asked.wanted)
        tokens = f" --max-new-tokens {asked.new_tokens}"
        more = tokens + (" --chat" if chat else " --one-line")
        applied, before = factors(asked.gate), ""
        values = set(applied.values())
        if len(values) == 1:
            gate = f"--heads {','.join(applied)} --scale {values.pop():g}"
        else:
            row = shlex.quote(json.dumps({"heads": applied}))
            before, gate = f"echo {row} > gates.jsonl && ", "--gates gates.jsonl"
        revision = self.lm.revision
        model = f"--model {shlex.quote(name)} " + (f"--revision {revision} " if revision else "")
        command = f"{before}headscope use adapt {model}{gate} --prompt {shlex.quote(typed)}{more}"
        heads = ", ".join(
            f"headscope.Head({head.layer}, {head.head}): {asked.gate[head]:g}"
            for head in asked.gate.changed_heads()
        )
        loaded = (name, revision) if revision else (name,)
        special = "" if prepared.special else ", special=False"
        write = f"lm.generate([prompt], max_new_tokens={asked.new_tokens}{special})"
        python = (
            f"import headscope\n\nlm = headscope.load({', '.join(map(repr, loaded))})\n"
            f"gate = headscope.Gate.of(lm.geometry, {{{heads}}})\n"
            f"prompt = {prepared.text!r}\nwith lm.gated(gate):\n    print({write}[0].text)\n"
        )
        return {"command": command, "python": python}

    # ---- computations -------------------------------------------------------------------------
    def compute(self, kind: str, body: Any, emit: Emit, stop: Stop) -> None:
        """Answer what needs the model, event by event.

        Raises `InputError` for what makes no sense, and `Stopped` once ``stop`` says that the
        answer is no longer wanted. Either way the model is as it was.
        """
        began = time.monotonic()
        if kind not in COMPUTED:
            raise InputError(f"there is nothing called {kind!r} to ask")
        read = read_arriving if kind == "interpret" else read_asked
        asked = read(body, self.lm.geometry)
        with stoppable(self.lm, stop) as self._check:
            if isinstance(asked, Arriving):
                self._interpret(asked, emit)
            elif kind == "save":
                emit({"event": "saved", "run": self._saved(asked)})
                return
            else:
                self._run(asked, emit)
        emit({"event": "done", "seconds": time.monotonic() - began})

    def _saved(self, asked: Asked) -> str:
        """The question as a finished run of `use adapt`; its folder."""
        from headscope.studies.functions import function_of

        typed, chat = self._typed(asked.wanted)
        with whole(self.unfinished):
            result = function_of("use adapt")(
                self.lm,
                gate=asked.gate,
                prompt=[typed],
                chat=chat,
                one_line=not chat,
                max_new_tokens=asked.new_tokens,
            )
        return str(result.run)

    def _run(self, asked: Asked, emit: Emit) -> None:
        prepared = self._prepared(asked.wanted)
        identity = Gate.identity(self.lm.geometry)
        gates, note = {ORIGINAL: identity}, None
        if not asked.gate.is_identity:
            gates[GATED] = asked.gate
            try:
                drawn = self._controls(asked, asked.draw + 1)
            except InputError as error:
                note = f"no control: {error}"
            else:
                # Where fewer sets exist than draws, they come again.
                gates[RANDOM] = drawn[asked.draw % len(drawn)]
        control = gates.get(RANDOM)
        emit(
            {
                "event": "prompt",
                "text": prepared.text,
                "source": prepared.source,
                "tokens": prepared.spans.tolist(),
                "words": [[word.start, word.end] for word in prepared.words],
                "reference": prepared.reference,
                "control": None if control is None else list(factors(control)),
                "control_gates": None if control is None else factors(control),
                "control_note": note,
            }
        )
        made = self._outputs(asked, prepared, {ORIGINAL: identity}, (), emit)[ORIGINAL]
        original = made.output
        reading = self._reading(asked, prepared, original)
        rows = None if reading is None else reading.log_probabilities
        base = float(rows[-1].sum()) if rows and prepared.reference_row else None
        self._lane(ORIGINAL, prepared, made, original, base, emit)
        if asked.gate.is_identity:
            emit({"event": "same"})
        else:
            self._compared(asked, prepared, reading, original, gates, base, emit)
        if asked.pinned is not None:
            self._pinned(asked, asked.pinned, prepared, reading, gates, emit)
        if asked.effects and reading is not None:
            self._effects(asked, prepared, reading, emit)

    def _compared(
        self,
        asked: Asked,
        prepared: Prepared,
        reading: Reading | None,
        original: Generation,
        gates: Mapping[str, Gate],
        base: float | None,
        emit: Emit,
    ) -> None:
        """What the selected gate and the control do: to given texts, to the output, among draws."""
        changed = {lane: gate for lane, gate in gates.items() if lane != ORIGINAL}
        after: dict[str, float | None] = dict.fromkeys(changed, base)
        for lane, gate in changed.items():
            change = self._change(asked, prepared, reading, gate)
            if base is not None and change["reference"] is not None:
                after[lane] = base + change["reference"]
            emit({"event": "shift", "lane": lane, **change})
        outputs = self._outputs(asked, prepared, changed, original.output_ids, emit)
        for lane, output in outputs.items():
            self._lane(lane, prepared, output, original, after[lane], emit)
        if RANDOM in gates and reading is not None:
            emit({"event": "place", **self._place(asked, prepared, reading)})

    def _pinned(
        self,
        asked: Asked,
        head: Head,
        prepared: Prepared,
        reading: Reading | None,
        gates: Mapping[str, Gate],
        emit: Emit,
    ) -> None:
        """What the pinned head does alone, and where it looks in each lane."""
        alone = HeadSet(self.lm.geometry, (head,)).removed()
        change = self._change(asked, prepared, reading, alone)
        emit({"event": "head", "head": head.key, "alone": change})
        for lane, gate in gates.items():
            output = self._outputs(asked, prepared, {lane: gate}, (), emit)[lane].output
            seen = self._looks(asked, prepared, head, gate, output.output_ids)
            emit(
                {
                    "event": "attention",
                    "lane": lane,
                    "head": head.key,
                    "peaks": seen.peaks,
                    "weights": seen.weights,
                    "every": seen.every,
                }
            )

    def _effects(self, asked: Asked, prepared: Prepared, reading: Reading, emit: Emit) -> None:
        """What each head does alone: the change when it is removed, told layer by layer as these
        are computed, at once where all are known."""
        geometry = self.lm.geometry
        values: list[float | None] = []
        for layer, heads in enumerate(geometry.counts):

            def changes(layer: int = layer, heads: int = heads) -> list[float | None]:
                alone = [HeadSet(geometry, (Head(layer, head),)).removed() for head in range(heads)]
                return [known(rows[-1].sum()) for rows in reading.under(alone)]

            if not heads:
                continue
            key = "effects", asked.wanted, asked.new_tokens, layer
            is_new = key not in self._kept
            values += self._once(key, changes)
            if not is_new and len(values) < geometry.total:
                continue
            so_far = [*values, *[None] * (geometry.total - len(values))]
            high, signed = ends(so_far)
            emit(
                {
                    "event": "effects",
                    "of": compared_of(prepared),
                    "values": so_far,
                    "high": high,
                    "signed": signed,
                }
            )

    def _interpret(self, asked: Arriving, emit: Emit) -> None:
        """A translation while its source arrives: after each word what is drafted, how much of it
        is written, and the word of the source with most of the heads' attention."""
        wanted, source = asked.wanted, asked.wanted.text.rstrip()
        prepared, beginnings = self._prepared(wanted), beginnings_of(source)
        key = wanted.pair, source, asked.heads.heads
        drafts = self._drafts.get(key) or Drafts(
            self.lm, self._pairs(wanted), [asked.heads], self._template, self._chat is not None
        )
        self._keep(self._drafts, KEPT_READINGS, key, drafts)
        words = [[word.start, word.end] for word in running_words(source)]
        emit({"event": "source", "text": source, "words": words})

        def told(read: int, before: Sequence[int], draft: Iterator[Drafted]) -> list[int]:
            whole = read == len(beginnings)  # then all of it is written, its end too
            own, shown = tee(drafts.after(source, before) if whole else draft)
            tokens = [] if whole else asked.policy(read, before, own)
            drafted = list(islice(shown, None if whole else len(tokens) + AHEAD))
            ids = drafts.made([*before, *(proposal.token for proposal in drafted)]).output_ids
            added = pieces(self.lm, ids, prepared.one_line, len(before))
            emit(
                {
                    "event": "read",
                    "tokens": added,
                    "written": len(added) if whole else len(tokens),
                    "looks": [proposal.focus[0] for proposal in drafted[: len(added)]],
                }
            )
            return tokens

        for _ in arriving(drafts, beginnings, told):
            self._check()
        made = interpreted(drafts, source, asked.policy)
        lag = average_lagging(made.delays, len(words))
        emit({"event": "interpreted", "text": made.text, "delays": made.delays, "lag": lag})

    # ---- parts, each kept to be shown again ---------------------------------------------------
    def _prepared(self, wanted: Wanted) -> Prepared:
        return self._once(
            ("prompt", wanted), lambda: prepare(self.lm, wanted, self._translation(wanted))
        )

    def _translation(self, wanted: Wanted, chat: bool = True) -> Prompt | None:
        """The prompt that holds a sentence; without `chat` as it is before the chat template."""
        if wanted.pair is None:
            return None
        sentence = replace(self._pairs(wanted), pairs=(SentencePair("1", wanted.text, ""),))
        writer, bos = self._chat if chat else None, self.lm.tokenizer.bos_token or ""
        return translation_prompts(sentence, self._template, writer, bos)[0]

    def _pairs(self, wanted: Wanted) -> PairFile:
        """The languages of a sentence's direction, with the data's examples."""
        if wanted.pair is None or wanted.pair not in self._directions.names:
            raise InputError(f"there is no direction {str(wanted.pair)[:20]!r} here")
        read, direction = self._directions.read, parse_direction(wanted.pair)
        none = PairFile((), direction.source, direction.target, "", "")
        return none if read is None else read(wanted.pair)

    def _typed(self, wanted: Wanted) -> tuple[str, bool]:
        """What `use adapt` is given to read the same, and whether through the chat template."""
        plain = self._translation(wanted, chat=False)
        if plain is None:
            return wanted.text, wanted.chat
        return plain.text, self._chat is not None

    def _controls(self, asked: Asked, draws: int) -> list[Gate]:
        """Random gates: the numbers of the selected one on as many heads of a control."""
        changed = asked.gate.changed_heads()
        basis = Basis(lm=self.lm, texts=(asked.wanted.text,), watch=self._check)
        drawn = sets_of(asked.control, changed, draws, 0, basis)
        if not drawn:
            raise InputError("these layers have no other heads; choose the control random")
        controls = []
        values = [asked.gate[head] for head in changed]
        for number, draw in enumerate(drawn):
            self._check()
            # Which of the heads gets which number is random too, of the same layers in each.
            heads = random.Random(f"gates {number}").sample(draw.heads, len(draw))
            if asked.control == "same layers":
                heads.sort(key=lambda head: head.layer)
            factors_of = dict(zip(heads, values, strict=True))
            controls.append(Gate.of(self.lm.geometry, factors_of))
        return controls

    def _outputs(
        self,
        asked: Asked,
        prepared: Prepared,
        gates: Mapping[str, Gate],
        original: Sequence[int],
        emit: Emit,
    ) -> dict[str, Written]:
        """The output of every lane; those that are not known yet are written, token by token."""

        wanted, most = asked.wanted, asked.new_tokens
        keys = {lane: ("output", wanted, most, gate) for lane, gate in gates.items()}
        outputs = {lane: self._kept[key] for lane, key in keys.items() if key in self._kept}
        lanes = [lane for lane in gates if lane not in outputs]
        grown = [(Growing(self.lm, prepared.one_line), [True], [0]) for _ in lanes]

        def on_token(number: int, token: int) -> None:
            growing, alike, count = grown[number]
            lane, at = lanes[number], count[0]
            differs = lane != ORIGINAL and (at >= len(original) or original[at] != token)
            text = growing.add(token)
            event = {"event": "token", "lane": lane, "at": at, "text": text}
            emit(event | {"diverges": differs and alike[0]})
            alike[0], count[0] = alike[0] and not differs, at + 1

        if lanes:
            own = [gates[lane] for lane in lanes]
            room = self.lm.context_length - len(prepared.ids)
            made = written(self.lm, prepared.text, prepared.special, own, min(most, room), on_token)
            outputs.update(zip(lanes, made, strict=True))
        for lane, key in keys.items():
            self._keep(self._kept, KEPT, key, outputs[lane])
        return {lane: outputs[lane] for lane in gates}

    def _reading(self, asked: Asked, prepared: Prepared, original: Generation) -> Reading | None:
        """Prompt with original output, and with the reference, read without a gate."""
        key = asked.wanted, asked.new_tokens
        if key not in self._readings:
            rows: list[tuple[Sequence[int], int]] = []
            if original.output_ids:
                rows.append(([*prepared.ids, *original.output_ids], len(prepared.ids)))
            if prepared.reference_row is not None:
                rows.append(prepared.reference_row)
            made = Reading(self.lm, rows, self._shares) if rows else None
        else:
            made = self._readings[key]
        self._keep(self._readings, KEPT_READINGS, key, made)
        return made

    def _change(
        self, asked: Asked, prepared: Prepared, reading: Reading | None, gate: Gate
    ) -> dict[str, Any]:
        """The change of log-probability of each token of the original output, their sum, and that
        of the reference."""

        def change() -> dict[str, Any]:
            rows = [] if reading is None else reading.under([gate])[0]
            referred = prepared.reference_row is not None
            own = rows[: len(rows) - referred]
            tokens = own[0].tolist() if own else []
            return {
                "change": tokens,
                "total": sum(tokens),
                "reference": float(rows[-1].sum()) if referred else None,
            }

        return self._once(("change", asked.wanted, asked.new_tokens, gate), change)

    def _looks(
        self, asked: Asked, prepared: Prepared, head: Head, gate: Gate, output: Sequence[int]
    ) -> Looks:
        """Where a head looks while an output is written."""
        return self._once(
            ("looks", asked.wanted, asked.new_tokens, gate, head),
            lambda: looks(
                self.lm, head, prepared.ids, output, prepared.spans, prepared.words, gate
            ),
        )

    def _place(self, asked: Asked, prepared: Prepared, reading: Reading) -> dict[str, Any]:
        """Where the selected gate stands among random draws, by log-probability.

        `as_much` are the draws whose change has its direction and at least its size.
        """
        of = "total" if prepared.reference_row is None else "reference"

        def totals() -> list[float]:
            changes = reading.under(self._controls(asked, DRAWS))
            return [float(rows[-1].sum()) for rows in changes]

        key = "place", asked.wanted, asked.new_tokens, asked.gate, asked.control
        drawn = self._once(key, totals)
        selected = self._change(asked, prepared, reading, asked.gate)[of]
        as_much = sum(value <= selected if selected < 0 else value >= selected for value in drawn)
        return {
            "of": compared_of(prepared),
            "selected": selected,
            "random": drawn,
            "as_much": as_much,
            "control": CONTROLS[asked.control].words,
        }

    def _lane(
        self,
        lane: str,
        prepared: Prepared,
        made: Written,
        original: Generation,
        reference: float | None,
        emit: Emit,
    ) -> None:
        """A whole output with what is measured of it."""
        output = made.output
        ids, before = output.output_ids, original.output_ids
        alike = [a == b for a, b in zip(ids, before, strict=False)]
        diverges = alike.index(False) if False in alike else min(len(ids), len(before))
        words, asked = plain_words(output.text), set(plain_words(prepared.source_text))
        copied = sum(word in asked for word in words) / len(words) if words else None
        code = identify([output.text])[0] if len(words) >= TELLING else None
        spoken = None if code is None else {"code": code, "name": language_name(code)}
        wanted = code is not None and same_language(code, prepared.language or "")
        chrf = None
        if prepared.reference is not None:
            chrf = float(sentence_chrf([output.text], [prepared.reference])[0])
        emit(
            {
                "event": "lane",
                "lane": lane,
                "text": output.text,
                "tokens": pieces(self.lm, ids, prepared.one_line),
                "candidates": [
                    [[token_text(self.lm, token), probability] for token, probability in likeliest]
                    for likeliest in made.candidates
                ],
                "diverges": None if ids == before else diverges,
                "ended": {"length": "limit"}.get(output.stop, output.stop),
                "language": spoken,
                "wanted": wanted if spoken and prepared.language else None,
                "copied": copied,
                "chrf": chrf,
                "reference_logprob": reference,
            }
        )

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        value: T = self._kept[key] if key in self._kept else make()
        self._keep(self._kept, KEPT, key, value)
        return value

    @staticmethod
    def _keep(kept: OrderedDict[Hashable, Any], most: int, key: Hashable, value: Any) -> None:
        kept[key] = value
        kept.move_to_end(key)
        while len(kept) > most:
            kept.popitem(last=False)


def compared_of(prepared: Prepared) -> str:
    """The text whose log-probability is compared."""
    return "original output" if prepared.reference_row is None else "reference"


def factors(gate: Gate) -> dict[str, float]:
    """What single heads are multiplied by, where it is not 1."""
    return {head.key: gate[head] for head in gate.changed_heads()}
