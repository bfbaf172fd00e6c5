"""The result of writing a gate into a checkpoint or an adapter, which says how exact it is."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Literal

from headscope.results.adapt import AppliedGate
from headscope.results.common import ModelFacts, ModelResult, Ranking
from headscope.runs import Record, entry


@dataclass(frozen=True, kw_only=True)
class PrunedHeads:
    """Groups of query heads, each with its key-value head, that every layer lost.

    Of `groups_before` groups in a layer the gate removes at least `groups_removed`, and
    `groups_dropped` are gone, with as large a part of its `heads_before` query heads. `kept` are
    the others by layer, as the original model numbers them; in the export they are counted anew.
    """

    groups_dropped: int
    groups_removed: int
    groups_before: int
    heads_before: int
    kept: dict[str, tuple[int, ...]]
    parameters: int
    parameters_before: int


@dataclass(frozen=True, kw_only=True)
class ExportedFiles:
    """What was written: weight files, bytes of all weights, names of changed tensors or modules.

    `tensors` counts all tensors of a checkpoint; None of an adapter. Of LoRA adapters `lora_rank`
    is the (largest) rank, and `heads_in_rank_512` how many heads a layer fit into that of servers;
    of a pruned checkpoint `pruned` says what is gone.
    """

    files: tuple[str, ...]
    size: int = entry(name="bytes")
    changed: tuple[str, ...]
    tensors: int | None = entry(absent=True)
    lora_rank: int | None = entry(absent=True)
    heads_in_rank_512: int | None = entry(absent=True)
    pruned: PrunedHeads | None = entry(absent=True)


@dataclass(frozen=True)
class ExportedHead:
    """A head with the number that it is multiplied by."""

    layer: int
    head: int
    gate: float


@dataclass(frozen=True)
class ExportBase(Record):
    """The model that a gate was written into; `license_note` says why no license is known."""

    name: str
    hub: str | None
    revision: str | None
    license: str | None
    license_note: str | None


@dataclass(frozen=True, kw_only=True)
class ExportProof(Record):
    """How far the export's logits are from those of the gated model.

    Attributes:
        largest_difference: over all tokens, the largest difference to the gated model.
        untouched_difference: likewise to the model without the gate: what the gate does.
        largest_logit: the largest absolute logit of the gated model, for scale.
        same_choice: share of positions with the same most likely token as the gated model.
        positions: number of tokens compared.
        dtype: the dtype that both were computed in.
        allowed: what rounding may explain, of the difference to the folded model where that is
            known, else to the gated one; NaN in runs that did not note it.
        rounded_to: the dtype that multiplied weights were rounded to.
        noise: of a LoRA adapter, the largest difference that rounding makes in this dtype when the
            gate's change is added to W_O's output instead of multiplied into its input.
    """

    largest_difference: float
    untouched_difference: float
    largest_logit: float
    same_choice: float
    positions: int
    dtype: str
    allowed: float = nan
    rounded_to: str
    noise: float | None = entry(absent=True)

    @property
    def proves_nothing(self) -> bool:
        """Whether the gate does no more than rounding may."""
        return self.untouched_difference <= self.allowed


@dataclass(frozen=True, kw_only=True)
class ExportedAdapter(Record):
    """One of several LoRA adapters: the folder of this `name` at the export's path."""

    name: str
    heads: tuple[str, ...]
    written: ExportedFiles = entry(flat="")
    check: ExportProof | None


@dataclass(frozen=True)
class UnloadedModel(ModelFacts):
    """The model of an export, which is written without a device; how its weights are quantised."""

    device: str | None = None
    quantised: str | None = None


@dataclass(frozen=True, kw_only=True)
class ExportedModel(ModelResult):
    """An export at `path`, a checkpoint (`checkpoint`, `pruned`) or an adapter (`ia3`, `lora`), its
    gate and its `heads`.

    Where `path` holds several `adapters`, the gate is that of all of them together, and `check` is
    of the one that differs most. `found_by` is the signature of the run that found the
    gate, and `found_on_same_weights` is None where that does not say on which weights. Where
    there is no `check`, `check_note` says why.
    """

    model: UnloadedModel | None = entry(absent=True)
    path: str = ""
    form: Literal["checkpoint", "pruned", "ia3", "lora"] = entry(name="as")
    gate: AppliedGate
    ranked: Ranking | None = entry(flat="")
    heads: tuple[ExportedHead, ...] = ()
    found_by: str | None
    found_on_same_weights: bool | None
    base: ExportBase
    written: ExportedFiles = entry(flat="")
    check: ExportProof | None
    check_note: str | None
    adapters: tuple[ExportedAdapter, ...] | None = entry(absent=True)
