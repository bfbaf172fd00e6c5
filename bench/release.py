"""Whether heads tell of a damaged checkpoint what the loss of each language does not, as JSON.

    python bench/release.py --out FILE

On the bundled model, with weights changed in memory: ten damages, twenty harmless changes, and
three LoRAs of one short training, of which it is not known what they are. What a change costs is
measured on the same documents before and after: the mean rise of each language's loss, and of the
reference translations' loss in each direction; and on the same documents by heads: how many of each
language's most important heads (LAHIS) lose more than half of their importance, and one minus the
rank correlation of all. Each tells damages from harmless changes by a threshold; AUROC says how
well any could, for several numbers of documents. Beside it what `headscope compare release`
answers by losses, on 200 texts of each language and direction. What FILE has is not measured again.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from machine import machine, tell
from numpy.typing import NDArray
from timing import say

import headscope
from headscope.find.lahis_scores import Lahis, lahis
from headscope.lm import LanguageModel
from headscope.lm.losses import token_losses
from headscope.lm.prompting import encode_answers
from headscope.measure.ranking import auc, correlation, mid_ranks
from headscope.pocket.sample import sample_documents, sample_pairs
from headscope.studies.compare.release import CompareRelease, release

LANGUAGES = ("en", "de", "es", "ru", "tr")
DIRECTIONS = ("en-de", "en-tr", "de-en", "ru-es", "tr-en")
#: Documents and sentence pairs of each language and direction.
SIZES = (5, 20, 60)
#: Heads that a removal takes, and documents they are found on; heads that are said to be important.
REMOVED, FOUND_ON, IMPORTANT = 4, 60, 8
Change = Callable[[torch.nn.Module], None]


def changes(lm: LanguageModel) -> Iterator[tuple[str, bool | None, Change]]:
    """Name, whether it is a damage (None: not known), and what it does to the weights in place."""
    found = {code: lahis(lm, sample_documents(code, "dev", FOUND_ON, 0)) for code in LANGUAGES}
    every = np.mean([scores.values for scores in found.values()], axis=0)
    for code, scores in found.items():
        # Beside those that all languages have.
        best = np.argsort(every - scores.values, axis=None)[:REMOVED]
        heads = [divmod(int(at), scores.values.shape[1]) for at in best]
        yield f"heads of {code} removed", True, lambda model, heads=heads: removed(lm, model, heads)
    for code in ("de", "ru", "tr"):
        weak, strong = (partial(trained, lm, code=code, to=to) for to in ((1e-3, 1), (5e-3, 3)))
        yield f"LoRA trained on {code} for a short time", None, weak
        yield f"LoRA trained on {code}", True, strong
    for layer in (1, 4):
        yield f"layer {layer} in 2 bits", True, lambda model, at=layer: rounded(model, 2, at)
    yield "bfloat16", False, lambda model: cast(model, torch.bfloat16)
    yield "float16", False, lambda model: cast(model, torch.float16)
    yield "8 bits", False, lambda model: rounded(model, 8)
    for layer in (1, 4):
        yield f"layer {layer} in 6 bits", False, lambda model, at=layer: rounded(model, 6, at)
    for number in range(3):
        yield f"shards in order {number}", False, lambda model, seed=number: reordered(model, seed)
    for number in range(12):
        yield f"LoRA near zero {number}", False, lambda model, seed=number: near_zero(model, seed)


def linears(model: torch.nn.Module) -> list[tuple[str, torch.nn.Linear]]:
    return [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and "lm_head" not in name
    ]


def removed(lm: LanguageModel, model: torch.nn.Module, heads: list[tuple[int, int]]) -> None:
    names = {module: name for name, module in lm.model.named_modules()}
    for layer, head in heads:
        site = lm.sites[layer]
        start = head * site.head_width
        weight = model.get_submodule(names[site.projection]).weight
        weight.data[:, start : start + site.head_width] = 0


def trained(lm: LanguageModel, model: torch.nn.Module, code: str, to: tuple[float, int]) -> None:
    """Low-rank changes of all projections, trained on one language's documents, added; `to` are the
    learning rate, and how often the documents are read."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    targets = [name for name, _ in linears(model)]
    config = LoraConfig(r=8, lora_alpha=16, target_modules=targets)
    adapted = get_peft_model(copy.deepcopy(model), config).train()
    rate, epochs = to
    optimizer = torch.optim.AdamW([p for p in adapted.parameters() if p.requires_grad], lr=rate)
    documents = sample_documents(code, "train", 320, 0).documents
    texts = [document.text for document in documents] * epochs
    for start in range(0, len(texts), 16):
        batch = lm.collate([lm.encode(text) for text in texts[start : start + 16]])
        labels = batch.input_ids.masked_fill(batch.attention_mask == 0, -100)
        loss = adapted(
            input_ids=batch.input_ids, attention_mask=batch.attention_mask, labels=labels
        ).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    merged = adapted.merge_and_unload()
    model.load_state_dict(merged.state_dict())


def rounded(model: torch.nn.Module, bits: int, layer: int | None = None) -> None:
    """Weights of each row to 2^bits even steps between its ends."""
    for name, module in linears(model):
        if layer is None or f".{layer}." in name:
            low, high = module.weight.data.aminmax(dim=1, keepdim=True)
            step = (high - low) / (2**bits - 1)
            module.weight.data = ((module.weight.data - low) / step).round() * step + low


def cast(model: torch.nn.Module, dtype: torch.dtype) -> None:
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype).to(parameter.dtype)


def reordered(model: torch.nn.Module, seed: int) -> None:
    """Saved in shards, and read from them in another order."""
    state = list(model.state_dict().items())
    np.random.default_rng(seed).shuffle(state)
    model.load_state_dict(dict(state))


def near_zero(model: torch.nn.Module, seed: int) -> None:
    """Low-rank changes a thousandth as large as the weights."""
    rng = torch.Generator().manual_seed(seed)
    for _, module in linears(model):
        out, into = module.weight.shape
        change = torch.randn(out, 8, generator=rng) @ torch.randn(8, into, generator=rng)
        module.weight.data += change * (1e-3 * module.weight.data.norm() / change.norm())


def measured(lm: LanguageModel, size: int) -> dict[str, NDArray[Any]]:
    """Losses by document and by pair (languages or directions, size), and LAHIS importances."""
    texts, pairs, heads = [], [], []
    for code in LANGUAGES:
        file = sample_documents(code, "test", size, 0)
        rows = [lm.encode(document.text) for document in file.documents]
        texts.append([float(losses.mean()) for losses in token_losses(lm, rows)])
        heads.append(lahis(lm, file, Lahis(bootstrap_draws=1)).values)
    for direction in DIRECTIONS:
        file = sample_pairs(direction, "test", size, 0)
        source, target = direction.split("-")
        # As the bundled model was trained to translate.
        prompts = [f"{source}: {pair.source}\n{target}:" for pair in file.pairs]
        answered = encode_answers(lm, prompts, [pair.target for pair in file.pairs], False)
        losses = token_losses(lm, [row.ids for row in answered], [row.start for row in answered])
        pairs.append([float(own.mean()) for own in losses])
    return {"texts": np.array(texts), "pairs": np.array(pairs), "heads": np.array(heads)}


def told_by(before: dict[str, Any], after: dict[str, Any]) -> dict[str, float]:
    """What each way of looking says of a change; the higher the worse."""
    lost, apart = 0, 0.0
    for old, new in zip(before["heads"], after["heads"], strict=True):
        best = np.argsort(-old, axis=None)[:IMPORTANT]
        lost += int((new.ravel()[best] < old.ravel()[best] / 2).sum())
        ranks = [mid_ranks(values.ravel())[None] for values in (old, new)]
        apart = max(apart, 1 - float(correlation(*ranks)[0]))
    rises = {name: after[name] - before[name] for name in ("texts", "pairs")}
    return {
        **{f"loss of {name}": float(rise.mean(axis=1).max()) for name, rise in rises.items()},
        "least z of texts": float(
            (rises["texts"].mean(1) / (rises["texts"].std(1, ddof=1) + 1e-9)).max()
            * np.sqrt(rises["texts"].shape[1])
        ),
        "important heads lost": float(lost),
        "ranks of heads apart": apart,
    }


def answer(lm: LanguageModel, name: str) -> dict[str, Any]:
    """What `compare release` says of the changed model, saved in one file or several."""
    with TemporaryDirectory() as place:
        folder = Path(place, "model")
        size = "2MB" if "shards" in name else "1GB"
        lm.model.save_pretrained(folder, max_shard_size=size)
        lm.tokenizer.save_pretrained(folder)
        asked = CompareRelease(models=("pocket", str(folder)), write=False)
        result = release(asked, Path(place, "run"))
    told = {kind: len(result.answered(kind)) for kind in ("lost", "cannot tell", "kept")}
    lost = sorted({f"{change.part} {change.statistic}" for change in result.answered("lost")})
    return told | {"what is lost": lost, "same weights": result.same}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    before, lm = machine("cpu"), headscope.load("pocket")
    made = list(changes(lm))
    state = copy.deepcopy(lm.model.state_dict())
    answers: dict[str, Any] = {}
    rows: dict[int, list[dict[str, Any]]] = {size: [] for size in SIZES}
    if given.out and given.out.exists():
        kept = json.loads(given.out.read_text())
        answers, rows = kept["answers"], {int(size): own for size, own in kept["changes"].items()}
    plain = {size: measured(lm, size) for size in SIZES}
    for name, damage, change in made:
        change(lm.model)
        for size in SIZES:
            if name not in {row["change"] for row in rows[size]}:
                row = told_by(plain[size], measured(lm, size))
                rows[size].append({"change": name, "damage": damage, **row})
        if name not in answers:
            answers[name] = answer(lm, name)
            say(f"{name}: {answers[name]}")
        lm.model.load_state_dict(state)
    ways = [key for key in rows[SIZES[0]][0] if key not in ("change", "damage")]
    tell(
        {
            "command": "bench/release.py",
            "machine": before,
            "auroc": {
                size: {
                    way: auc(
                        [row[way] for row in own if row["damage"] is True],
                        [row[way] for row in own if row["damage"] is False],
                    )
                    for way in ways
                }
                for size, own in rows.items()
            },
            "answers": answers,
            "changes": rows,
        },
        given.out,
    )


if __name__ == "__main__":
    main()
