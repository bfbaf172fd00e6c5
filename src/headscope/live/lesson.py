"""Five steps with the bundled model, in the order of an experiment: what a class does first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

if TYPE_CHECKING:
    from headscope.heads import HeadSet
    from headscope.live.inputs import Wanted


@dataclass(frozen=True)
class Step:
    """A step of a lesson.

    Attributes:
        title: of its button.
        text: what to do, and what to ask.
        scene: what the page shows, as in the fragment of its address.
    """

    title: str
    text: str
    scene: str


def lesson(heads: HeadSet, sentence: Wanted, task: Wanted, other: Wanted) -> tuple[Step, ...]:
    """The steps: remove ``heads``, best first, from ``sentence``, ask which of them matters and
    where it looks, and do the same to a ``task`` without translation and to ``other`` languages."""
    off, best, size = dict.fromkeys(heads.keys, 0), heads.heads[0], len(heads)
    shown: list[tuple[str, str, Wanted, Mapping[str, int], Mapping[str, str]]] = [
        (
            "Remove",
            f"The {size} heads that look most at the word to translate are off. Compare Original "
            f"and Selected: what is kept, and what is lost? In Random {size} heads drawn "
            "by chance are off. How many random sets do as much?",
            sentence, off, {},
        ),
        (
            "One by one",
            "All heads are on. A cell now shows what removing this head alone does. Do single "
            f"heads do as much as the {size} together? Click the strongest cell and read the "
            "output.",
            sentence, {}, {"shade": "effect"},
        ),
        (
            "Look",
            f"Head {best} is pinned. Point at tokens of the original output: which word of the "
            "source does it look at? The table of its attention is below. A look is not yet an "
            "effect.",
            sentence, {}, {},
        ),
        (
            "Another task",
            f"The same {size} heads are off, and nothing is to be translated. Does the answer "
            "stay? If not, what does the task have in common with translation?",
            task, off, {},
        ),
        (
            "Other languages",
            "The heads were chosen on English to German. Here they are off from Russian to "
            "Spanish. Are they of one language pair? Then type a sentence of your own.",
            other, off, {},
        ),
    ]  # fmt: skip
    return tuple(
        Step(title, text, _scene(wanted, gates, {"pin": best.key, **more, "step": str(number)}))
        for number, (title, text, wanted, gates, more) in enumerate(shown, 1)
    )


def _scene(wanted: Wanted, gates: Mapping[str, int], more: Mapping[str, str]) -> str:
    written = ",".join(f"{head}:{gate}" for head, gate in gates.items())
    return urlencode({"input": json.dumps(wanted.plain), "gates": written, **more})
