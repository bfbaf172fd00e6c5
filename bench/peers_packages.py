"""What other packages do of the jobs of `peers.py`, in an environment of their own.

    PYTHON bench/peers_packages.py PACKAGE MODEL

PYTHON is that of an environment that has the package and not headscope. Every line on stdin is a
file (npz) with the inputs of a job, each answered by a line of JSON on stdout: seconds of this
process and of the wall, and the outcome. Also holds what those in `peers.py` share with them.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

Rows = list[Any]


class Texts:
    """Rows of tokens in batches.

    Attributes:
        ids: tokens of each row.
        queries: places of the tokens that are looked at, of each row: of those whose attention is
            wanted, or those that predict a token whose loss is.
        batches: numbers of the rows that are read together.
    """

    def __init__(self, ids: Rows, queries: Rows, batches: Rows) -> None:
        self.ids, self.queries, self.batches = ids, queries, batches

    def padded(self) -> Iterator[tuple[list[int], dict[str, torch.Tensor]]]:
        """Each batch with its arguments of ``forward``, padded on the left."""
        for rows in self.batches:
            width = max(len(self.ids[row]) for row in rows)
            shape = len(rows), width
            ids, mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
            for at, row in enumerate(rows):
                ids[at, width - len(self.ids[row]) :] = torch.as_tensor(self.ids[row])
                mask[at, width - len(self.ids[row]) :] = 1
            places = (mask.cumsum(dim=1) - 1).clamp_(min=0)
            yield rows, {"input_ids": ids, "attention_mask": mask, "position_ids": places}

    def peaks(self, largest: Callable[[dict[str, torch.Tensor]], torch.Tensor]) -> Rows:
        """Of every row int32 (queries, L, H), where ``largest`` gives int (B, L, H, T): the key
        with the largest weight of each query."""
        found: Rows = [None] * len(self.ids)
        for rows, inputs in self.padded():
            keys = largest(inputs).cpu().numpy()
            width = keys.shape[-1]
            for at, row in enumerate(rows):
                padding = width - len(self.ids[row])
                own = keys[at][:, :, np.asarray(self.queries[row]) + padding] - padding
                found[row] = own.transpose(2, 0, 1).astype(np.int32)
        return found

    def losses(self, logits: Callable[[dict[str, torch.Tensor], Any], torch.Tensor]) -> Any:
        """Of all rows, one after another, the losses of the tokens behind the queries; ``logits``
        gets a batch and the places (rows, columns) of its queries, for (n, V)."""
        found: Rows = [None] * len(self.ids)
        for rows, inputs in self.padded():
            width = inputs["input_ids"].shape[1]
            counts = [len(self.queries[row]) for row in rows]
            at = np.repeat(np.arange(len(rows)), counts)
            columns = np.concatenate(
                [np.asarray(self.queries[row]) + width - len(self.ids[row]) for row in rows]
            )
            targets = inputs["input_ids"][at, columns + 1]
            made = logits(inputs, (at, columns))
            flat = torch.nn.functional.cross_entropy(
                made.float(), targets.to(made.device), reduction="none"
            )
            for row, part in zip(rows, flat.split(counts), strict=True):
                found[row] = part.cpu().numpy()
        return np.concatenate(found)


def scores(peaks: Sequence[Any], tables: Sequence[Any]) -> Any:
    """Translation Scores (L, H): of each row the share of the target tokens with a link whose peak
    is a key of the table, bool (queries, T); the mean over rows."""
    shares = []
    for keys, table in zip(peaks, tables, strict=True):
        linked = np.asarray(table).any(axis=1)
        hits = np.take_along_axis(
            np.asarray(table), keys.reshape(len(keys), -1).astype(np.int64), axis=1
        )
        shares.append(hits[linked].mean(axis=0).reshape(keys.shape[1:]))
    return np.mean(shares, axis=0)


def pack(rows: Rows) -> Any:
    """Rows of unlike lengths as one array for a file."""
    packed = np.empty(len(rows), dtype=object)
    for at, row in enumerate(rows):  # at once, rows of one length would be a matrix
        packed[at] = row
    return packed


class NNsight:
    """Attention matrices by tracing, which needs the attention that returns them."""

    def __init__(self, model: str) -> None:
        from nnsight import LanguageModel

        self.model = LanguageModel(
            model, attn_implementation="eager", dtype=torch.float32, dispatch=True
        )

    def largest(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        from nnsight import save

        with torch.inference_mode(), self.model.trace(inputs):
            layers = self.model.model.layers
            found = save([layer.self_attn.output[1].argmax(dim=-1) for layer in layers])
        return torch.stack(found, dim=1)

    def logits(self, inputs: dict[str, torch.Tensor], columns: dict[int, Any]) -> torch.Tensor:
        from nnsight import save

        with torch.inference_mode(), self.model.trace(inputs):
            for layer, layer_columns in columns.items():
                self.model.model.layers[layer].self_attn.o_proj.input[..., layer_columns] = 0
            found = save(self.model.lm_head.output)
        return found


class TransformerLens:
    """Attention matrices from hooks on patterns; heads removed by hooks on their outputs."""

    def __init__(self, model: str) -> None:
        from transformer_lens.model_bridge import TransformerBridge

        self.model = TransformerBridge.boot_transformers(model, device="cpu", dtype=torch.float32)

    def largest(self, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        found: list[torch.Tensor] = []

        def keep(pattern: torch.Tensor, hook: Any) -> None:
            found.append(pattern.argmax(dim=-1))

        with torch.inference_mode():
            self.model.run_with_hooks(
                inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                position_ids=inputs["position_ids"],
                return_type="logits",
                fwd_hooks=[
                    (f"blocks.{at}.attn.hook_pattern", keep)
                    for at in range(self.model.cfg.n_layers)
                ],
            )
        return torch.stack(found, dim=1)

    def logits(self, inputs: dict[str, torch.Tensor], columns: dict[int, Any]) -> torch.Tensor:
        def remove(own: Any) -> Callable[..., torch.Tensor]:
            def zero(z: torch.Tensor, hook: Any) -> torch.Tensor:
                z = z.clone()
                z.flatten(2)[..., own] = 0
                return z

            return zero

        with torch.inference_mode():
            found: torch.Tensor = self.model.run_with_hooks(
                inputs["input_ids"],
                attention_mask=inputs["attention_mask"],
                position_ids=inputs["position_ids"],
                return_type="logits",
                fwd_hooks=[
                    (f"blocks.{at}.attn.hook_z", remove(layer_columns))
                    for at, layer_columns in columns.items()
                ],
            )
        return found


class CausalHeadGating:
    """A step of the package's trainer, which computes in bfloat16 by autocast."""

    def __init__(self, model: str) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        self.model.requires_grad_(False)
        self.model.eval()

    def step(self, ids: Rows, starts: Sequence[int]) -> tuple[Callable[[], Any], float]:
        """A call that trains for a step, and the loss of the original model in float32."""
        from causal_head_gating import CHGTrainer, MaskedSequenceDataset

        width = max(map(len, ids))
        tokens = torch.zeros(len(ids), width, dtype=torch.long)
        learned = torch.zeros(len(ids), width, dtype=torch.bool)
        for row, (row_ids, start) in enumerate(zip(ids, starts, strict=True)):
            tokens[row, : len(row_ids)] = torch.as_tensor(row_ids)
            learned[row, start : len(row_ids)] = True
        # No column holds padding alone, so the number that stands for padding never matters.
        data = MaskedSequenceDataset(pad_token_id=-1, input_ids=tokens, loss_masks=learned)
        trainer = CHGTrainer(self.model, data, batch_size=len(ids))
        ones = torch.ones(trainer.masked_model.mask_shape)
        with torch.no_grad():
            likely = trainer.masked_model.get_logp(ones, tokens, learned, agg="mean")
        return lambda: list(trainer.fit_stage("none", 1, show_progress=False)), -float(
            likely.mean()
        )


PACKAGES = {
    "nnsight": NNsight,
    "transformer-lens": TransformerLens,
    "nam-causal-head-gating": CausalHeadGating,
}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # what packages print is no answer
    torch.set_num_threads(1)
    peer: Any = PACKAGES[sys.argv[1]](sys.argv[2])
    print("{}", file=answers, flush=True)
    for line in sys.stdin:
        given = np.load(line.strip(), allow_pickle=True)
        results = {}
        if "starts" in given:
            work, results["loss"] = peer.step(list(given["ids"]), given["starts"].tolist())
        else:
            work = partial(of_texts, peer, Texts(*map(list, map(given.get, TEXTS))), given)
        process, wall = time.process_time(), time.perf_counter()
        made = work()
        results |= {"process": time.process_time() - process, "wall": time.perf_counter() - wall}
        if "starts" not in given:
            np.savez(line.strip() + ".made.npz", **made)
        print(json.dumps(results), file=answers, flush=True)


TEXTS = ("ids", "queries", "batches")


def of_texts(peer: Any, texts: Texts, given: Any) -> dict[str, Any]:
    """Losses with columns of W_O's input removed, by condition; or peaks and their scores."""
    if "columns" in given:
        by_condition = [
            texts.losses(lambda inputs, at, columns=columns: peer.logits(inputs, columns)[at])
            for columns in given["columns"]
        ]
        return {"losses": np.stack(by_condition)}
    peaks = texts.peaks(peer.largest)
    return {"peaks": pack(peaks), "scores": scores(peaks, given["tables"])}


if __name__ == "__main__":
    main()
