"""Ways to find where heads look, each as one call that ends with the peaks on the CPU.

The second half of every row of tokens is captured, as target tokens would be. Peaks are compared
as int (B, R, L, H).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from headscope.data.prompts import DEFAULT_TEMPLATE, Prompt
from headscope.find.capture import capture_greedy, capture_reference
from headscope.heads import Gate, Head, HeadSet
from headscope.live.explorer import Explorer
from headscope.lm.batching import collate
from headscope.lm.generation import GenerateConfig
from headscope.lm.inputs import forward_inputs
from headscope.lm.model import LanguageModel
from headscope.lm.replacement import replacement_of
from headscope.lm.shared_losses import AnswerRow, answer_losses


@dataclasses.dataclass(frozen=True)
class Settings:
    """What capturing asks of a scoring configuration: one batch, whatever its size."""

    query: str = "read"
    batch_tokens: int = 1 << 40
    max_new_tokens: int | None = None


def random_rows(lm: LanguageModel, batch: int, tokens: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    size = int(lm.model.config.vocab_size)
    rows: list[list[int]] = torch.randint(1, size, (batch, tokens), generator=generator).tolist()
    return rows


@contextlib.contextmanager
def eager(lm: LanguageModel) -> Iterator[None]:
    """The model with the attention that can return its weights."""
    lm.model.set_attn_implementation("eager")
    try:
        yield
    finally:
        lm.model.set_attn_implementation("sdpa")


class Reference:
    """Peaks of given texts; each method is one way. ``ids`` are rows of one length."""

    def __init__(self, lm: LanguageModel, ids: list[list[int]]) -> None:
        self.lm, self.ids = lm, ids
        self.half = len(ids[0]) // 2
        self.batch = collate(ids, 0)
        self.rows = [np.arange(self.half, len(ids[0]), dtype=np.intp) for _ in ids]

    def plain(self) -> None:
        """What a user runs for the logits of a text."""
        with torch.inference_mode():
            self.lm.model(**forward_inputs(self.lm.model, self.batch))

    def plain_last_logits(self) -> None:
        """The same without the logits that no capture needs."""
        with torch.inference_mode():
            self.lm.model(**forward_inputs(self.lm.model, self.batch, logits=False))

    def peaks(self) -> np.ndarray[Any, Any]:
        """headscope's own."""
        found = capture_reference(self.lm, self.ids, self.rows, None, Settings())
        return np.stack([text.peaks for text in found])

    def eager_attentions(self) -> np.ndarray[Any, Any]:
        """All attention matrices of a batch at once; call inside :func:`eager`."""
        with torch.inference_mode():
            inputs = forward_inputs(self.lm.model, self.batch, logits=False)
            output = self.lm.model(**inputs, output_attentions=True)
            found = [layer[:, :, self.half :].argmax(dim=-1) for layer in output.attentions]
            return _on_cpu(torch.stack(found, dim=1).permute(0, 3, 1, 2))

    def token_by_token(self, sentences: int) -> np.ndarray[Any, Any]:
        """One sentence at a time, its target token by token with a cache, reading each token's
        attention weights; call inside :func:`eager`."""
        found = []
        with torch.inference_mode():
            for row in self.batch.input_ids[:sentences].to(self.lm.device):
                output = self.lm.model(input_ids=row[None, : self.half], use_cache=True)
                steps = []
                for at in range(self.half, row.shape[0]):
                    output = self.lm.model(
                        input_ids=row[None, at : at + 1],
                        past_key_values=output.past_key_values,
                        use_cache=True,
                        output_attentions=True,
                    )
                    layers = [layer[0, :, -1].argmax(dim=-1) for layer in output.attentions]
                    steps.append(_on_cpu(torch.stack(layers)))
                found.append(np.stack(steps))
        return np.stack(found)


class Long(Reference):
    """What else is done with one long text; its last `LAST` tokens are what is written of it."""

    LAST = 32

    def peaks_eager(self) -> None:
        """Peaks under the attention that holds whole matrices."""
        with eager(self.lm):
            self.peaks()

    def peaks_shared(self) -> None:
        """Peaks of the ends of two texts that begin alike."""
        ids = [[*self.ids[0][: -self.LAST], *self.ids[0][begin:][: self.LAST]] for begin in (0, 1)]
        rows = [self.rows[0][-self.LAST :]] * 2
        capture_reference(self.lm, ids, rows, None, Settings())

    def losses(self, kind: str = "zero") -> None:
        """Losses of the second half without two heads, and with."""
        heads = HeadSet.of(self.lm.geometry, [Head(1, 0), Head(2, 1)])
        replacement = replacement_of(kind, self.lm, [self.ids[0][:2048]], [64])
        rows = [AnswerRow(tuple(self.ids[0]), self.rows[0])]
        gates = [Gate.identity(self.lm.geometry), heads.removed()]
        for _ in answer_losses(self.lm, rows, gates, [None, replacement]):
            pass

    def losses_mean(self) -> None:
        self.losses("mean")

    def losses_resample(self) -> None:
        self.losses("resample")

    def explorer(self) -> None:
        """A run of the explorer: output, log-probabilities, and what a pinned head looks at."""
        text = " ".join(f"w{i}" for i in self.ids[0][: -self.LAST])
        body = {"input": {"prompt": text}, "gates": {}, "pinned": "1.0", "new_tokens": self.LAST}
        Explorer(self.lm, DEFAULT_TEMPLATE).compute("run", body, lambda event: None, bool)


class Greedy:
    """Greedy decoding of a batch of prompts, with and without capture."""

    def __init__(self, lm: LanguageModel, ids: list[list[int]], new_tokens: int) -> None:
        from transformers import GenerationConfig

        self.lm, self.new_tokens = lm, new_tokens
        texts = [" ".join(f"w{i}" for i in row) for row in ids]
        self.prompts = [Prompt(text, 0, len(text)) for text in texts]
        self.source = [np.ones(len(row), dtype=np.bool_) for row in ids]
        self.batch = collate(ids, 0)
        config: Any = GenerationConfig
        self.settings = config(do_sample=False, max_new_tokens=new_tokens, pad_token_id=0)

    def generate(self) -> np.ndarray[Any, Any]:
        """``generate`` of transformers, as a user runs it; the new tokens."""
        batch = self.batch.to(self.lm.device)
        with torch.inference_mode():
            made = self.lm.model.generate(
                input_ids=batch.input_ids,
                attention_mask=batch.attention_mask,
                generation_config=self.settings,
            )
        return _on_cpu(made[:, batch.input_ids.shape[1] :])

    def generate_own(self) -> np.ndarray[Any, Any]:
        """headscope's generation from texts to texts, without capture."""
        config = GenerateConfig(max_new_tokens=self.new_tokens, batch_tokens=1 << 40)
        return np.array(
            [
                text.output_ids
                for text in self.lm.generate([prompt.text for prompt in self.prompts], config)
            ]
        )

    def capture(self) -> np.ndarray[Any, Any]:
        """headscope's generation with the peaks of every step."""
        settings = Settings(max_new_tokens=self.new_tokens)
        found = capture_greedy(self.lm, self.prompts, self.source, None, settings)
        return np.array([text.output_ids for text in found])


def _on_cpu(values: torch.Tensor) -> np.ndarray[Any, Any]:
    array: np.ndarray[Any, Any] = values.to(torch.int32).cpu().numpy()
    return array
