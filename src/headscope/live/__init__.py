"""The live explorer: switch single heads of a model off and watch its output change.

`explorer` answers questions about one loaded model, `worker` one at a time; `server` and `widget`
carry questions and answers between it and the page, which is the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headscope.lm import LanguageModel


def explore(lm: LanguageModel, heads: Any = (), **options: Any) -> Any:
    """The explorer of a loaded model as a widget of a notebook.

    Args:
        lm: from `headscope.load`.
        heads: what the map shows: a run that found heads, its folder or its result, `HeadScores`,
            a `HeadSet`, a `Gate`, a list such as ``"L5.H3,7.11"``, what else names heads (see
            `HeadSet.of`); or several of these.
        options: further options of ``headscope explore``, such as ``data="pairs.tsv"``,
            ``pair="en-de"`` and ``pin="5.3"``.

    Raises `MissingExtra` without the extra ``live``, and `InputError` for heads or data that do
    not fit the model.
    """
    from headscope.errors import need

    need("anywidget", "the explorer in a notebook", "live")
    from headscope.live.widget import widget_of

    return widget_of(lm, heads, options)
