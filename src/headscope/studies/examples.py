"""What a command measures, whatever it was read from.

Readers make it: `pairs` of sentence pairs, `tasks` of tasks, `language_texts` of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from headscope.progress import Progress
from headscope.results.common import Leakage
from headscope.runs import Run
from headscope.studies.baseline import UNTRIED, Works
from headscope.studies.verify.reference import Reference

if TYPE_CHECKING:
    from headscope.lm import LanguageModel

Part = TypeVar("Part", covariant=True)
Kind = TypeVar("Kind")
#: Asks a model, by settings and in a run, whether it does the task at all.
AskedFirst: TypeAlias = "Callable[[LanguageModel, Any, Run, Progress | None], Works]"


@dataclass(frozen=True)
class Examples(Generic[Part]):
    """What is measured.

    Attributes:
        parts: whatever `measure` takes, by part: a language, a direction, a task.
        texts: what the model is given, for controls that look at what heads do.
        digests: content hashes of the data, by name.
        leakage: how many of the examples the heads were found on; None where no data chose them.
        reference: makes what replaces removed heads, of this model and these settings.
        works: whether the model as it is does what is measured.
        prompted: what this model is given of each part, once `ready` knows the model.
        sent: of this model and these settings the first prompt of each part (see `ModelResult`).
        signed: what else counts in the run's signature.
        provenance: what else is told of where the result comes from.
        cautions: what seems wrong with the data, in sentences.
        chat: whether texts are of the chat template though no setting says so.
    """

    parts: Mapping[str, Part]
    texts: Mapping[str, Sequence[str]]
    digests: Mapping[str, str]
    leakage: Leakage | None = None
    reference: Callable[[LanguageModel, Any], Reference] = lambda lm, config: Reference()
    works: AskedFirst = lambda lm, config, run, progress: UNTRIED
    prompted: Mapping[str, Any] = field(default_factory=dict)
    sent: Callable[[LanguageModel, Any], Mapping[str, str]] = lambda lm, config: {}
    signed: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    cautions: tuple[str, ...] = ()
    chat: bool = False


def parts_of(kind: type[Kind], parts: Mapping[str, object]) -> dict[str, Kind]:
    """The parts of a kind, where a command takes several."""
    return {name: part for name, part in parts.items() if isinstance(part, kind)}
