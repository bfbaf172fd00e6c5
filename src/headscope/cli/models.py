"""What commands that use a model share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.cli.output import shown
from headscope.errors import InputError

if TYPE_CHECKING:
    from headscope.data.align import LlmAligner

__all__ = ["hide_loading_bars", "llm_aligner"]


def hide_loading_bars() -> None:
    """Let `transformers` load models without bars of its own; those of downloads stay.

    How far loading and the self-check are is shown by the command's own `progress` instead.
    """
    from transformers.utils import logging

    library: Any = logging  # its functions carry no types
    library.disable_progress_bar()
    library.set_tqdm_hook(_loading_bar)


def _loading_bar(factory: Callable[..., Any], args: Any, options: dict[str, Any]) -> Any:
    """What `transformers` iterates over instead of one of its bars."""
    from headscope.lm.gguf import DEQUANTISING
    from headscope.lm.selfcheck import CHECKING

    title = str(options.get("desc"))
    if title not in ("Loading weights", DEQUANTISING, CHECKING) or not args:
        return factory(*args, **options)
    return shown(title.lower(), args[0])


def llm_aligner(
    aligner: str | None,
    model: str | None,
    base_url: str | None,
    confidence: float,
    cache: Path | None = None,
) -> LlmAligner | None:
    """The annotator that `--aligner llm` asks; None for every other aligner."""
    if aligner != "llm":
        return None
    if model is None:
        raise InputError("--aligner llm needs the name of a model; add --llm-model NAME")
    from headscope.data.align import LlmAligner
    from headscope.data.align.llm import default_cache

    return LlmAligner(model, base_url, cache or default_cache(), threshold=confidence)
