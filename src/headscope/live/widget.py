"""The explorer in a notebook: the page's own module as an anywidget."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from headscope.errors import InputError
from headscope.heads import Gate, HeadScores, HeadSet
from headscope.heads.geometry import is_pair
from headscope.live.command import Explore, explorer_of
from headscope.live.explorer import COMPUTED
from headscope.live.page import assets, skeleton, static, widget_css
from headscope.live.worker import END, Job, Worker
from headscope.lm import LanguageModel
from headscope.runs import Result
from headscope.runs.plain import plain
from headscope.settings import build, options_in

if TYPE_CHECKING:
    from headscope.live.explorer import Explorer


class ExplorerWidget(anywidget.AnyWidget):
    """The page of an explorer; a thread of its own computes, so that the kernel stays free."""

    _esm = assets()["explore.js"]
    html = traitlets.Unicode().tag(sync=True)
    css = traitlets.Unicode().tag(sync=True)
    about = traitlets.Dict().tag(sync=True)

    def __init__(self, explorer: Explorer) -> None:
        about = plain(explorer.about())
        super().__init__(about=about, html=str(skeleton(about)), css=widget_css())
        self.explorer = explorer
        self._worker = Worker(explorer)
        self._jobs: dict[Any, Job] = {}
        self.on_msg(self._take)

    def close(self) -> None:
        """End what is computed, and the widget."""
        self._worker.close()
        super().close()

    def _take(self, _: Any, message: Any, buffers: Any) -> None:
        """A question of the page, or the end of one."""
        number, kind, body = (message.get(name) for name in ("id", "kind", "body"))
        if kind == "cancel":
            if number in self._jobs:
                self._worker.drop(self._jobs[number])
            return

        def emit(event: Mapping[str, Any]) -> None:
            if event == END:
                self._jobs.pop(number, None)
            self.send({"id": number, **plain(event)})

        job = Job(str(kind), body, emit)
        if kind in COMPUTED:
            self._jobs[number] = job
            self._worker.submit(job)
            return
        try:
            emit(self.explorer.look_up(job.kind, body))
            emit(END)
        except InputError as error:
            job.end("error", error=str(error), status=400)

    def _repr_mimebundle_(self, **options: Any) -> Any:
        """The widget, and a picture of its map where no widget can be shown."""
        made = super()._repr_mimebundle_(**options)
        bundle, more = made if isinstance(made, tuple) else (made, {})
        return {**(bundle or {}), "text/html": str(static(self.about))}, more


def _apart(lm: LanguageModel) -> LanguageModel:
    """The same model in modules of its own, which share the weights.

    Gates of the widget's thread are hooks, and would change what a cell computes at that moment.
    """
    shared = {id(tensor): tensor for tensor in (*lm.model.parameters(), *lm.model.buffers())}
    model, sites = copy.deepcopy((lm.model, lm.sites), shared)
    return replace(lm, model=model, sites=sites)


def widget_of(lm: LanguageModel, heads: Any, options: Mapping[str, Any]) -> ExplorerWidget:
    """The widget of a model; see `headscope.explore`."""
    several = isinstance(heads, list | tuple) and not is_pair(heads)
    values = [
        value
        if isinstance(value, str | PathLike | Result | HeadScores | Gate)
        else HeadSet.of(lm.geometry, value)
        for value in (heads if several else [heads])
    ]
    held = [value for value in values if isinstance(value, HeadScores | HeadSet | Gate)]
    named = [
        value.run if isinstance(value, Result) else str(value)
        for value in values
        if not isinstance(value, HeadScores | HeadSet | Gate)
    ]
    given = {option.name: None for option in options_in(Explore)}
    if unknown := sorted(options.keys() - given.keys()):
        raise InputError(f"there is no {unknown[0]}; there are {', '.join(sorted(given))}")
    listed = {
        name: [options[name]] for name in ("data", "pair") if isinstance(options.get(name), str)
    }
    config: Explore = build(
        Explore, {**given, **options, **listed, "heads": named, "model": lm.name}
    )
    return ExplorerWidget(explorer_of(config, _apart(lm), held))
