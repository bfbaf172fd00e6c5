"""`headscope survey`: every method on one model, and what they agree on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from headscope.cli import old_options as options
from headscope.cli.compare.methods import TopHeads, agreement_table
from headscope.cli.groups import model_argument, taking
from headscope.cli.output import emit, progress

if TYPE_CHECKING:
    from headscope.recipes.inputs import ModelChoice


def _file(flag: str, words: str) -> Any:
    return Option(flag, metavar="FILE", help=words)


@taking(model=model_argument)
def survey(
    model: ModelChoice,
    methods: Annotated[
        list[str] | None,
        Option(
            "--method",
            metavar="NAME",
            help="Only this one, see `headscope methods`; repeatable. Without it all that the "
            "data allows.",
        ),
    ] = None,
    pairs: options.PairFiles = None,
    shots: Annotated[
        int, Option("--shots", min=0, help="Examples put before each sentence to be translated.")
    ] = 0,
    shots_data: options.ShotsData = None,
    chat: options.ChatTemplate = None,
    language_name: options.LanguageNames = None,
    documents: options.DocumentFiles = None,
    task: options.Tasks = None,
    questions: Annotated[
        str | None, _file("--questions", "Questions with contexts and answers.")
    ] = None,
    needles: Annotated[
        str | None, _file("--needles", "Facts with a question and a text to hide them in.")
    ] = None,
    words: Annotated[
        str | None, _file("--words", "Words, a meaning a row and a language a column.")
    ] = None,
    quick: Annotated[
        bool,
        Option("--quick", help="Little data and no long trainings: a first look."),
    ] = False,
    k: TopHeads = None,
    rank: options.Rank = "above-chance",
    seed: options.Seed = 0,
    out: options.OutFolder = None,
    as_json: options.AsJson = False,
) -> None:
    """Run every method of finding heads that the data allows, and show how far they agree.

    The bundled model brings data for all of them. Writes report.html into the run folder.
    """
    from headscope.cli.models import hide_loading_bars
    from headscope.recipes.survey import Survey
    from headscope.recipes.survey import survey as make_survey
    from headscope.recipes.survey_plans import SurveyData

    data = SurveyData(
        tuple(pairs or ()),
        tuple(documents or ()),
        tuple(task or ()),
        questions,
        needles,
        words,
        seed,
        rank,
        shots,
        tuple(shots_data or ()),
        chat,
        tuple(language_name or ()),
    )
    config = Survey(model, data, tuple(methods or ()), quick, k)
    hide_loading_bars()
    with progress() as update:
        result = make_survey(config, out, update)
    emit(result, as_json, _summary(result))


def _summary(result: dict[str, Any]) -> str:
    """Which methods ran, how they agree, and where to read on."""
    lines = []
    for one in result["runs"]:
        said = one["why"] or ""
        time = "left out" if one["run"] is None else f"{one['seconds']:.0f} s"
        lines.append(f"{one['method']:<18} {time:>9}  {said}".rstrip())
    table = agreement_table(result)
    return "\n".join([*lines, "", table, f"report: {result['report']}"])


command = survey
