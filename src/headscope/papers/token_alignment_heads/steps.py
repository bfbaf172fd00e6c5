"""The runs of the paper's experiments: studies with its settings, and their work."""

from __future__ import annotations

import heapq
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from glob import has_magic
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from headscope.data.align import Alignment, AlignWords, align_file
from headscope.data.pairs import PairFile, write_pairs
from headscope.data.words import split_words
from headscope.evidence.controls import DEFAULT
from headscope.find.translation_score_config import TranslationScore
from headscope.find.translation_scores import linker
from headscope.heads import resolve_heads
from headscope.heads.draws import draw_sets
from headscope.heads.geometry import keys_of
from headscope.heads.store import write_bytes
from headscope.measure.sequence import draws_for
from headscope.papers.paper import Missing, Setting, Step, Steps
from headscope.papers.published import published_claims
from headscope.papers.study_steps import study_step
from headscope.papers.token_alignment_heads.setting import (
    FEW_REMOVED,
    NAME,
    POCKET_CHECKED,
    POCKET_FOUND,
    THRESHOLD,
    amounts,
    checked_on,
    decoded,
    directions,
    found_on,
    given,
    halved,
    in_chat,
    named,
    needs_pairs,
    ranked_by,
    top,
)
from headscope.papers.trater import TraterExperiment, trater_experiment
from headscope.papers.trater.evidence import published_selection
from headscope.papers.work import read, written
from headscope.pocket.mixture import corpus_documents
from headscope.pocket.tasks import CROSS_LINGUAL, TASKS, write_tasks
from headscope.progress import Progress
from headscope.runs import Run, carry_out, dump_json
from headscope.runs.reading import read_rows
from headscope.studies.compare.checkpoints import checkpoint_series
from headscope.studies.compare.classes import CompareClasses, compare_classes
from headscope.studies.compare.formation import Formation, formation
from headscope.studies.compare.overlap import CompareOverlap, compare_overlap
from headscope.studies.costs.estimate import Work
from headscope.studies.find.key_tokens import FindKeyTokens
from headscope.studies.find.translation_score import FindTranslation, find_translation
from headscope.studies.models import POCKET, model_inputs, resolved_chat
from headscope.studies.pairs import PairsChoice, find_and_check, read_directions
from headscope.studies.use.rate import UseRate, use_rate
from headscope.studies.verify.failures import VerifyFailures, verify_failures
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.tasks import VerifyTasks
from headscope.use.rating import Rating

#: Random sets of heads of each kind: of the bundled model as many as let one of the paper's claims
#: hold, and of others.
MOST_DRAWS, DRAWS = draws_for(len(published_claims(NAME))), 39
#: Tokens of a prompt with its sentence, and of a translation: of the pocket world, and of FLORES.
POCKET_TOKENS, TOKENS = (28, 17), (70, 50)
#: Sentences of FLORES-101's dev and test splits.
FLORES = (997, 1012)
#: Sentences of each direction that every checkpoint translates: of the pocket world, and of others.
POCKET_FOLLOWED, FOLLOWED = 20, 50
#: Tasks: most items of one of the pocket world, and of anybody's; random sets of heads of each
#: kind for these.
POCKET_ITEMS, ITEMS, TASK_DRAWS = 100, 500, 19
#: Tokens of all tasks of the pocket world once: read, of one row, and written.
POCKET_READ, POCKET_ROW, POCKET_WRITTEN = 70_000, 28, 3_400
#: Of anybody's: tasks of a name, tokens of a question with one of its choices, and choices.
TASKS_OF_A_NAME, QUESTION_TOKENS, CHOICES = 10, 120, 4
#: Documents of the pocket corpus, how many of them carry a translation, and tokens of one.
DOCUMENTS, BILINGUAL, POCKET_DOCUMENT = 2000, 0.05, 70
#: Documents of each of anybody's files that are rated, tokens of one, and random sets of heads.
RATED, DOCUMENT, RATED_DRAWS = 2000, 500, 19
#: Tasks of the pocket world that prompts are taken from, prompts of each, and key words of one.
PROMPTED = ("pocket_translate_sentences", "pocket_repeat_sentences", "pocket_plurals")
PROMPTS_EACH, KEY_WORDS = 2, 2
#: Words of the sentence whose links are shown, at least: a shorter one shows little.
LINKED_WORDS = 6

Result = Mapping[str, Any]


# Sentences and scores


def score_steps(setting: Setting, *more: Step) -> Steps:
    """Translation scores of every direction, and steps that read them."""
    missing = needs_pairs(setting)
    if missing is not None:
        return missing
    halves: tuple[Step, ...] = ()
    if halved(setting):
        halves = (Step("sentences", "two halves of the sentences", _halves, Work()),)
    return (*halves, _score_step(setting), *more)


def other_scores(setting: Setting) -> tuple[Step, ...]:
    """The same of other models, which need sentences that are not of the pocket world alone."""
    others = setting.data.others if setting.data.pairs else ()
    return tuple(_score_step(setting, name) for name in others)


def _score_step(setting: Setting, other: str | None = None) -> Step:
    """Heads are scored on the sentences to find them on."""

    def settings(setting: Setting) -> FindTranslation:
        score, rank = scoring(setting), ranked_by(setting)
        return FindTranslation(setting.model, found_on(setting), score, THRESHOLD, rank)

    own = settings if other is None else _elsewhere(settings, other)
    name = "scores" if other is None else f"scores{setting.of(other).suffix}"
    title = f"translation scores of {other or 'every direction'}"
    work = sentences_of(setting, POCKET_FOUND, FLORES[0], generate=decoded(setting) == "greedy")
    before = ("sentences",) if halved(setting) else ()
    return study_step(find_translation, own, name, title, work, before)


def _elsewhere(settings: Callable[[Setting], Any], other: str) -> Callable[[Setting], Any]:
    """The settings of a run with another model."""
    return lambda setting: settings(setting.of(other))


def sentences_of(setting: Setting, pocket: int, others: int, generate: bool) -> Work:
    """The work of every direction's sentences once, read or translated: all, or --limit of them."""
    limit = setting.steering.limit
    count, each, (prompt, answer) = 20, limit or pocket, POCKET_TOKENS
    if setting.data.pairs:
        count = len(setting.data.pairs) if halved(setting) else len(directions(setting))
        each, (prompt, answer) = min(limit or others, others), TOKENS
    if generate:
        return written(count * each, prompt, answer, setting.batch_tokens)
    return read(count * each, prompt + answer, setting.batch_tokens)


def _halves(setting: Setting, out: Path, progress: Progress | None) -> Result:
    """Write the halves of the sentences given, to find heads on and to check them on."""
    most = FLORES[1]
    found, checked = find_and_check(given(setting), setting.model.model, most, setting.seed)

    def write(run: Run) -> Result:
        for split, halves in (("dev", found), ("devtest", checked)):
            (run.path / split).mkdir(exist_ok=True)
            for pair, pairs in halves.items():
                write_pairs(run.path / split / f"{pair}.tsv", pairs.pairs)
        return {
            "found_on": {pair: len(pairs.pairs) for pair, pairs in found.items()},
            "checked_on": {pair: len(pairs.pairs) for pair, pairs in checked.items()},
        }

    settings, inputs = {"seed": setting.seed, "most": most}, {p: f.digest for p, f in found.items()}
    return carry_out("reproduce sentences", out, settings, inputs, write)


def scoring(setting: Setting) -> TranslationScore:
    """How heads are scored."""
    return TranslationScore(
        decode=decoded(setting),
        aligner=setting.steering.aligner,
        llm=setting.linker if setting.steering.aligner == "llm" else None,
        chat=in_chat(setting),
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )


# Word links


def link_steps(setting: Setting) -> Steps:
    """Word links of one direction."""
    scored = score_steps(setting)
    if isinstance(scored, Missing):
        return scored
    sentences = scored[:-1]
    before = tuple(step.name for step in sentences)
    return (*sentences, Step("links", "word links of one direction", _links, Work(), before))


def _links(setting: Setting, out: Path, progress: Progress | None) -> Result:
    """Link the sentences of the first direction, and keep one of them whole."""
    choice = found_on(setting)
    if not setting.data.pairs:
        choice = replace(choice, pair=("en-de",))
    name, pairs = next(iter(read_directions(choice, setting.model.model, "dev").items()))
    aligner = setting.steering.aligner
    settings = {"direction": name, **({} if aligner is None else {"aligner": aligner})}
    asked, inputs = AlignWords(aligner, llm=setting.linker), {name: pairs.digest}
    if aligner == "heads":
        lm = setting.model.load_for()
        asked = replace(asked, linker=linker(lm, pairs, resolved_chat(lm, scoring(setting))))
        inputs |= model_inputs(lm)

    def link(run: Run) -> Result:
        if progress is not None:
            progress("linking words", 0, 1)
        linked = align_file(pairs, asked)
        return links_described(name, pairs, linked)

    return carry_out("reproduce links", out, settings, inputs, link)


def links_described(name: str, pairs: PairFile, linked: Alignment) -> dict[str, Any]:
    """The share of target words with a link, and the first sentence long enough to show."""
    known = [at for at, links in enumerate(linked.links) if links is not None]
    long = [at for at in known if len(linked.target_words[at]) >= LINKED_WORDS]
    example = None
    if known:
        at = (long or known)[0]
        links, sources, pair = linked.links[at] or (), linked.source_words[at], pairs.pairs[at]
        words = [
            {
                "target": word.text,
                "source": [
                    word.text for place, word in enumerate(sources) if (place, number) in links
                ],
            }
            for number, word in enumerate(linked.target_words[at])
        ]
        example = {"source": pair.source, "target": pair.target, "words": words}
    return {
        "direction": name,
        "aligner": linked.aligner,
        "units": linked.units,
        "sentences": len(known),
        "words": sum(len(linked.target_words[at]) for at in known),
        "linked": sum(len({target for _, target in linked.links[at] or ()}) for at in known),
        "example": example,
    }


# Comparisons of scores


def class_steps(setting: Setting) -> Steps:
    """Shares of the classes of heads, of other models too."""
    others = other_scores(setting)
    before = ("scores", *(step.name for step in others))

    def settings(setting: Setting) -> CompareClasses:
        return CompareClasses(tuple(str(setting.at(name)) for name in before), THRESHOLD)

    title = "shares of the classes of heads"
    own = study_step(compare_classes, settings, "classes", title, Work(), before)
    return score_steps(setting, *others, own)


def overlap_steps(setting: Setting) -> Steps:
    """The best heads of every direction, compared."""
    number = len(setting.data.pairs) if halved(setting) else len(directions(setting))
    if number == 1:
        return Missing(
            "heads of one direction alone cannot be compared with those of another",
            "a second direction, such as the reverse: --pairs de-en=FILE",
        )

    def settings(setting: Setting) -> CompareOverlap:
        scores = (str(setting.at("scores")),)
        return CompareOverlap(scores, top(setting), rank=ranked_by(setting))

    title = "the best heads of every two directions"
    own = study_step(compare_overlap, settings, "overlap", title, Work(), ("scores",))
    return score_steps(setting, own)


def formation_steps(setting: Setting) -> Steps:
    """Heads and translations over the checkpoints of a training."""
    checkpoints = _checkpoints(setting)
    if not checkpoints:
        return Missing(
            "the paper follows the checkpoints of an 8B model that it trained from nothing, which "
            "are not published, and this model brings none",
            "revisions or folders of this model's checkpoints, each by --checkpoints",
            "needs MODEL",
        )
    missing = needs_pairs(setting)
    if missing is not None:
        return missing
    number = 8 if checkpoints == (POCKET,) else len(checkpoints)
    own = decoded(setting) == "greedy"
    score = sentences_of(setting, POCKET_FOUND, FLORES[0] // 2, generate=own)
    check = sentences_of(setting, POCKET_FOLLOWED, FOLLOWED, generate=True)
    title, work = "heads over the checkpoints of a training", (score + check) * number
    return (study_step(formation, _formation, "formation", title, work),)


def _checkpoints(setting: Setting) -> tuple[str, ...]:
    return setting.data.checkpoints or ((POCKET,) if setting.pocket else ())


def _formation(setting: Setting) -> Formation:
    names, steering = _checkpoints(setting), setting.steering
    own = [f"{setting.model.model}@{name}" if _revision(name) else name for name in names]
    pairs = PairsChoice(pair=("all",))
    if setting.data.pairs:
        pair = () if halved(setting) else directions(setting)
        pairs = named(PairsChoice(pair, setting.data.pairs))
    return Formation(
        checkpoint_series(own, model=setting.model),
        replace(pairs, limit=steering.limit or pairs.limit, shots=steering.shots or pairs.shots),
        scoring(setting),
        threshold=THRESHOLD,
        k=top(setting),
        check=FOLLOWED if setting.data.pairs else POCKET_FOLLOWED,
        rank=ranked_by(setting),
    )


def _revision(name: str) -> bool:
    """Whether a checkpoint is named by a revision alone."""
    if name == POCKET or name.startswith(f"{POCKET}:") or has_magic(name):
        return False
    return "@" not in name and "/" not in name and not Path(name).exists()


# Translation and other tasks without the heads


def removal_steps(setting: Setting) -> Steps:
    """Translation without the best heads, and without random ones."""
    times = 1 + len(amounts(setting)) * (1 + len(CONTROLS) * draws_of(setting))
    work = sentences_of(setting, POCKET_CHECKED, FLORES[1], generate=True) * times
    title = "translation without the heads"
    own = study_step("verify removal", _removal, "removal", title, work, ("scores",))
    return score_steps(setting, own)


def spared_steps(setting: Setting) -> Steps:
    """The same, and translation without other heads by the paper's share, unless --k asks for
    another number, which the removal has then, or no text is to be written."""
    removal = removal_steps(setting)
    text = "text" in (setting.steering.measure or ("text",))
    if isinstance(removal, Missing) or setting.steering.k is not None or not text:
        return removal
    sentences = sentences_of(setting, POCKET_CHECKED, FLORES[1], generate=True)
    work, title = sentences * (2 + draws_of(setting)), "translation without a few other heads"
    own = study_step("verify removal", _spared, "spared", title, work, ("scores",))
    return (*removal, own)


def _spared(setting: Setting) -> VerifyRemoval:
    removal = replace(_removal(setting), k=(FEW_REMOVED,), measure=("text",), loss_draws=None)
    return replace(removal, controls=("outside",))


#: The paper's own control has no p over draws: heads that align no tokens.
CONTROLS = ("random", "same layers", "outside")


def draws_of(setting: Setting, others: int = DRAWS) -> int:
    """Random sets of each kind; of `others` than the bundled model as many."""
    return setting.steering.draws or (MOST_DRAWS if setting.pocket else others)


def _removal(setting: Setting) -> VerifyRemoval:
    return VerifyRemoval(
        heads=str(setting.at("scores")),
        k=amounts(setting),
        model=setting.model,
        pairs=checked_on(setting),
        rank=ranked_by(setting),
        # Fixed, since the loss without other heads is a claim, too, which their number decides.
        draws=draws_of(setting),
        controls=CONTROLS,
        loss_draws=setting.steering.draws,
        measure=setting.steering.measure or None,
        chat=in_chat(setting),
        threshold=THRESHOLD,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
    )


def failure_steps(setting: Setting) -> Steps:
    """How translations fail without the best heads."""
    removal = removal_steps(setting)
    if isinstance(removal, Missing):
        return removal
    if "text" not in (setting.steering.measure or ("text",)):
        return Missing("by loss alone no text is written that could fail", "--measure text")

    def settings(setting: Setting) -> VerifyFailures:
        return VerifyFailures(run=setting.at("removal"), llm=setting.llm)

    title, after = "how translations fail", ("removal",)
    return (*removal, study_step(verify_failures, settings, "failures", title, Work(), after))


def task_steps(setting: Setting) -> Steps:
    """Other tasks without the heads, and translation; both of other models too."""
    removal = removal_steps(setting)
    if isinstance(removal, Missing):
        return removal
    own: tuple[Step, ...] = ()
    if not setting.data.benchmarks:
        own = (Step("task-files", "tasks of the pocket world", _task_files, Work()),)
    before = ("scores", *(step.name for step in own))
    title, work = "other tasks without the heads", _task_work(setting)
    tasks = study_step("verify tasks", _tasks, "tasks", title, work, before)
    steps = [*removal, *own, tasks]
    for model, scored in zip(other_models(setting), other_scores(setting), strict=False):
        steps.append(scored)
        for step, study, settings in (
            (removal[-1], "verify removal", _removal),
            (tasks, "verify tasks", _tasks),
        ):
            name, title = f"{step.name}{setting.of(model).suffix}", f"{step.title}, {model}"
            elsewhere = _elsewhere(settings, model)
            steps.append(study_step(study, elsewhere, name, title, step.work, (scored.name,)))
    return tuple(steps)


def other_models(setting: Setting) -> tuple[str, ...]:
    """The other models; none where the bundled model's own tasks or sentences are used."""
    return setting.data.others if setting.data.pairs and setting.data.benchmarks else ()


def _task_work(setting: Setting) -> Work:
    """Every task as it is, without the heads, and without each random set."""
    names = len(setting.data.benchmarks)
    times = 2 + (2 if names else 1) * draws_of(setting, TASK_DRAWS)
    limit = setting.steering.limit
    if names:
        number = names * TASKS_OF_A_NAME * (limit or ITEMS) * CHOICES * times
        return read(number, QUESTION_TOKENS, setting.batch_tokens)
    work = read(POCKET_READ / POCKET_ROW, POCKET_ROW, setting.batch_tokens)
    share = min(1.0, (limit or POCKET_ITEMS) / POCKET_ITEMS)
    return replace(work, generated=POCKET_WRITTEN) * times * share


def _task_files(setting: Setting, out: Path, progress: Progress | None) -> Result:
    settings = {"items": POCKET_ITEMS, "seed": setting.seed}

    def write(run: Run) -> Result:
        return {"tasks": write_tasks(run.path / "files", "test", POCKET_ITEMS, setting.seed)}

    return carry_out("reproduce task files", out, settings, {}, write)


def _tasks(setting: Setting) -> VerifyTasks:
    own = setting.data.benchmarks
    return VerifyTasks(
        task=own or (str(setting.at("task-files") / "files"),),
        heads=str(setting.at("scores")),
        k=amounts(setting)[-1:],
        model=setting.model,
        limit=setting.steering.limit or (ITEMS if own else None),
        draws=draws_of(setting, TASK_DRAWS),
        # No claim rests on sets of the same layers, which would take as long again.
        controls=DEFAULT if own else ("random",),
        threshold=THRESHOLD,
        seed=setting.seed,
        batch_tokens=setting.batch_tokens,
        rank=ranked_by(setting),
    )


# Texts that need the heads, and models trained on them


def training_steps(setting: Setting) -> Steps:
    """Models trained from nothing on mixtures of rated texts, whose result the package has."""
    if not setting.pocket:
        return Missing(
            "the paper trains models of 1.5 billion parameters from nothing on 1T tokens of web "
            "text; only the pocket model is trained here",
            coverage="needs MODEL",
        )
    config = TraterExperiment()
    # The corpus as it is, without and with more of the selected texts, or of random ones.
    tokens = config.tokens * 5 * len(config.seeds)
    rows, calls = config.batch_tokens / 32, tokens / config.batch_tokens
    work = Work(training=tokens, length=32, rows=rows, calls=calls)
    work += read(2 * 2.5e6 / POCKET_DOCUMENT, POCKET_DOCUMENT, 8192)
    title = "models trained from nothing on rated texts"
    step = study_step(trater_experiment, lambda setting: config, "trater", title, work)
    return (replace(step, stored="trater-pocket"),)


def rated_steps(setting: Setting) -> Steps:
    """Documents rated by the heads, and by as many random ones."""
    if not setting.pocket and not setting.data.documents:
        return Missing(
            "the paper rates 300B tokens of its own multilingual web text, which is not published",
            "documents of each language, such as --documents de=FILE --documents fr=FILE",
        )
    corpus: tuple[Step, ...] = ()
    limit = setting.steering.limit
    number, tokens = (limit or RATED) * len(setting.data.documents), DOCUMENT
    if not setting.data.documents:
        corpus = (Step("corpus", "a corpus of the pocket world", _corpus, Work()),)
        number, tokens = min(limit or DOCUMENTS, DOCUMENTS), POCKET_DOCUMENT
    work = read(2 * number, tokens, setting.batch_tokens)
    before = ("scores", *(step.name for step in corpus))
    draws, random = setting.steering.draws or RATED_DRAWS, "documents rated by random heads"
    rated = study_step(use_rate, _rating, "rated", "documents rated by the heads", work, before)
    drawn = Step("rated-random", random, _rate_by_random, work * draws, before)
    return score_steps(setting, *corpus, rated, drawn)


def _corpus(setting: Setting, out: Path, progress: Progress | None) -> Result:
    settings = {"documents": DOCUMENTS, "bilingual": BILINGUAL, "seed": setting.seed}

    def write(run: Run) -> Result:
        drawn = list(islice(corpus_documents("test", setting.seed, BILINGUAL), DOCUMENTS))
        lines = "".join(f"{dump_json(document.record)}\n" for document in drawn)
        write_bytes(run.path / "corpus.jsonl", lines.encode())
        bilingual = sum(bool(document.to) for document in drawn)
        return {"documents": len(drawn), "bilingual": bilingual}

    return carry_out("reproduce corpus", out, settings, {}, write)


def _rating(setting: Setting) -> UseRate:
    own = setting.data.documents
    return UseRate(
        own or (str(setting.at("corpus") / "corpus.jsonl"),),
        str(setting.at("scores")),
        top(setting),
        setting.model,
        limit=setting.steering.limit or (RATED if own else None),
        rating=Rating(batch_tokens=setting.batch_tokens),
        rank=ranked_by(setting),
    )


def _rate_by_random(setting: Setting, out: Path, progress: Progress | None) -> Result:
    """The same documents rated by as many random heads: what the best of them carry."""
    rank, share = ranked_by(setting), selected_share(setting)
    chosen = resolve_heads(str(setting.at("scores")), top(setting), setting.geometry, by=rank)
    drawn = draw_sets(chosen, setting.steering.draws or RATED_DRAWS, setting.seed)
    sets = [",".join(keys_of(draw)) for draw in drawn]
    settings = {"heads": sets, "share": share, "rating": _rating(setting)}

    def rate(run: Run) -> Result:
        draws = []
        for number, heads in enumerate(sets):
            place = run.path / f"draw-{number:02d}"
            use_rate(replace(_rating(setting), heads=heads), place, progress)
            best = best_documents(rated_documents(place), share)
            kinds = {
                name: [row.get("kind") for row in documents] for name, documents in best.items()
            }
            draws.append({"heads": heads, "kinds": kinds})
        return {"draws": draws}

    return carry_out("reproduce rated", out, settings, {}, rate)


def selected_share(setting: Setting) -> float:
    """The share of each language's documents that is selected: the paper's, where there are many
    heads."""
    return BILINGUAL if setting.small else published_selection()


def rated_documents(place: Path) -> list[Mapping[str, Any]]:
    """The records of a rated corpus."""
    files = sorted((place / "documents").rglob("*.jsonl"))
    return [row for file in files for _, row in read_rows(file)]


def best_documents(
    rows: Sequence[Mapping[str, Any]], share: float
) -> dict[str, list[Mapping[str, Any]]]:
    """Of every language the share of its documents with the highest scores, at least one."""
    languages: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row.get("score") is not None:
            languages.setdefault(str(row.get("language") or ""), []).append(row)
    return {
        name: heapq.nlargest(
            max(1, round(share * len(documents))), documents, key=lambda row: row["score"]
        )
        for name, documents in sorted(languages.items())
    }


# Attention on key words


@dataclass(frozen=True)
class Prompted:
    """One prompt with its answer and the words on which it turns.

    `mapping` is whether the paper takes such prompts to need a mapping between languages.
    """

    name: str
    prompt: str
    answer: str
    words: tuple[str, ...]
    mapping: bool


def key_word_steps(setting: Setting) -> Steps:
    """The attention of every head on the key words of each prompt."""

    def settings(prompt: Prompted, setting: Setting) -> FindKeyTokens:
        chat, scores = in_chat(setting), str(setting.at("scores"))
        return FindKeyTokens(
            prompt=prompt.prompt,
            words=prompt.words,
            answer=prompt.answer,
            heads=scores,
            k="100%",
            rank="score",
            draws=0,
            chat=chat,
            seed=setting.seed,
            model=setting.model,
        )

    own = (
        study_step(
            "find key-tokens",
            partial(settings, prompt),
            f"key-words-{prompt.name}",
            f"attention on the key words of {prompt.name}",
            read(1, len(prompt.prompt) / 3, setting.batch_tokens),
            ("scores",),
        )
        for prompt in prompts(setting)
    )
    return score_steps(setting, *own)


def prompts(setting: Setting) -> tuple[Prompted, ...]:
    """Prompts in French and German, written by us; of the bundled model those of its own tasks.

    Endings to choose stand for Figures 22 and 23, with the paper's key words; inferences for 24 and
    25 and pronouns for 26 and 27, whose key words the paper shows in pictures alone.
    """
    if not setting.pocket:
        lines = files("headscope.papers") / "data" / "key_words.jsonl"
        rows = map(json.loads, lines.read_text("utf-8").splitlines())
        return tuple(Prompted(**row | {"words": tuple(row["words"])}) for row in rows)
    found = []
    for task in (task for name in PROMPTED for task in TASKS if task.name == name):
        own = task.name.removeprefix("pocket_").replace("_", "-")
        for number, row in enumerate(islice(task.rows("test", setting.seed), PROMPTS_EACH), 1):
            within = row.get("source") or row["prompt"].splitlines()[1].partition(": ")[2]
            answer, across = row["choices"][row["answer"]], task in CROSS_LINGUAL
            words = longest(within)
            found.append(Prompted(f"{own}-{number}", row["prompt"], answer, words, across))
    return tuple(found)


def longest(text: str) -> tuple[str, ...]:
    """The longest words of a text, in its order; of equal length the first."""
    texts = dict.fromkeys(word.text for word in split_words(text, links_given=False))
    words = [word for word in texts if any(map(str.isalnum, word))]
    most = sorted(words, key=len, reverse=True)[:KEY_WORDS]
    return tuple(word for word in words if word in most)
