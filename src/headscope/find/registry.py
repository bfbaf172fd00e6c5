"""The methods that find heads, by name; nothing of a method is imported until it is used.

`headscope methods` and surveys also list studies of `find` that say what they measure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headscope.errors import InputError, nearest


@dataclass(frozen=True)
class Method:
    """One way of finding heads.

    Attributes:
        name: what commands and results call it, such as `translation-score`.
        module, config, function: where it lives, its configuration dataclass there, and the
            function that scores or trains the heads.
        needs: what data it needs, in words.
        measures: what a head's score says, in one line.
        recipe: for a method from elsewhere, `package.module:function`, called by `headscope survey`
            as `function(model, out, quick, progress)`: it writes a run folder and returns its
            result.
    """

    name: str
    module: str
    config: str
    function: str
    needs: str
    measures: str = ""
    recipe: str | None = None

    def load(self) -> tuple[type[Any], Any]:
        """Its configuration dataclass and its function, imported now.

        Raises `InputError` if the module or one of the two is not there.
        """
        try:
            module = import_module(self.module)
            return getattr(module, self.config), getattr(module, self.function)
        except (ImportError, AttributeError) as error:
            raise InputError(
                f"the method {self.name} cannot be loaded from {self.module} ({error}); install "
                "the package it belongs to, or register it with the right names"
            ) from error


_methods: dict[str, Method] = {}


def register(
    name: str,
    module: str,
    config: str,
    function: str,
    needs: str,
    measures: str = "",
    recipe: str | None = None,
) -> Method:
    """Add a method under a name of its own; see `Method` for the arguments.

    Raises `InputError` if the name is taken: a method is never replaced silently.
    """
    if name in _methods:
        raise InputError(
            f"there is already a method {name!r} (in {_methods[name].module}); register yours "
            "under another name"
        )
    _methods[name] = Method(name, module, config, function, needs, measures, recipe)
    return _methods[name]


def method(name: str, among: Mapping[str, Method] | None = None) -> Method:
    """The method of this name; InputError with the nearest name and the list if there is none."""
    known = _methods if among is None else among
    if name in known:
        return known[name]
    raise InputError(
        f"there is no method {name!r}; {nearest(name, known)}known: {', '.join(known)}"
    )


def methods() -> tuple[Method, ...]:
    """Every method, in the order they were registered."""
    return tuple(_methods.values())


register(
    "translation-score",
    "headscope.find.translation_scores",
    "TranslationScore",
    "translation_score",
    "sentence pairs",
    "how often a head looks at the source word that is being translated",
)
register(
    "lahis",
    "headscope.find.lahis_scores",
    "Lahis",
    "lahis",
    "documents of one or more languages",
    "how much a language's text depends on a head, by gradients of its gate",
)
register(
    "first-order",
    "headscope.find.first_order_scores",
    "FirstOrder",
    "first_order",
    "documents of one or more languages",
    "how steeply the loss changes when a head's gate moves, in either way",
)
register(
    "mask",
    "headscope.find.mask_training",
    "MaskTraining",
    "train_mask",
    "a task of inputs and outputs",
    "whether a head is kept by a mask trained to do a task without its instruction",
)
register(
    "soft-gate",
    "headscope.find.soft_gate_training",
    "SoftGate",
    "train_soft_gate",
    "questions with answers, and heads that another method found",
    "the trained strength of a few given heads that makes answers more likely",
)
register(
    "causal-gating",
    "headscope.find.causal_gating_scores",
    "CausalGating",
    "fit_causal_gates",
    "a task of inputs and outputs",
    "whether a head helps, hinders or does nothing, by gates fitted towards both ends",
)
register(
    "induction",
    "headscope.find.induction_scores",
    "Induction",
    "induction",
    "nothing: random tokens",
    "how often a head looks at what followed the same token before",
)
register(
    "retrieval",
    "headscope.find.retrieval_scores",
    "Retrieval",
    "retrieval",
    "facts hidden in longer texts, with a question each",
    "how often a head looks at the token of a hidden fact that is being copied out",
)
register(
    "single-removal",
    "headscope.verify.removal_translations.single",
    "Removal",
    "single_removal",
    "sentence pairs",
    "how much worse the reference translation is predicted without this head alone",
)
register(
    "patching",
    "headscope.find.patching_scores",
    "Patching",
    "patching",
    "words in three or more languages",
    "how far one head's output carries another target language, or another meaning, over",
)
