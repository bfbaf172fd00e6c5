"""The settings of the experiments: the paper's own, or those for small models; and the data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from headscope.data.languages import parse_direction
from headscope.data.pairs import directions_in, is_flores
from headscope.heads import Amount, Rank, count_of
from headscope.options import DecodeName
from headscope.papers.paper import Missing, Setting, decided
from headscope.papers.published import ANY, reference
from headscope.results.translation_score import TranslationResult
from headscope.shown.blocks import Reference
from headscope.studies.pairs import PairsChoice

NAME = "token-alignment-heads"
#: Above this translation score the paper calls a head a token alignment head (section 2.3).
THRESHOLD = 0.1
#: Heads that are compared and that rate texts (sections 3.2 and 5.3), and that are removed
#: (Figure 1), in the paper's models.
COMPARED, REMOVED = 20, 30
#: The share of all heads that stands for both in models of few heads.
SHARE = "15%"
#: The share of heads that Figure 1 removes at random: 30 of 1,024.
FEW_REMOVED = "3%"
#: The groups of Figure 28's directions.
GROUPS = {
    "from English": ("en-zh", "en-ja", "en-de", "en-fr", "en-ar", "en-nl", "en-es"),
    "into English": ("zh-en", "ja-en", "ar-en", "de-en", "fr-en", "nl-en", "es-en"),
    "from German": ("de-ja", "de-es", "de-ko"),
    "from Japanese": ("ja-de", "ja-es", "ja-ko"),
}
FIGURE_28 = tuple(pair for group in GROUPS.values() for pair in group)
FIGURE_5 = (
    *("en-zh", "en-ja", "en-de", "en-fr", "en-ar", "en-nl", "en-ms"),
    *("de-es", "de-ja", "ja-ko"),
)
DIRECTIONS = (*FIGURE_28, "en-ms")
#: What the paper's prompts call Chinese (Figures 1 and 12).
CHINESE = "zh=Simplified Chinese"
#: Sentences of each direction of the pocket world that heads are found on, and checked on.
POCKET_FOUND, POCKET_CHECKED = 100, 10


def top(setting: Setting) -> Amount:
    """How many of the best heads are compared, and removed to rate texts."""
    if setting.steering.k is not None:
        return setting.steering.k
    return SHARE if setting.small else COMPARED


def amounts(setting: Setting) -> tuple[Amount, ...]:
    """The numbers of heads that are removed from a translating model."""
    if setting.steering.k is not None:
        return (setting.steering.k,)
    return (SHARE,) if setting.small else (COMPARED, REMOVED)


def largest(setting: Setting) -> int:
    """The largest number of heads that is removed."""
    return max(count_of(amount, setting.geometry.total) for amount in amounts(setting))


def ranked_by(setting: Setting) -> Rank:
    """What the heads are ranked by: the paper's score."""
    return setting.steering.rank or "score"


def decoded(setting: Setting) -> DecodeName:
    """Whose translation is scored: the model's own, or in a small model the reference."""
    return setting.steering.decode or ("reference" if setting.small else "greedy")


def in_chat(setting: Setting) -> bool | None:
    """Whether prompts go through the chat template: the paper asks plainly."""
    return False if setting.steering.chat is None else setting.steering.chat


def how_chosen(setting: Setting) -> str:
    """How many heads were taken and why, and how they were scored, for the note of a table."""
    taken, of = largest(setting), setting.geometry.total
    theirs = f"where the paper takes the top {COMPARED} or {REMOVED}"
    if setting.steering.k is not None:
        number = f"As --k says, {taken} of {of} heads are compared and removed, {theirs}."
    elif setting.small:
        number = (
            f"Small-model settings: {SHARE} of {of} heads ({taken}) {theirs}, which would be a "
            "large part of so few."
        )
    else:
        number = (
            f"The paper's settings: the top {COMPARED} heads are compared, the top {COMPARED} and "
            f"{REMOVED} removed."
        )
    return f"{number} {how_scored(setting)}"


def how_scored(setting: Setting) -> str:
    """What heads were scored on, for the note of a table."""
    own, aligner = decoded(setting) == "greedy", setting.steering.aligner
    exact = setting.pocket and not setting.data.pairs
    links = "exact word links" if exact else "word links of the data"
    if aligner in ("eflomal", "llm") or own:
        links = f"word links by {'a language model' if aligner == 'llm' else 'eflomal'}"
    elif not exact:
        scores = setting.read("scores", TranslationResult)
        by = "links" if scores is None else scores.aligner
        if by not in (None, "links"):
            links = f"word links by {by}"
        elif aligner is None:
            links += " or else by eflomal"
    text = "as in the paper on the model's own greedy" if own else "on the reference"
    theirs = "has" if own else "scores the model's own greedy translation, with"
    return (
        f"Heads are scored {text} translation, with {links}; the paper {theirs} links by GPT-4.1."
    )


def differs(setting: Setting) -> tuple[str, ...]:
    """What of our scores is not the paper's, except the model."""
    found = ["word links that are not GPT-4.1's", "sentences not known by content to be FLORES-101"]
    if decoded(setting) != "greedy":
        found.append("scored on the reference")
    return (*found, *decided(setting))


def bound(setting: Setting, table: str, default: str = ANY) -> Reference:
    """The source of a figure that the paper gives for several models or pairs together.

    Such a bound or largest value is no result of a single model, so it is never compared.
    """
    found = reference(NAME, table, setting.model.model, default=default)
    why = found.why or "not comparable: given for several models or pairs together"
    return Reference(found.source, "no single model" if default == ANY else default, False, why)


def needs_pairs(setting: Setting) -> Missing | None:
    """What is missing where there are no sentences to translate."""
    flores = _flores(setting)
    if flores is not None and not directions(setting):
        codes = dict.fromkeys(code for pair in DIRECTIONS for code in pair.split("-"))
        return Missing(
            f"{flores} has files for none of the paper's directions",
            f"a FLORES folder with English and one more of {', '.join(codes)}, or sentence pairs "
            "of any direction: --pairs en-pt=FILE",
        )
    if setting.pocket or setting.data.pairs:
        return None
    return Missing(
        "the paper scores heads on the dev split of FLORES-101 and measures translation on "
        "FLORES-101, without a word on the split",
        "a FLORES folder, or sentence pairs for each direction: --pairs flores/ or "
        "--pairs en-zh=FILE",
    )


def directions(setting: Setting) -> tuple[str, ...]:
    """The directions of a FLORES folder: those of the paper whose languages it has."""
    flores = _flores(setting)
    if flores is None:
        return ()
    known = [parse_direction(pair) for pair in DIRECTIONS]
    for split in ("dev", "devtest"):
        known = directions_in(Path(flores), known, split)
    return tuple(f"{direction.source}-{direction.target}" for direction in known)


def directions_named(places: Sequence[str]) -> tuple[str, ...]:
    """The directions that `PAIR=FILE` names."""
    return tuple(place.partition("=")[0] for place in places if "=" in place)


def given_directions(setting: Setting) -> tuple[str, ...]:
    """The directions that sentences were given for, as far as they are named."""
    return directions(setting) or directions_named(setting.data.pairs)


def halved(setting: Setting) -> bool:
    """Whether the sentences given come without splits, so that they are cut into two halves."""
    return bool(setting.data.pairs) and _flores(setting) is None


def given(setting: Setting) -> PairsChoice:
    """The sentence pairs as they were given, before they are cut into halves."""
    return PairsChoice(data=setting.data.pairs)


def found_on(setting: Setting) -> PairsChoice:
    """The sentences that heads are found on."""
    return _choice(setting, "dev", POCKET_FOUND)


def checked_on(setting: Setting) -> PairsChoice:
    """The sentences that heads are checked on; none that they were found on."""
    return _choice(setting, "devtest", POCKET_CHECKED)


def _choice(setting: Setting, split: str, limit: int) -> PairsChoice:
    steering, flores = setting.steering, _flores(setting)
    if not setting.data.pairs:
        choice = PairsChoice(pair=("all",), limit=limit)
    elif flores is not None:
        choice = named(PairsChoice(directions(setting), (flores,), split=split))
    else:
        files = sorted((setting.at("sentences") / split).glob("*.tsv"))
        pairs, places = [file.stem for file in files], [f"{file.stem}={file}" for file in files]
        choice = named(PairsChoice(tuple(pairs), tuple(places)))
    return replace(choice, limit=steering.limit or choice.limit, shots=steering.shots or 0)


def named(choice: PairsChoice) -> PairsChoice:
    """The same, with languages called as in the paper's prompts."""
    pairs = choice.pair or directions_named(choice.data)
    chinese = any("zh" in pair.split("-") for pair in pairs)
    return replace(choice, language_names=(CHINESE,) if chinese else ())


def _flores(setting: Setting) -> str | None:
    """The folder of a FLORES corpus, if that is what was given."""
    if len(setting.data.pairs) != 1:
        return None
    (place,) = setting.data.pairs
    path = Path(place)
    return place if path.is_dir() and is_flores(path) else None
