"""Applying gates to a model of `transformers`, for a block or until they are removed.

Only hooks are put on the model, which keeps its class, weights, configuration and methods; so
whatever takes the model takes the adapted one: `generate` with its cache, sampling and beam search,
and a `pipeline`::

    with adapted(model, "runs/mask") as model:
        writer = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
        writer("Once upon a time")

A pipeline that outlives a block takes a model with gates attached::

    attached = attach(model, "runs/mask")
    writer = transformers.pipeline("text-generation", model=model, tokenizer=tokenizer)
    ...
    attached.remove()

Saved while it is adapted, a model is written as it was: gates are no weights. For a checkpoint that
holds them there is `headscope use export`.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterator
from os import PathLike
from typing import TYPE_CHECKING, Any

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, HeadSet
from headscope.heads.adaptation import Adaptation, read_adaptation

if TYPE_CHECKING:
    import torch

    from headscope.lm.geometry import AttentionSite
    from headscope.lm.model import LanguageModel

#: Where the heads of models are that have been adapted before: looking for them again would find
#: other ones while gates are on them.
_known: weakref.WeakKeyDictionary[torch.nn.Module, tuple[Geometry, tuple[AttentionSite, ...]]] = (
    weakref.WeakKeyDictionary()
)


class Attached:
    """Gates on a model, until `remove` is called or, in a `with` statement, the block ends.

    Attributes:
        model: the `transformers` model they are on.
        adaptation: what is applied.
    """

    def __init__(self, lm: LanguageModel, adaptation: Adaptation) -> None:
        from headscope.lm.owners import attaching

        self.model = lm.model
        self.adaptation = adaptation
        # No thread owns the model for gates that are part of it until they are removed.
        with attaching(lm.model), contextlib.ExitStack() as stack:
            stack.enter_context(lm.adapted(adaptation))
            # The model holds on to this: an end of the context, as of one that nobody refers to
            # any more, would take the gates off without a word.
            stack.callback(self.model.register_forward_pre_hook(_holding(self)).remove)
            self._held = stack.pop_all()

    def remove(self) -> None:
        """Take the gates off the model; nothing happens if they are off already.

        Of several gates on one model any may be removed first.
        """
        from headscope.lm.owners import owned

        with owned(self.model):
            self._held.close()

    def __enter__(self) -> Any:
        return self.model

    def __exit__(self, *_: object) -> None:
        self.remove()


def _holding(attached: Attached) -> Callable[..., None]:
    """A hook that does nothing but keep something alive; a copy of the model shares it."""

    def hook(*_: object, kept: Attached = attached) -> None:
        pass

    return hook


def attach(
    model: Any,
    what: Adaptation | Gate | str | PathLike[str],
    tokenizer: Any = None,
    *,
    check: bool = True,
) -> Attached:
    """Put gates on a model until they are removed, as for a pipeline that outlives a block; passes
    of all threads are gated then.

    Args:
        model: a decoder of `transformers`, an adapter model around one, a pipeline that holds one,
            or a `LanguageModel`. It is changed in place, by hooks alone.
        what: a `Gate` (of heads: `heads.removed()`, `heads.scaled(2)`), an `Adaptation`, or the
            folder of a run or a saved gate (see `read_adaptation`). One gate holds for all rows of
            a batch, so beams and several samples a prompt are gated alike.
        tokenizer: the model's tokenizer, which tells the first look at the model which tokens are
            ordinary; not needed otherwise.
        check: prove, at the first use of a model, that its gates do what they should (a few forward
            passes over a few tokens).

    Returns:
        What takes the gates off again; they stay on also if it is not kept.

    Raises:
        InputError: if the model's heads cannot be found, or the gates are for another geometry,
            not finite, or one for each row.
    """
    import torch

    lm = _language_model(model, tokenizer, check)
    if isinstance(what, str | PathLike):
        what = read_adaptation(what, lm.geometry)
    if isinstance(what, Gate):
        what = Adaptation(what)
    if isinstance(what, HeadSet):
        raise InputError(
            "a set of heads does not say by what they are multiplied; give heads.removed() or "
            "heads.scaled(2)"
        )
    if isinstance(what, torch.Tensor):
        raise InputError(
            "a tensor may hold a gate for each row, and generation lays rows out anew (beams, "
            "several samples a prompt); give one Gate for all rows, "
            "headscope.Gate(geometry, tensor.numpy())"
        )
    if not isinstance(what, Adaptation):
        raise InputError(
            f"a gate, an adaptation or the folder of a run is applied, not {type(what).__name__}"
        )
    return Attached(lm, what)


@contextlib.contextmanager
def adapted(
    model: Any,
    what: Adaptation | Gate | str | PathLike[str],
    tokenizer: Any = None,
    *,
    check: bool = True,
) -> Iterator[Any]:
    """Run a model with gates inside the context, which gives the `transformers` model.

    The gates are taken off at the end, also after an exception. Contexts nest: gates multiply.
    Arguments and errors are those of `attach`.
    """
    from headscope.lm.owners import interposing

    lm = _language_model(model, tokenizer, check)
    with interposing(lm.model), attach(lm, what) as gated:
        yield gated


def _language_model(model: Any, tokenizer: Any, check: bool) -> LanguageModel:
    import torch

    from headscope.lm.model import LanguageModel

    if isinstance(model, LanguageModel):
        return model
    inside = getattr(model, "model", None)
    if not isinstance(model, torch.nn.Module) and isinstance(inside, torch.nn.Module):
        tokenizer = tokenizer if tokenizer is not None else getattr(model, "tokenizer", None)
        model = inside  # of a pipeline
    known = _known.get(model) if isinstance(model, torch.nn.Module) else None
    if known is not None and all(_still_there(model, site) for site in known[1]):
        return LanguageModel(model, tokenizer, *known, "model")
    lm = LanguageModel.wrap(model, tokenizer, check=check)
    _known[model] = lm.geometry, lm.sites
    return lm


def _still_there(model: torch.nn.Module, site: AttentionSite) -> bool:
    """Whether nobody has put another projection in a site's place, as adapters do."""
    try:
        return model.get_submodule(site.projection_name) is site.projection
    except AttributeError:
        return False
