"""Scores, a removal and LAHIS of a real model beside plain transformers, as JSON.

    python bench/oracle.py --model FILE.gguf --data PAIRS.tsv --documents TEXTS.txt \\
        --out bench/results/oracle.json

The right half is written from the papers' definitions and calls nothing of headscope: weights and
tokenizer from transformers' own GGUF reader, whole attention matrices from its eager kernel, heads
removed by a hook on `o_proj`, gradients by autograd through the same hook. It also counts
translation scores by words, as some annotators link: a word is a hit if its first token is. Of
--head, which says in which language the model answers, it compares the attention to the language's
name, and what is written without the head and with its output before Spanish answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from machine import machine, tell
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope
from headscope.heads import Head, HeadSet
from headscope.lm.replacement import Mean, head_means
from headscope.measure.identify import identify

PROMPT = "Translate this sentence from English to {language}\nSentence: {source}\nAnswer:"
K = 20
#: Tokens of a text that is written.
WRITTEN = 24


class Asked(NamedTuple):
    """Token ids (1, n), the characters of each, the text, and where its answer begins."""

    ids: torch.Tensor
    spans: list[tuple[int, int]]
    text: str
    begin: int


class Plain:
    """A chat model of transformers alone, whose heads are gated before `o_proj`."""

    def __init__(self, file: Path) -> None:
        where: dict[str, Any] = {"gguf_file": file.name}
        self.tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **where)
        self.model = AutoModelForCausalLM.from_pretrained(
            str(file.parent), dtype=torch.float32, attn_implementation="eager", **where
        ).eval()
        self.model.requires_grad_(False)
        config = self.model.config
        self.shape = (config.num_hidden_layers, config.num_attention_heads)

    def asked(self, source: str, target: str = "", language: str = "Spanish") -> Asked:
        """The question and its answer as tokens."""
        turn = [{"role": "user", "content": PROMPT.format(source=source, language=language)}]
        prompt = self.tokenizer.apply_chat_template(
            turn, tokenize=False, add_generation_prompt=True
        )
        text = prompt + target
        read = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return Asked(torch.tensor([read["input_ids"]]), read["offset_mapping"], text, len(prompt))

    @contextmanager
    def gated(self, gate: torch.Tensor, instead: Any = 0.0) -> Iterator[None]:
        """What every head gives is multiplied by its number of `gate` (layers, heads), and what
        stands `instead` (a head's output, or zero) by the rest."""

        def hook(layer: int) -> Any:
            def before(module: Any, inputs: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
                given, own = inputs[0].unflatten(-1, (self.shape[1], -1)), gate[layer, :, None]
                return ((given * own + instead * (1 - own)).flatten(-2),)

            return before

        handles = [
            layer.self_attn.o_proj.register_forward_pre_hook(hook(at))
            for at, layer in enumerate(self.model.model.layers)
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def output_of(self, head: tuple[int, int], ids: torch.Tensor) -> torch.Tensor:
        """What a head gives at the last token, before `o_proj`."""
        seen: list[torch.Tensor] = []
        projection = self.model.model.layers[head[0]].self_attn.o_proj
        handle = projection.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
        self.model(ids, use_cache=False)
        handle.remove()
        return seen[0][0, -1].unflatten(-1, (self.shape[1], -1))[head[1]]

    def written(self, ids: torch.Tensor) -> str:
        """What is written greedily."""
        made = self.model.generate(ids, max_new_tokens=WRITTEN, do_sample=False)
        return str(self.tokenizer.decode(made[0, ids.shape[1] :], skip_special_tokens=True))

    def losses(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of every token but the first."""
        logits = self.model(ids, use_cache=False).logits[0, :-1]
        return torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="none")


def words_of(text: str) -> list[tuple[int, int]]:
    """The characters of the pieces between spaces."""
    spans, at = [], 0
    for piece in text.split():
        at = text.index(piece, at)
        spans.append((at, at + len(piece)))
        at += len(piece)
    return spans


def belongs(text: str, token: tuple[int, int], word: tuple[int, int]) -> bool:
    """Whether a token's characters, white space before them aside, meet a word's."""
    piece = text[token[0] : token[1]]
    start = token[0] + len(piece) - len(piece.lstrip())
    return start < min(token[1], word[1]) and max(start, word[0]) < min(token[1], word[1])


def translation_scores(plain: Plain, rows: list[list[str]]) -> tuple[np.ndarray, np.ndarray]:
    """Mean shares of hits by tokens and by words, (layers, heads) each."""
    by_token, by_word = [], []
    for source, target, links in rows:
        ids, spans, text, begin = plain.asked(source, target)
        at = text.index("Sentence: ") + len("Sentence: ")
        source_words = [(at + a, at + b) for a, b in words_of(source)]
        target_words = [(begin + a, begin + b) for a, b in words_of(target)]
        linked: dict[int, set[int]] = {}
        for link in links.split():
            i, j = map(int, link.split("-"))
            linked.setdefault(j, set()).add(i)
        attention = plain.model(ids, output_attentions=True, use_cache=False).attentions
        # (layers, heads, queries, keys) to the key with the largest weight.
        peaks = torch.stack([layer[0] for layer in attention]).argmax(-1).numpy()
        hits, firsts = [], []
        for j, sources in sorted(linked.items()):
            keys = {
                key
                for i in sources
                for key, span in enumerate(spans)
                if belongs(text, span, source_words[i])
            }
            tokens = [t for t, span in enumerate(spans) if belongs(text, span, target_words[j])]
            found = [np.isin(peaks[:, :, token - 1], list(keys)) for token in tokens]
            hits += [(token, hit) for token, hit in zip(tokens, found, strict=True)]
            firsts += found[:1]
        # A token of two linked words is a hit if it is one of either, and counts once.
        merged: dict[int, np.ndarray] = {}
        for token, hit in hits:
            merged[token] = merged.get(token, False) | hit
        if merged:
            by_token.append(np.mean(list(merged.values()), axis=0))
            by_word.append(np.mean(firsts, axis=0))
    return np.mean(by_token, axis=0), np.mean(by_word, axis=0)


def reference_losses(plain: Plain, rows: list[list[str]], gate: torch.Tensor) -> list[float]:
    """Mean loss of each reference's tokens under a gate."""
    with torch.no_grad(), plain.gated(gate):
        means = []
        for source, target, _ in rows:
            ids, spans, text, begin = plain.asked(source, target)
            # White space alone belongs to no word and is left out.
            answer = [
                token
                for token, (start, end) in enumerate(spans)
                if end > begin and text[start:end].strip()
            ]
            means.append(float(plain.losses(ids)[[token - 1 for token in answer]].mean()))
    return means


def importance(plain: Plain, texts: list[str]) -> np.ndarray:
    """LAHIS of every head: mean |dL/dg| times the share of documents where dL/dg < 0."""
    slopes = []
    for text in texts:
        gate = torch.ones(plain.shape, requires_grad=True)
        ids = torch.tensor([plain.tokenizer(text)["input_ids"]])
        with plain.gated(gate):
            plain.losses(ids).mean().backward()
        slopes.append(gate.grad.numpy())
    return np.abs(slopes).mean(0) * (np.array(slopes) < 0).mean(0)


@torch.no_grad()
def language_head(plain: Plain, lm: Any, name: str, sources: list[str]) -> dict[str, Any]:
    """The head that says the language, asked for German: by both ways its attention to the name,
    and the texts that are alike without it and with its mean output before Spanish answers."""
    head = Head.parse(name)
    layer, number, language = head.layer, head.head, "German"
    german, spanish = (
        [plain.asked(source, language=target_language) for source in sources]
        for target_language in (language, "Spanish")
    )
    mean = torch.stack([plain.output_of((layer, number), text.ids) for text in spanish]).mean(0)
    # An answer of one token: the last one of the prompt, at which the first word is chosen.
    rows = [text.ids[0].tolist() for text in spanish]
    means = Mean(np.stack([head_means(lm, rows, [len(row) - 1 for row in rows])[-1]] * 3))
    gate = torch.ones(plain.shape)
    gate[layer, number] = 0
    seen: dict[str, list[float]] = {"headscope": [], "oracle": []}
    texts: dict[str, list[tuple[str, str]]] = {"without": [], "Spanish": []}
    for asked in german:
        begin = asked.text.index(f"to {language}") + len("to")
        place = next(at for at, span in enumerate(asked.spans) if span[0] == begin)
        attention = plain.model(asked.ids, output_attentions=True, use_cache=False).attentions
        seen["oracle"].append(float(attention[layer][0, number, -1, place]))
        seen["headscope"].append(float(lm.attention(asked.text)[head][-1, place]))
        for kind, instead, replacement in (("without", 0.0, None), ("Spanish", mean, means)):
            with plain.gated(gate, instead):
                theirs = plain.written(asked.ids)
            with lm.gated(HeadSet.of(lm.geometry, [head]).removed(), replacement):
                made = lm.generate([asked.text], max_new_tokens=WRITTEN, special=False)[0].text
            texts[kind].append((made, theirs))
    return {
        "head": name,
        "sentences": len(sources),
        "attention to the name": {way: float(np.mean(values)) for way, values in seen.items()},
        "largest difference": float(np.abs(np.subtract(*seen.values())).max()),
        **{
            f"texts alike, {kind}": sum(ours.strip() == theirs.strip() for ours, theirs in pairs)
            for kind, pairs in texts.items()
        },
        "languages": {
            kind: identify([theirs for _, theirs in pairs]) for kind, pairs in texts.items()
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="pairs with links, en-es")
    parser.add_argument("--documents", type=Path, required=True, help="one a line")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--head", help="that says the language")
    parser.add_argument("--runs", type=Path, default=Path("runs/bench-oracle"))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = [line.split("\t") for line in given.data.read_text("utf-8").splitlines()[1:]]
    texts = given.documents.read_text("utf-8").splitlines()
    tested = rows[given.pairs : given.pairs + 10]
    plain = Plain(given.model)
    with torch.no_grad():
        by_token, by_word = translation_scores(plain, rows[: given.pairs])
    result: dict[str, Any] = {"command": "bench/oracle.py", "machine": machine("cpu")}
    lm = headscope.load(str(given.model), dtype="float32")
    given.runs.mkdir(parents=True, exist_ok=True)
    held_out = given.runs / "held-out.tsv"
    header = "source\ttarget\tlinks\n"
    held_out.write_text(header + "\n".join("\t".join(row) for row in tested) + "\n", "utf-8")
    scores = headscope.find.translation_score(
        lm, given.data, pair="en-es", limit=given.pairs, out=given.runs / "scores"
    )
    ours = np.zeros(plain.shape)
    for row in scores.heads:
        ours[row.layer, row.head] = row.score
    counts = {"translation score": ours, "oracle": by_token, "oracle by words": by_word}
    result["translation-score"] = {
        "pairs": given.pairs,
        "heads": int(np.prod(plain.shape)),
        "largest difference": float(np.abs(ours - by_token).max()),
        "heads that differ": int((np.abs(ours - by_token) > 1e-9).sum()),
        "above 0.1": {name: int((values > 0.1).sum()) for name, values in counts.items()},
    }
    order = np.argsort(-ours.ravel(), kind="stable")[:K]
    removed = torch.ones(plain.shape)
    removed.view(-1)[torch.from_numpy(order.copy())] = 0
    heads = ",".join(f"{at // plain.shape[1]}.{at % plain.shape[1]}" for at in order)
    loss = headscope.verify.removal(
        lm, held_out, heads=heads, pair="en-es", measure="loss", draws=1, out=given.runs / "loss"
    ).evidence
    whole = reference_losses(plain, tested, torch.ones(plain.shape))
    without = reference_losses(plain, tested, removed)
    result["removal"] = {"pairs": len(tested), "k": K}
    kinds = {row.id: row.kind for row in loss.conditions}
    for condition, means in (("original", whole), ("selected", without)):
        (level,) = (
            row.value
            for row in loss.levels
            if (kinds[row.condition], row.statistic) == (condition, "nll")
        )
        result["removal"][condition] = {"headscope": level, "oracle": float(np.mean(means))}
    lahis = headscope.find.lahis(lm, f"en={given.documents}", limit=5, out=given.runs / "lahis")
    expected = importance(plain, texts[:5])
    own = np.zeros(plain.shape)
    for row in lahis.languages["en"].heads:
        own[row.layer, row.head] = row.score
    result["lahis"] = {
        "documents": 5,
        "largest": float(expected.max()),
        "largest difference": float(np.abs(own - expected).max()),
    }
    if given.head:
        sources = [source for source, *_ in tested]
        result["language head"] = language_head(plain, lm, given.head, sources)
    tell(result, given.out)


if __name__ == "__main__":
    main()
