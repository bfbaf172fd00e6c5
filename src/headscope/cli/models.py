"""What commands that use a model share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headscope.cli.output import shown

if TYPE_CHECKING:
    pass


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
