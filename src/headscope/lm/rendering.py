"""A chat template, run as what it is: a stranger's program.

It is run with a fixed date in a process of its own, whose time and, on Linux, memory the system
limits: that ends whatever makes a text without end, even inside a single operation of Python. One
process serves all templates, and a new one takes its place if it was ended.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from headscope.errors import clause

#: What templates that write a date are given as today: the day that Llama 3's template falls back
#: on, so that prompts, and with them all numbers, do not depend on the day of the run.
PROMPT_DATE = datetime(2024, 7, 26)
#: A conversation takes milliseconds to write.
SECONDS = 5.0
#: A template may write so many characters, and so many for each character of the conversation.
MOST_WRITTEN, MOST_WRITTEN_EACH = 100_000, 100
#: Bytes that the process may take beside what it has when it begins.
_MOST_BYTES = 1 << 28
_MOST_TEMPLATE = 1_000_000
#: What is read of a template's source, what every template is told, and what
#: `render_jinja_template` itself gives it.
_MOST_VARIABLES, _MOST_VALUES, _MOST_TEXTS = 24, 8, 48
_TOLD = {"enable_thinking": False}
_CONVERSATION = ("messages", "tools", "documents", "add_generation_prompt")
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}>")
#: Finds this file's imports where this process does, without the package's other modules.
_START = (
    "import json, runpy, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "runpy.run_path(sys.argv[1], run_name='__main__')"
)


@dataclass(frozen=True)
class Rendering:
    """What a template wrote, and whether it asked for the date."""

    text: str
    dated: bool


class Unrenderable(Exception):
    """A template does not write a conversation; why is its message, a clause."""


class Ended(Unrenderable):
    """The process that ran the template was ended over it."""


@dataclass(frozen=True)
class Switches:
    """What a template can be told beside the conversation, as its own source says.

    Attributes:
        variables: of each variable that it reads and nobody sets, values that may make a
            difference: what it compares it with, false, 0, true.
        texts: the constant texts in it.
    """

    variables: Mapping[str, Sequence[bool | int | str]]
    texts: Sequence[str]


def render(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: Any) -> Rendering:
    """A conversation as the tokenizer's chat template writes it, told not to think aloud.

    `options` are those of `apply_chat_template`, and variables of the template. Raises
    `Unrenderable` whatever the template raises, after `SECONDS`, or where it makes too much or
    depends on chance.
    """
    given = [{name: part for name, part in row.items() if part is not None} for row in messages]
    options = {**_TOLD, **options}
    try:
        if _writes_itself(tokenizer):
            text = tokenizer.apply_chat_template(given, tokenize=False, **options)
            return Rendering(_checked(text, given), False)
        template = tokenizer.get_chat_template()
    except Unrenderable:
        raise
    except Exception as error:  # a class of somebody's own may raise anything
        raise Unrenderable(clause(error)) from error
    if len(template) > _MOST_TEMPLATE:
        raise Unrenderable(f"it has {len(template):,} characters; {_MOST_TEMPLATE:,} are taken")
    words = {**tokenizer.special_tokens_map, **options}
    return Rendering(**_asked({"template": template, "messages": given, "words": words}))


def switches(tokenizer: Any) -> Switches:
    """What the chat template of a tokenizer can be told; nothing of a class that needs none.

    Raises `Unrenderable` for a template that cannot be read.
    """
    if _writes_itself(tokenizer):
        return Switches({}, ())
    words = {**tokenizer.special_tokens_map, **_TOLD}
    return Switches(**_asked({"template": tokenizer.get_chat_template(), "words": words}))


def _writes_itself(tokenizer: Any) -> bool:
    """Whether a tokenizer's class writes conversations without a template."""
    from transformers import PreTrainedTokenizerBase

    own = getattr(tokenizer.apply_chat_template, "__func__", None)
    return own is not PreTrainedTokenizerBase.apply_chat_template


def _asked(request: Mapping[str, Any]) -> dict[str, Any]:
    reply = _PROCESS.ask(request)
    if "error" in reply:
        raise Unrenderable(reply["error"])
    return reply


class _Process:
    """The process that runs templates, begun when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What it replies, from any thread; `Unrenderable` if it is ended over it."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self.end()
                start = [sys.executable, "-c", _START, __file__, json.dumps(sys.path)]
                self._process = subprocess.Popen(
                    start,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            stdin, stdout = self._process.stdin, self._process.stdout
            assert stdin is not None and stdout is not None
            try:
                line = json.dumps({**request, "seconds": SECONDS}, default=str)
                print(line, file=stdin, flush=True)
                reply = stdout.readline()
            except BrokenPipeError:
                reply = ""
            except BaseException:  # a reply that nobody waits for would answer the next request
                self.end()
                raise
            if reply:
                answer: dict[str, Any] = json.loads(reply)
                return answer
            code = self._process.wait()
            self.end()
        if code == -signal.SIGALRM:
            raise Ended(f"it is not done after {SECONDS:g} seconds")
        raise Ended(f"the process that ran it ended with {code}")

    def end(self) -> None:
        """End the process, if there is one; for whoever holds the lock."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def end_at_exit(self) -> None:
        """End the process when no other thread waits for its reply."""
        with self._lock:
            self.end()

    def forget(self) -> None:
        """Leave the process to the one that this process was forked from."""
        self._lock, self._process = threading.Lock(), None


_PROCESS = _Process()
atexit.register(_PROCESS.end_at_exit)
os.register_at_fork(after_in_child=_PROCESS.forget)


def _checked(text: Any, messages: Sequence[Mapping[str, Any]]) -> str:
    """A text that a run may be based on; else `Unrenderable`."""
    if not isinstance(text, str):
        raise Unrenderable(f"it gives {type(text).__name__} and no text")
    size = sum(len(str(part)) for row in messages for part in row.values())
    most = MOST_WRITTEN + MOST_WRITTEN_EACH * size
    if len(text) > most:
        raise Unrenderable(
            f"it writes {len(text):,} characters for a conversation of {size:,}; at most "
            f"{most:,} are taken"
        )
    if len(_ADDRESS.findall(text)) > len(_ADDRESS.findall(str(messages))):
        raise Unrenderable("it writes the address of an object, which is another in every run")
    return text


def _read_switches(tree: Any, known: Collection[str]) -> dict[str, Any]:
    """The fields of `Switches` of a template that has been read; `known` are names that are set."""
    from jinja2 import meta, nodes

    compared = defaultdict[str, list[Any]](list)
    for comparison in tree.find_all(nodes.Compare):
        sides = [comparison.expr, *(operand.expr for operand in comparison.ops)]
        within = [
            const.value for side in sides for const in (side, *side.find_all(nodes.Const))
            if isinstance(const, nodes.Const)
        ]  # fmt: skip
        for name in (side.name for side in sides if isinstance(side, nodes.Name)):
            compared[name] += within
    texts = (const.value for const in tree.find_all(nodes.Const) if isinstance(const.value, str))
    variables = {}
    for name in sorted(meta.find_undeclared_variables(tree) - {*known})[:_MOST_VARIABLES]:
        values = [*compared[name], False, 0, True]
        # 0 and false are the same to Python, not to a template.
        by_text = {repr(value): value for value in values if isinstance(value, bool | int | str)}
        variables[name] = [*by_text.values()][:_MOST_VALUES]
    listed = dict.fromkeys(text for text in texts if 2 < len(text) < 80 and text.strip())
    return {"variables": variables, "texts": [*listed][:_MOST_TEXTS]}


def _serve() -> None:
    """Reply to every request, a line each, until nobody asks any more."""
    import resource

    from transformers.utils import chat_template_utils as module

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    replies = os.fdopen(os.dup(1), "w")
    compile_, dates = module._compile_jinja_template, list[str]()

    def date(form: str) -> str:
        dates.append(form)
        return PROMPT_DATE.strftime(form)

    def chance(*_: Any, **__: Any) -> str:
        raise Unrenderable("it writes something else in every run, by chance")

    @lru_cache(maxsize=16)
    def compiled(template: str) -> Any:
        environment = compile_("").environment.overlay()
        environment.filters = {**environment.filters, "random": chance}
        environment.globals = {**environment.globals, "strftime_now": date, "lipsum": chance}
        return environment.from_string(template)

    vars(module)["_compile_jinja_template"] = compiled
    compiled("")
    if sys.platform == "linux":  # other systems do not hold a process to it
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + _MOST_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    for line in sys.stdin:
        request = json.loads(line)
        dates.clear()
        signal.setitimer(signal.ITIMER_REAL, request["seconds"])
        reply: dict[str, Any]
        try:
            if "messages" not in request:
                tree = compiled("").environment.parse(request["template"])
                known = {*compiled("").globals, *request["words"], *_CONVERSATION}
                reply = _read_switches(tree, known)
            else:
                rendered: Any = module.render_jinja_template(
                    conversations=[request["messages"]],
                    chat_template=request["template"],
                    **request["words"],
                )
                text = _checked(rendered[0][0], request["messages"])
                reply = {"text": text, "dated": bool(dates)}
        except MemoryError:
            reply = {"error": "it makes a text or a list without end"}
        except BaseException as error:  # a template may raise anything
            reply = {"error": str(error) if isinstance(error, Unrenderable) else clause(error)}
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    _serve()
