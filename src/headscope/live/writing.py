"""Outputs as they are written: every token as it comes, and an end to it at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headscope.lm.batching import Batch
from headscope.lm.generation import GenerateConfig, Generation
from headscope.lm.hooks import hooked
from headscope.lm.owners import leaves_numbers

if TYPE_CHECKING:
    from headscope.heads import Gate
    from headscope.lm import LanguageModel

#: Whether what is computed is no longer wanted.
Stop = Callable[[], bool]
#: Called with the number of an output and a token that is new in it.
OnToken = Callable[[int, int], None]
#: Candidates that are kept of every token.
CANDIDATES = 5


class Stopped(Exception):
    """What was being computed is no longer wanted."""


@dataclass(frozen=True)
class Written:
    """An output, and what else might have stood there.

    `candidates` are for each of its tokens the likeliest ones at that place, likeliest first, with
    their probabilities under the gate.
    """

    output: Generation
    candidates: tuple[tuple[tuple[int, float], ...], ...]


@contextlib.contextmanager
def stoppable(lm: LanguageModel, stop: Stop) -> Iterator[Callable[..., None]]:
    """Passes of a model end before any of its layers once ``stop`` says so, by `Stopped`; so does
    what calls the function that is given."""

    @leaves_numbers
    def check(*_: Any) -> None:
        if stop():
            raise Stopped

    check()
    hooks = (layer.register_forward_pre_hook(check) for layer in lm.decoder_layers)
    with hooked(lm.model, hooks):
        yield check


def written(
    lm: LanguageModel,
    prompt: str,
    special: bool,
    gates: Sequence[Gate],
    new_tokens: int,
    on_token: OnToken,
) -> list[Written]:
    """What the model writes from one prompt under each of several gates, all at once.

    The outputs are those of `LanguageModel.generate`; ``on_token`` is called with each of their
    tokens in its turn, the one that ends a text excepted.
    """
    outputs: list[list[int]] = [[] for _ in gates]
    candidates: list[list[tuple[tuple[int, float], ...]]] = [[] for _ in gates]
    counts = [0 for _ in gates]

    def add(number: int, token: int, likeliest: Iterable[tuple[int, float]]) -> None:
        ids = outputs[number]
        if len(ids) >= new_tokens or lm.stop_table.cut(ids, special)[1] != "length":
            return  # this output has ended; the batch goes on for others
        ids.append(token)
        candidates[number].append(tuple(likeliest))
        # An output that begins again, because memory ran out, has its first tokens again.
        if counts[number] < len(ids) == lm.stop_table.cut(ids, special)[0]:
            counts[number] = len(ids)
            on_token(number, token)

    @contextlib.contextmanager
    def observe(rows: list[int], batch: Batch, begins: bool) -> Iterator[None]:
        if begins:
            for number in rows:
                outputs[number].clear()
                candidates[number].clear()

        def keep(_: Any, args: tuple[Any, ...], output: Any) -> None:
            logits = output.logits[:, -1]
            top = logits.float().softmax(-1).topk(min(CANDIDATES, logits.shape[-1]))
            written = zip(rows, logits.argmax(-1), top.indices, top.values, strict=True)
            for number, token, ids, values in written:
                add(number, int(token), zip(ids.tolist(), values.tolist(), strict=True))

        with hooked(lm.model, map(lm.model.register_forward_hook, [keep])):
            yield

    how = GenerateConfig(new_tokens, stop_at_newline=special)
    made = lm.generate([prompt] * len(gates), how, None, observe, special, gates=gates)
    return [
        Written(output, tuple(known[: len(output.output_ids)]))
        for output, known in zip(made, candidates, strict=True)
    ]
