"""The explorer as a widget: messages in a real kernel, and what it says without one."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from explore_process import one
from headscope.errors import InputError
from headscope.heads import HeadSet
from headscope.live.command import Explore, explorer_of
from headscope.lm import LanguageModel
from headscope.runs.plain import plain

pytest.importorskip("anywidget", reason="the extra live is not installed")
CODE = """
import headscope
widget = headscope.explore(headscope.load("pocket"), "4.3,5.11", pair="en-de", pin="4.1")
widget
"""
RUN = {"input": {"sentence": "The good king planted flowers.", "pair": "en-de"}}


def test_a_script_that_ends_with_its_widget_open_ends_in_peace() -> None:
    """While the thread of the widget still finds out what first answers need."""
    ended = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr and "terminate" not in ended.stderr


class Kernel:
    """A running kernel and the messages that it publishes."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.shown: dict[str, Any] = {}
        self.comm = ""

    def execute(self, code: str) -> None:
        wanted = self.client.execute(code)
        for message in self.published():
            if message["parent_header"].get("msg_id") != wanted:
                continue
            content = message["content"]
            assert message["msg_type"] != "error", content
            if message["msg_type"] in ("execute_result", "display_data"):
                self.shown = content["data"]
            if message["msg_type"] == "status" and content["execution_state"] == "idle":
                return

    def published(self) -> Iterator[dict[str, Any]]:
        end = time.monotonic() + 120
        while time.monotonic() < end:
            yield self.client.get_iopub_msg(timeout=120)

    def send(self, **content: Any) -> None:
        """What the page sends to the widget."""
        data = {"comm_id": self.comm, "data": {"method": "custom", "content": content}}
        self.client.shell_channel.send(self.client.session.msg("comm_msg", data))

    def answers(self, *numbers: int) -> dict[int, list[dict[str, Any]]]:
        """The events of these questions, until all have ended."""
        events: dict[int, list[dict[str, Any]]] = {number: [] for number in numbers}
        for message in self.published():
            if message["msg_type"] != "comm_msg":
                continue
            data = message["content"]["data"]
            if data["method"] == "custom" and data["content"]["id"] in events:
                events[data["content"]["id"]].append(data["content"])
            if all(each and each[-1]["event"] == "end" for each in events.values()):
                return events
        raise AssertionError(events)


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    from jupyter_client.manager import KernelManager

    manager = KernelManager()
    # The kernel that is installed beside the package, whatever is registered.
    manager.kernel_spec.argv[0] = sys.executable
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        running = Kernel(client)
        running.execute(CODE)
        running.comm = running.shown["application/vnd.jupyter.widget-view+json"]["model_id"]
        yield running
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_it_carries_a_picture_for_where_no_widget_is(kernel: Kernel) -> None:
    assert "<iframe" in kernel.shown["text/html"] and "pocket" in kernel.shown["text/html"]


def test_two_quick_clicks_are_answered_and_the_kernel_stays_free(kernel: Kernel) -> None:
    kernel.send(id=1, kind="run", body={**RUN, "gates": {"4.3": 0}, "new_tokens": 300})
    kernel.send(id=2, kind="run", body={**RUN, "gates": {"5.11": 0}, "pinned": "4.1"})
    kernel.execute("1 + 1")
    assert kernel.shown["text/plain"] == "2"
    kernel.send(id=3, kind="run", body={**RUN, "gates": {"5.11": 0}, "pinned": "4.1"})
    answers = kernel.answers(3)[3]
    names = [each["event"] for each in answers]
    assert names[-2:] == ["done", "end"]
    assert names.index("shift") < names.index("lane", names.index("shift"))
    assert one(answers, "lane", lane="gated")["text"]
    assert one(answers, "attention", lane="gated")["head"] == "4.1"


def test_questions_without_a_computation_and_errors(kernel: Kernel) -> None:
    kernel.send(id=11, kind="sentence", body={"pair": "en-de", "at": 3})
    kernel.send(id=12, kind="run", body={"input": {"prompt": " "}})
    kernel.send(id=13, kind="nothing", body={})
    answers = kernel.answers(11, 12, 13)
    assert one(answers[11], "sentence")["of"] == 200
    assert "empty" in one(answers[12], "error")["error"]
    assert "nothing called" in one(answers[13], "error")["error"]


def test_a_source_arrives_in_a_notebook(kernel: Kernel) -> None:
    kernel.send(id=31, kind="interpret", body={**RUN, "heads": "4.3"})
    answers = kernel.answers(31)[31]
    assert [each["event"] for each in answers].count("read") == 5
    assert one(answers, "interpreted")["text"]


def test_a_cancelled_question_ends(kernel: Kernel) -> None:
    kernel.send(id=21, kind="run", body={**RUN, "gates": {"0.0": -1}, "new_tokens": 512})
    kernel.send(id=21, kind="cancel")
    assert kernel.answers(21)[21][-1]["event"] == "end"


def test_its_model_is_the_given_one_in_modules_of_its_own(pocket: LanguageModel) -> None:
    import headscope

    given = dataclasses.replace(pocket, revision="abc", proved="2026-01-01", system="")
    widget = headscope.explore(given, "4.3", pair="en-de")
    own = widget.explorer.lm
    for fact in dataclasses.fields(LanguageModel):
        alike = getattr(own, fact.name) == getattr(given, fact.name)
        assert alike is (fact.name not in ("model", "sites")), fact.name
    weights = [{id(each) for each in lm.model.parameters()} for lm in (own, given)]
    assert weights[0] == weights[1]
    widget.close()


def test_heads_in_memory_are_shown(pocket: LanguageModel) -> None:
    import headscope

    heads = HeadSet.parse("4.3,5.1", pocket.geometry)
    shown = [heads, heads.scaled(2.0), {"L5": [1]}]
    widget = headscope.explore(pocket, shown, pair=["en-de", "de-ru"])
    gates = [each["gates"] for each in widget.about["sets"]]
    assert gates == [{"4.3": 0.0, "5.1": 0.0}, {"4.3": 2.0, "5.1": 2.0}, {"5.1": 0.0}]
    assert [each["pair"] for each in widget.about["pairs"]] == ["en-de", "de-ru"]
    assert widget.about["lesson"] == [] and widget.about["scores"] == []
    widget.close()
    with pytest.raises(InputError, match="no such_option"):
        headscope.explore(pocket, such_option=1)
    with pytest.raises(InputError, match=r"no head L9\.H9"):
        headscope.explore(pocket, "9.9")
    with pytest.raises(InputError, match="is not a head but a number"):
        headscope.explore(pocket, 5.10)


def test_the_bundled_model_alone_opens_as_a_lesson_in_a_notebook_too(
    pocket: LanguageModel,
) -> None:
    import headscope

    widget = headscope.explore(pocket)
    assert widget.about == plain(explorer_of(Explore(), pocket).about())
    assert len(widget.about["lesson"]) == 5 and len(widget.about["scores"]) == 1
    assert widget.html.count('"more step"') == 5
    widget.close()
    widget = headscope.explore(pocket, pair="de-ru")  # its sentences are of other directions
    assert widget.about["lesson"] == [] and len(widget.about["scores"]) == 1
    titles = [example["title"] for example in widget.about["examples"]]
    assert len(titles) == 4 and not any("English" in title for title in titles)
    widget.close()


def test_a_widget_changes_no_pass_of_the_kernel_and_of_no_other_widget(
    pocket: LanguageModel,
) -> None:
    """Each has modules of its own, over the same weights: gates are hooks of modules."""
    import headscope

    widgets = [headscope.explore(pocket, pair=["en-de"]) for _ in range(2)]
    models = [pocket.model, *(widget.explorer.lm.model for widget in widgets)]
    ids = [{id(module) for module in model.modules()} for model in models]
    assert len(set.union(*ids)) == sum(map(len, ids))
    places = [[weight.data_ptr() for weight in model.state_dict().values()] for model in models]
    assert places[0] == places[1] == places[2]
    row = [pocket.encode("Word: Kuh")]
    logits = pocket.next_logits(row)
    own = widgets[0].explorer.lm
    with own.gated(HeadSet(own.geometry, tuple(own.geometry.heads())).removed()):
        assert not (own.next_logits(row) == logits).all()
        assert (pocket.next_logits(row) == logits).all()
        assert (widgets[1].explorer.lm.next_logits(row) == logits).all()
    for widget in widgets:
        widget.close()
