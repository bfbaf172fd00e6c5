"""Gates and peaks of a small model compared with slow references.

Each check compares what headscope does with something that shares none of its code: a gate with the
same model whose slice of W_O was set to zero, and peaks with the full attention matrices of the
same weights under eager attention, in one pass without a cache.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from headscope.heads import Gate, Head
from headscope.lm.attention.peaks import PeakRequest, PeakStep
from headscope.lm.attention.recording import capture_way
from headscope.lm.batching import Batch, collate
from headscope.lm.geometry import AttentionSite
from headscope.lm.hooks import kernel_name, text_config
from headscope.lm.inputs import evaluating, forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.weights import changeable_weights

#: Tokens of the rows of the batch that is checked; the shorter ones are padded on the left, and the
#: longest is more than twice as long as the tiny models' sliding windows.
_LENGTHS = (14, 9, 13)
_NEW_TOKENS = 8
#: A key counts as the largest if its weight is within this of the largest weight.
_TIE = 1e-6
#: Rows of one batch may be rounded differently where experts group the tokens of all rows.
_ROW_TOLERANCE = 1e-4
#: The same where rounding depends on the other rows, in standard deviations of the logits; removing
#: half of the heads moves them by several.
_ROUGH_ROW_TOLERANCE = 0.25
#: How many times the noise of plain passes a difference may be.
_SLACK = 4
#: How far a model's logits with a cache may be from those without, in standard deviations, before
#: the text it generates is another one than one pass over it would be.
_CACHE_TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class CheckReport:
    """What the checks of one model found.

    Attributes:
        way: ``"function"`` if peaks were taken at the attention kernel, ``"weights"`` if from the
            weights that the attention modules return.
        gate_difference: largest difference in logits between removing a head by its gate and
            setting its slice of W_O to zero, over all heads.
        row_gate_difference: the same with a gate of its own for each row of the batch.
        peaks, wrong: how many peaks were compared, in a pass over a left-padded batch and one
            without padding, and how many were not the key with the largest eager weight.
        dynamic, static: (compared, wrong) during ``generate()`` with that kind of cache; None where
            the model itself gives other logits with that cache than without one.
        same_outputs: whether logits and generated tokens were the same with and without recording.
        note: what a user has to know.
        row_tolerance: how large `row_gate_difference` may be: more with quantised weights, since
            quantisers may choose what they round by looking at the whole batch.
        noise: largest difference in logits between plain passes. Differences may be four times as
            large.
    """

    name: str
    kernel: str
    heads: tuple[int, ...]
    way: str
    gate_difference: float
    row_gate_difference: float
    peaks: int
    wrong: int
    dynamic: tuple[int, int] | None
    static: tuple[int, int] | None
    same_outputs: bool
    note: str
    row_tolerance: float = _ROW_TOLERANCE
    noise: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every check that could run came out right."""
        # Text is generated with a dynamic cache; a static one is a user's own choice.
        generated = [self.dynamic or (0, 0), *([] if self.static is None else [self.static])]
        return (
            self.gate_difference <= _SLACK * self.noise
            and self.row_gate_difference <= max(self.row_tolerance, _SLACK * self.noise)
            and self.wrong + sum(wrong for _, wrong in generated) == 0
            and min(self.peaks, *(compared for compared, _ in generated)) > 0
            and self.same_outputs
        )


def check_model(
    lm: LanguageModel, progress: Callable[[int, int], None] | None = None
) -> CheckReport:
    """Check gates and peaks of a small model; takes a few forward passes for each head.

    The model should compute in float32: in bfloat16 kernels round differently, and then peaks
    differ between kernels whoever takes them. ``progress`` is called with (heads done, heads in
    all).
    """
    rows, batch, generator = sample_batch(lm)
    chosen = (torch.rand(batch.input_ids.shape, generator=generator) < 0.5) & (
        batch.attention_mask > 0
    )
    chosen[:, -1] = True
    eager = copy.deepcopy(lm.model).eval()
    eager.set_attn_implementation("eager")
    if progress:
        progress(0, lm.geometry.total)
    with evaluating(lm.model), torch.no_grad():
        noise = _noise(lm, batch)
        padded = _forward(lm, eager, batch, chosen, noise)
        # Without padding kernels are given no mask at all, which is another way through the code.
        even = collate([(row * 2)[: max(_LENGTHS)] for row in rows], pad_id=0)
        unpadded = _forward(lm, eager, even, torch.ones_like(chosen), noise)
        dynamic, same_dynamic = _generate(lm, eager, batch, None)
        static, same_static = _generate(lm, eager, batch, "static")
        with changeable_weights(lm) as weights:
            largest = gate_difference(lm, batch, weights, progress)
            largest_by_row = row_gate_difference(lm, batch, weights)
        return CheckReport(
            name=str(lm.model.config.model_type),
            kernel=kernel_name(lm.model),
            heads=lm.geometry.counts,
            way=capture_way(lm),
            gate_difference=largest,
            row_gate_difference=largest_by_row,
            peaks=padded[0] + unpadded[0],
            wrong=padded[1] + unpadded[1],
            dynamic=dynamic,
            static=static,
            same_outputs=padded[2] and unpadded[2] and same_dynamic and same_static,
            note=_of_caches(dynamic, static),
            row_tolerance=_row_tolerance(lm, batch),
            noise=noise,
        )


def sample_batch(lm: LanguageModel) -> tuple[list[list[int]], Batch, torch.Generator]:
    """Random rows of unlike lengths, the same as a padded batch, and their generator."""
    # Some embed more tokens than they give logits for.
    vocabulary = int(text_config(lm.model).vocab_size)
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randint(3, vocabulary, (n,), generator=generator).tolist() for n in _LENGTHS]
    return rows, collate(rows, pad_id=0), generator


def _of_caches(*counts: tuple[int, int] | None) -> str:
    own = [kind for kind, count in zip(("dynamic", "static"), counts, strict=True) if count is None]
    return f"the model's own logits change with a {' or '.join(own)} cache" if own else ""


def _weights(lm: LanguageModel, model: Any, batch: Batch) -> list[torch.Tensor]:
    with evaluating(model):
        output = model(**forward_inputs(model, batch), output_attentions=True)
    if len(output.attentions) == lm.geometry.layers:
        # Layers without softmax attention may give something of their own.
        return [output.attentions[site.layer] for site in lm.sites]
    return [weights for weights in output.attentions if weights is not None]


def _compare(
    lm: LanguageModel, steps: Sequence[PeakStep], weights: Sequence[torch.Tensor]
) -> tuple[int, int]:
    """How many peaks were compared with full attention weights, and how many were not largest."""
    compared = wrong = 0
    for step in steps:
        for (row, place), keys in zip(step.rows.tolist(), step.keys, strict=True):
            for site, layer in zip(lm.sites, weights, strict=True):
                line = layer[row, :, place]
                own = keys[site.layer, : site.heads].long()
                reached = line.gather(1, own.clamp(min=0)[:, None])[:, 0]
                right = (own >= 0) & (reached >= line.amax(dim=1) - _TIE)
                compared += site.heads
                wrong += site.heads - int(right.sum())
    return compared, wrong


def _noise(lm: LanguageModel, batch: Batch) -> float:
    seen = batch.attention_mask.bool()
    inputs = forward_inputs(lm.model, batch)
    passes = [lm.model(**inputs).logits[seen] for _ in range(3)]
    return max(float((a - b).abs().max()) for a, b in itertools.combinations(passes, 2))


def _forward(
    lm: LanguageModel, eager: Any, batch: Batch, chosen: torch.Tensor, noise: float
) -> tuple[int, int, bool]:
    """Peaks of the chosen rows of one pass: compared, wrong, and whether logits stay the same."""
    inputs = forward_inputs(lm.model, batch)
    plain = lm.model(**inputs).logits
    with lm.attention_peaks(PeakRequest(chosen)) as peaks:
        observed = lm.model(**inputs).logits
    seen = batch.attention_mask.bool()
    same = torch.equal(plain, observed) or (
        noise > 0 and bool((plain - observed)[seen].abs().max() <= _SLACK * noise)
    )
    return *_compare(lm, peaks.steps, _weights(lm, eager, batch)), same


def _generate(
    lm: LanguageModel, eager: Any, batch: Batch, cache: str | None
) -> tuple[tuple[int, int] | None, bool]:
    """Peaks of every step of ``generate()``, compared with one pass over the whole text."""
    batch = batch.to(lm.device)
    inputs = {"input_ids": batch.input_ids, "attention_mask": batch.attention_mask}
    settings: dict[str, Any] = {"max_new_tokens": _NEW_TOKENS, "do_sample": False}
    if cache is not None:
        # A GPU would compile it, and with it what looks on.
        settings |= {"cache_implementation": cache, "disable_compile": True}
    plain = lm.model.generate(
        **inputs, **settings, output_logits=True, return_dict_in_generate=True
    )
    with lm.attention_peaks(PeakRequest("last")) as peaks:
        observed = lm.model.generate(**inputs, **settings)
    same = torch.equal(plain.sequences, observed)
    prompt = batch.attention_mask.shape[1]
    seen = torch.ones_like(observed)
    seen[:, :prompt] = batch.attention_mask
    whole = Batch.of(observed, seen)
    if same and plain.logits is not None:
        steps = torch.stack(plain.logits, dim=1).float()
        logits = lm.forward(whole).logits[:, prompt - 1 : -1].float()
        # Rows that have ended are filled.
        running = (plain.sequences[:, prompt - 1 : -1] != 0).unsqueeze(-1)
        moved = ((steps - logits) * running).abs().amax(dim=-1) / logits.std()
        if lm.quantised is None and float(moved.median(dim=1).values.max()) > _CACHE_TOLERANCE:
            return None, same
    # Text that is not repeated without recording either says nothing about it.
    same = same or not torch.equal(plain.sequences, lm.model.generate(**inputs, **settings))
    return _compare(lm, peaks.steps, _weights(lm, eager, whole)), same


def gate_difference(
    lm: LanguageModel,
    batch: Batch,
    weights: dict[int, torch.Tensor],
    progress: Callable[[int, int], None] | None = None,
) -> float:
    """The largest difference in logits between a gate of 0 and a zeroed slice of W_O, over heads.

    ``weights`` are W_O by layer as `changeable_weights` gives them.
    """
    inputs = forward_inputs(lm.model, batch)
    seen = batch.attention_mask.bool()
    largest = 0.0
    for done, head in enumerate(lm.geometry.heads(), 1):
        values = np.ones((lm.geometry.layers, lm.geometry.width), dtype=np.float32)
        values[head.layer, head.head] = 0.0
        with lm.gated(Gate(lm.geometry, values)):
            gated = lm.model(**inputs).logits
        with _zeroed(lm.sites, weights, [head]):
            folded = lm.model(**inputs).logits
        largest = max(largest, float((gated - folded)[seen].abs().max()))
        if progress:
            progress(done, lm.geometry.total)
    return largest


@contextlib.contextmanager
def _zeroed(
    sites: Sequence[AttentionSite], weights: dict[int, torch.Tensor], removed: Sequence[Head]
) -> Iterator[None]:
    widths = {site.layer: site.head_width for site in sites}
    held = []
    try:
        for head in removed:
            width = widths[head.layer]
            target = weights[head.layer][:, head.head * width : (head.head + 1) * width]
            held.append((target, target.clone()))
            target.zero_()
        yield
    finally:
        for target, before in reversed(held):
            target.copy_(before)


def row_gate_difference(lm: LanguageModel, batch: Batch, weights: dict[int, torch.Tensor]) -> float:
    """As `gate_difference`, with half of the heads removed in each row, others in every row."""
    inputs = forward_inputs(lm.model, batch)
    heads = list(lm.geometry.heads())
    rows = batch.input_ids.shape[0]
    gate = torch.ones(rows, lm.geometry.layers, lm.geometry.width)
    # Another half of the heads in every row.
    removed = [
        [head for at, head in enumerate(heads) if (at + row) % (row + 2) == 0]
        for row in range(rows)
    ]
    for row, gone in enumerate(removed):
        for head in gone:
            gate[row, head.layer, head.head] = 0.0
    with lm.gated(gate):
        gated = lm.model(**inputs).logits
    largest = 0.0
    for row, gone in enumerate(removed):
        with _zeroed(lm.sites, weights, gone):
            folded = lm.model(**inputs).logits
        seen = batch.attention_mask[row].bool()
        largest = max(largest, float((gated[row] - folded[row])[seen].abs().max()))
    return largest


def _row_tolerance(lm: LanguageModel, batch: Batch) -> float:
    if lm.quantised is None:
        return _ROW_TOLERANCE
    logits = lm.forward(batch).logits
    return _ROUGH_ROW_TOLERANCE * float(logits[batch.attention_mask.bool()].float().std())
