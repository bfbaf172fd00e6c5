"""`headscope explore`: the page of one model, and the same in a notebook."""

from __future__ import annotations

import functools
import webbrowser
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated

from headscope import options
from headscope.data.languages import parse_direction
from headscope.data.pairs import PairFile
from headscope.data.prompts import DEFAULT_TEMPLATE, TEMPLATE_OPTION, Template, TemplateField
from headscope.errors import OptionalPart
from headscope.heads import Gate, Head, HeadScores, HeadSet
from headscope.heads.geometry import default_amount
from headscope.live.inputs import Wanted
from headscope.report.html import tag
from headscope.settings import Nested, Option, Settings
from headscope.studies.models import MODEL_ARGUMENT, POCKET, TEMPLATED, ModelChoice, template_inputs
from headscope.studies.pairs import PairsChoice, read_directions
from headscope.studies.study import Study

if TYPE_CHECKING:
    from headscope.live.explorer import Directions, Explorer
    from headscope.live.lesson import Step
    from headscope.lm import LanguageModel

#: For a user of the bundled model without data: sentences of a direction.
SENTENCES = 200
#: Titles of its examples that the lesson takes up.
TRANSLATE, OTHER = "Translate, English to German", "Russian to Spanish"
TASK = "Word task: plural, German"
_MODEL = {
    **TEMPLATED.changed,
    "model": replace(MODEL_ARGUMENT.changed["model"], default=POCKET),
}


@dataclass(frozen=True)
class Explore(Settings):
    """Switch heads of a model off in a browser, and watch its output change beside controls.

    Loads the model, prints the address of the page, and ends at Ctrl-C.
    """

    model: Annotated[ModelChoice, Nested(changed=_MODEL)] = field(default_factory=ModelChoice)
    heads: Annotated[
        tuple[str, ...],
        Option(
            "A run folder whose scores or gate the map shows, a saved set, a file of heads or "
            "scores, or a list: 5.3,7.11; repeatable.",
            metavar="RUN",
            held="heads",
        ),
    ] = ()
    pin: Annotated[
        Head | None,
        Option("The head to look at first.", metavar="HEAD", typed=str, read=Head.parse),
    ] = None
    pairs: PairsChoice = field(default_factory=PairsChoice)
    template: Annotated[TemplateField[Template], TEMPLATE_OPTION] = TemplateField(
        DEFAULT_TEMPLATE, Template
    )
    chat: options.Chat = None
    seed: options.Seed = 0
    host: Annotated[str, Option("Address to listen at; others than this reach the network.")] = (
        "127.0.0.1"
    )
    port: Annotated[int, Option("Port; 0 is a free one.", min=0, max=65535)] = 0
    allow_host: Annotated[
        tuple[str, ...],
        Option(
            "A further host name under which the page is opened; repeatable.",
            metavar="NAME",
            panel="Expert",
        ),
    ] = ()
    browser: Annotated[
        bool, Option("Open the page in a browser.", flag="--browser/--no-browser")
    ] = True

    def parts(self) -> Iterator[OptionalPart]:
        """What serves the page, too."""
        yield from super().parts()
        yield OptionalPart("the explorer", "live", ("starlette", "uvicorn"))


def explore(config: Explore) -> str:
    """Serve the page until Ctrl-C; `MissingExtra` without the extra `live`."""
    config.model.whole_for("explore")
    from headscope.live.ending import ending
    from headscope.live.server import listen, serve
    from headscope.lm.prompting import uses_chat

    with ending() as end, listen(config.host, config.port) as listening:
        explorer = explorer_of(config, config.model.load_for())
        if uses_chat(explorer.lm, config.chat, config.template.text):
            template_inputs(explorer.lm)  # warns of a template that contradicts itself
        _ = explorer.lm.model  # what the page could not use is told; now the weights are read

        def ready(address: str) -> None:
            end.unfinished, end.code = lambda: explorer.unfinished, 0
            print(f"{address} (Ctrl-C ends it)", flush=True)
            if config.browser:
                # By a file that only its owner can read: others see what programs are called with.
                file = end.folder / "explore.html"
                onward = tag("meta", http_equiv="refresh", content=f"0;url={address}")
                file.write_text(onward, encoding="utf-8")
                webbrowser.open(file.as_uri())

        serve(explorer, listening, config.host, config.allow_host, ready)
    return "The page has ended."


def explorer_of(
    config: Explore, lm: LanguageModel, held: Sequence[HeadScores | HeadSet | Gate] = ()
) -> Explorer:
    """The explorer of a loaded model, with further heads in memory; `InputError` for heads or data
    that do not fit. With the bundled model and no heads it opens as a lesson."""
    from headscope.live.explorer import Explorer
    from headscope.live.lesson import lesson
    from headscope.live.scores import bundled_scores, of_value, read_sources

    sources, gates = read_sources(config.heads, lm.geometry)
    for number, value in enumerate(held, 1):
        shown = of_value(value, lm.geometry)
        if isinstance(shown, Gate):
            gates[f"{type(value).__name__} {number}"] = shown
        else:
            sources.append(shown)
    if config.pin is not None:
        lm.geometry.check(config.pin)
    directions = directions_of(config.pairs, config.model.model, config.seed)
    examples = pocket_examples(directions.names) if config.model.model == POCKET else {}
    steps: tuple[Step, ...] = ()
    if examples and not (sources or gates or config.pairs.data):
        sources = bundled_scores(lm)
        if sources and config.pin is None and {TRANSLATE, OTHER} <= examples.keys():
            best = sources[0].scores.top(default_amount(lm.geometry))
            steps = lesson(best, examples[TRANSLATE], examples[TASK], examples[OTHER])
    return Explorer(
        lm,
        config.template,
        sources=sources,
        gates=gates,
        directions=directions,
        examples=list(examples.items()),
        lesson=steps,
        chat=config.chat,
        pinned=config.pin,
    )


def directions_of(choice: PairsChoice, model: str, seed: int) -> Directions:
    """What sentences there are; of the bundled model those of a direction when it is asked for."""
    from headscope.live.explorer import Directions

    if choice.data:
        known = read_directions(choice, model, "dev", seed=seed)
        titles = dict.fromkeys(pairs.path for pairs in known.values())
        return Directions(tuple(known), known.__getitem__, ", ".join(titles))
    if model != POCKET:
        for pair in choice.pair:
            parse_direction(pair)
        return Directions(choice.pair)
    from headscope.pocket.world.languages import DIRECTIONS

    @functools.cache
    def read(pair: str) -> PairFile:
        direction = replace(choice, pair=(pair,), limit=choice.limit or SENTENCES)
        return read_directions(direction, model, "dev", seed=seed)[pair]

    names = choice.pair if choice.pair and "all" not in choice.pair else DIRECTIONS
    for pair in names:
        if pair not in DIRECTIONS:
            read(pair)  # says what is wrong
    return Directions(tuple(names), read, "the bundled model")


def pocket_examples(directions: Collection[str]) -> dict[str, Wanted]:
    """Prompts that the bundled model can answer, by title: translation in these directions, key
    words, questions, word tasks."""
    from headscope.data.tasks import prompt
    from headscope.pocket.facts import TEMPLATE, QuestionKind, sample_questions
    from headscope.pocket.sample import sample_pairs, word_task

    examples = {}
    for title, pair in ((TRANSLATE, "en-de"), (OTHER, "ru-es")):
        first = max(
            sample_pairs(pair, "dev", 8, 0).pairs,
            key=lambda sentence_pair: len(sentence_pair.source),
        )
        if pair in directions:
            examples[title] = Wanted(first.source, pair=pair, reference=first.target)
    kinds: dict[str, QuestionKind] = {
        "Key words: two facts, one question": "one-language",
        "Question about a text in another language": "translated",
    }
    for title, kind in kinds.items():
        question = sample_questions("dev", 1, 0, kind).questions[0]
        text = TEMPLATE.format(context=question.context, question=question.question)
        answer, language = question.answers[0], question.language
        examples[title] = Wanted(text, reference=answer, language=language)
    for name, title in (("plural-de", TASK), ("antonym-en", "Opposite")):
        task = word_task(name, "dev")
        text, answer = prompt(task, task.examples[0], instructed=True), task.examples[0].output
        examples[title] = Wanted(text, reference=answer, language=task.language)
    return examples


command = Study(Explore, explore, out=None, usage="pocket --pair en-de")
