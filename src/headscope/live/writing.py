"""Outputs as they are written: every token as it comes, and an end to it at any moment."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
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


class Stopped(Exception):
    """What was being computed is no longer wanted."""


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
) -> list[Generation]:
    """What the model writes from one prompt under each of several gates, all at once.

    The outputs are those of `LanguageModel.generate`; ``on_token`` is called with each of their
    tokens in its turn, the one that ends a text excepted.
    """
    outputs: list[list[int]] = [[] for _ in gates]
    counts = [0 for _ in gates]

    def add(number: int, token: int) -> None:
        ids = outputs[number]
        if len(ids) >= new_tokens or lm.stop_table.cut(ids, special)[1] != "length":
            return  # this output has ended; the batch goes on for others
        ids.append(token)
        # An output that begins again, because memory ran out, has its first tokens again.
        if counts[number] < len(ids) == lm.stop_table.cut(ids, special)[0]:
            counts[number] = len(ids)
            on_token(number, token)

    @contextlib.contextmanager
    def observe(rows: list[int], batch: Batch, begins: bool) -> Iterator[None]:
        if begins:
            for number in rows:
                outputs[number].clear()

        def keep(_: Any, args: tuple[Any, ...], output: Any) -> None:
            for number, token in zip(rows, output.logits[:, -1].argmax(-1).tolist(), strict=True):
                add(number, token)

        with hooked(lm.model, map(lm.model.register_forward_hook, [keep])):
            yield

    how = GenerateConfig(new_tokens, stop_at_newline=special)
    return lm.generate([prompt] * len(gates), how, None, observe, special, gates=gates)
