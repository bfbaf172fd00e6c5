"""Results of commands that put a gate on a model: what was applied, and what the model writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.results.common import ModelResult, Ranking
from headscope.runs import Record, entry


@dataclass(frozen=True)
class GateNumbers(Record):
    """All numbers of a gate but 1: by head (`layer.head`), and of feed-forward parts by layer."""

    on: str = "output"
    heads: Mapping[str, float] = field(default_factory=dict)
    feed_forward: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class AppliedGate(Record):
    """A gate by name, or `different` gates of single prompts, and how much of the model it changes.

    `on` is what it multiplies, `output` or `query`; `mask` says whether it holds 0 and 1 alone.
    Of `of` heads `heads` are multiplied, `removed` of them by 0, and so many `feed_forward` parts;
    of several gates by any of them.
    """

    name: str
    on: str
    mask: bool = False
    heads: int
    removed: int
    of: int
    feed_forward: int
    different: int | None = entry(absent=True)
    applied: GateNumbers = field(default_factory=GateNumbers)


@dataclass(frozen=True, kw_only=True)
class AdaptedOutput(Record):
    """What was written of one prompt: a text, or messages with `role` and `content`.

    `text_as_is` is the model's own, None where it was not run; `reference` the right output;
    `heads` what single heads were multiplied by, where every prompt has a gate of its own.
    """

    id: str
    prompt: str | tuple[Mapping[str, str], ...]
    text: str
    text_as_is: str | None = entry(absent=True)
    reference: str | None = entry(absent=True)
    heads: Mapping[str, float] | None = entry(absent=True)

    @property
    def changed(self) -> bool:
        """Whether the gate made a difference."""
        return self.text_as_is is not None and self.text_as_is != self.text

    @property
    def prompt_text(self) -> str:
        """The prompt as one text, a conversation with its roles."""
        if isinstance(self.prompt, str):
            return self.prompt
        return "\n".join(f"{turn['role']}: {turn['content']}" for turn in self.prompt)


@dataclass(frozen=True, kw_only=True)
class AdaptedModel(ModelResult):
    """What a model writes of so many `prompts` with a gate on it.

    `changed` outputs differ from the model's own, `empty` and `empty_as_is` hold nothing; None
    where the original model was not run. `outputs` are the first ones; the run holds all.
    """

    gate: AppliedGate
    ranked: Ranking | None = entry(flat="")
    prompts: int
    changed: int | None
    empty: int
    empty_as_is: int | None
    max_new_tokens: int
    chat: bool = False
    data: Mapping[str, Mapping[str, str | int]] = field(default_factory=dict)
    outputs: tuple[AdaptedOutput, ...] = ()
