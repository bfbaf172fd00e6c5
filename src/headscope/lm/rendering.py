"""A chat template, run as what it is: a stranger's program.

It is run with a fixed date, for a limited time, and may make texts and lists of limited size.
Python cannot end a single operation of its own, such as a power of large numbers, so what an
operation would make is bounded before it is carried out; loops are ended from outside.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache, wraps
from math import prod
from typing import Any, TypeVar

from jinja2.compiler import CodeGenerator, operators
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headscope.errors import clause

Made = TypeVar("Made")

#: What templates that write a date are given as today: the day that Llama 3's template falls back
#: on, so that prompts, and with them all numbers, do not depend on the day of the run.
PROMPT_DATE = datetime(2024, 7, 26)
#: A conversation takes milliseconds to write.
SECONDS = 5.0
#: A template may write so many characters, and so many for each character of the conversation.
MOST_WRITTEN, MOST_WRITTEN_EACH = 100_000, 100
#: Characters and items that one operation may make, and bytes that all may make.
_MOST_MADE, _MOST_BYTES = 1 << 26, 1 << 28
_MOST_BITS = 100_000
_MOST_TEMPLATE = 1_000_000
#: Filters that hand numbers on or compare with them, and make nothing of their size.
_COMPARING = ("default", "d", "eq", "map", "select", "reject", "selectattr", "rejectattr")
_ENDLESS = "it makes a text or a list without end"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,}>")


@dataclass(frozen=True)
class Rendering:
    """What a template wrote, and whether it asked for the date."""

    text: str
    dated: bool


class Unrenderable(Exception):
    """A template does not write a conversation; why is its message, a clause."""


class _Ended(SystemExit):
    """Ends a thread; of this kind, because a thread that ends by it prints nothing."""


class _Spending(threading.local):
    """What the template of this thread may still make, and whether it asked for the date."""

    operation: float = _MOST_MADE
    left: float = _MOST_BYTES
    dated: bool = False

    def charge(self, value: Any) -> Any:
        if isinstance(value, str | list | tuple | dict):
            self.left -= sys.getsizeof(value)
            if self.left < 0:
                raise Unrenderable(_ENDLESS)
        return value


_SPENDING = _Spending()


def render(tokenizer: Any, messages: Sequence[Mapping[str, str]], **options: bool) -> Rendering:
    """A conversation as the tokenizer's chat template writes it, told not to think aloud.

    `options` are those of `apply_chat_template`. Raises `Unrenderable` whatever the template
    raises, after `SECONDS`, or where it makes too much or depends on chance.
    """
    given = [{name: part for name, part in row.items() if part is not None} for row in messages]
    size = sum(len(str(part)) for row in given for part in row.values())
    most = MOST_WRITTEN + MOST_WRITTEN_EACH * size

    def write() -> Rendering:
        _SPENDING.operation = _MOST_MADE + 100 * size
        _SPENDING.left = _MOST_BYTES + 4000 * size
        _SPENDING.dated = False
        text = _written(tokenizer, given, options)
        if not isinstance(text, str):
            raise Unrenderable(f"it gives {type(text).__name__} and no text")
        return Rendering(text, _SPENDING.dated)

    try:
        rendering = within(SECONDS, write)
    except Unrenderable:
        raise
    except TimeoutError:
        raise Unrenderable(f"it is not done after {SECONDS:g} seconds") from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a template may raise anything
        raise Unrenderable(clause(error)) from error
    if len(rendering.text) > most:
        raise Unrenderable(
            f"it writes {len(rendering.text):,} characters for a conversation of {size:,}; at most "
            f"{most:,} are taken"
        )
    if len(_ADDRESS.findall(rendering.text)) > len(_ADDRESS.findall(str(given))):
        raise Unrenderable("it writes the address of an object, which is another in every run")
    return rendering


def within(seconds: float, work: Callable[[], Made]) -> Made:
    """What `work` returns or raises, in a thread of its own that ends after `seconds`.

    Raises `TimeoutError` then. Works from any thread; no thread is left.
    """
    made: list[Any] = []

    def run() -> None:
        try:
            made.append((work(), None))
        except BaseException as error:
            made.append((None, error))

    thread = threading.Thread(target=run, name="chat template", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        late = thread.is_alive()
        while thread.is_alive():
            assert thread.ident is not None
            ctypes.pythonapi.PyThreadState_SetAsyncExc(
                ctypes.c_ulong(thread.ident), ctypes.py_object(_Ended)
            )
            thread.join(0.05)
    if late:
        raise TimeoutError
    value, error = made[0]
    if error is not None:
        raise error
    result: Made = value
    return result


def _written(tokenizer: Any, messages: list[dict[str, Any]], options: Mapping[str, bool]) -> Any:
    from transformers import PreTrainedTokenizerBase

    own = getattr(tokenizer.apply_chat_template, "__func__", None)
    if own is not PreTrainedTokenizerBase.apply_chat_template:  # a class that needs no template
        return tokenizer.apply_chat_template(
            messages, tokenize=False, enable_thinking=False, **options
        )
    template = tokenizer.get_chat_template()
    if len(template) > _MOST_TEMPLATE:
        raise Unrenderable(f"it has {len(template):,} characters; {_MOST_TEMPLATE:,} are taken")
    words = {**tokenizer.special_tokens_map, "enable_thinking": False, **options}
    texts, _ = _by_transformers()(conversations=[messages], chat_template=template, **words)
    return texts[0]


@lru_cache(maxsize=1)
def _by_transformers() -> Callable[..., Any]:
    """The function by which `apply_chat_template` renders, with an environment of limits.

    It has no place for an environment, so a copy of it finds `_compiled` under the name of its own
    compiler; the function of everybody else stays as it is.
    """
    from transformers.utils import chat_template_utils as module

    function = module.render_jinja_template
    names = {**vars(module), "_compile_jinja_template": _compiled}
    return types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )


@lru_cache(maxsize=16)
def _compiled(template: str) -> Any:
    from transformers.utils import chat_template_utils as module

    compile_ = module._compile_jinja_template
    environment: Any = compile_("").environment.overlay()
    environment.__class__ = _Limits
    environment.filters = {name: _limited(f, name) for name, f in environment.filters.items()}
    environment.tests = {name: _limited(f, "eq") for name, f in environment.tests.items()}
    environment.globals = {**environment.globals, "strftime_now": _date, "lipsum": _chance}
    environment.finalize = _text
    return environment.from_string(template)


def _date(form: str) -> str:
    _SPENDING.dated = True
    _check(form)
    return PROMPT_DATE.strftime(form)


def _chance(*_: Any, **__: Any) -> str:
    raise Unrenderable("it writes something else in every run, by chance")


class _Kept(list[str]):
    """What a block has written that is not shown yet."""

    def append(self, part: str) -> None:
        super().append(_SPENDING.charge(part))

    def extend(self, parts: Iterable[str]) -> None:
        super().extend(map(_SPENDING.charge, parts))


class _Code(CodeGenerator):
    """Code in which texts are joined and kept, and values compared, through the environment."""

    def buffer(self, frame: Any) -> None:
        super().buffer(frame)
        self.writeline(f"{frame.buffer} = environment.kept()")

    def visit_Concat(self, node: Any, frame: Any) -> None:
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: Any, frame: Any) -> None:
        self.write("(environment.weighed(")
        self.visit(node.expr, frame)
        self.write(")")
        for operand in node.ops:
            self.write(f" {operators[operand.op]} environment.weighed(")
            self.visit(operand.expr, frame)
            self.write(")")
        self.write(")")


class _Limits(ImmutableSandboxedEnvironment):
    """The environment of transformers, in which no operation makes more than it may."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Code
    kept = _Kept

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int | float) and isinstance(right, int | float):
            if isinstance(left, int) and isinstance(right, int):
                power = left.bit_length() * abs(right) if operator == "**" else 0
                if max(power, left.bit_length() + right.bit_length()) > _MOST_BITS:
                    raise Unrenderable("it computes with numbers of more than 100,000 bits")
        elif operator == "+":
            if sys.getsizeof(left) + sys.getsizeof(right) > _SPENDING.left:
                raise Unrenderable(_ENDLESS)
        else:
            _check(left, right, form=left if operator == "%" else None)
        return _SPENDING.charge(super().call_binop(context, operator, left, right))

    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        inside = getattr(__obj, "__wrapped__", __obj)  # str.format is wrapped
        if isinstance(inside, types.BuiltinMethodType):
            subject = inside.__self__
            args = tuple(map(_listed, args))
            form = subject if inside.__name__ in ("format", "format_map") else None
            _check(_subject(subject), *args, *kwargs.values(), form=form)
        return _SPENDING.charge(super().call(__context, __obj, *args, **kwargs))

    @staticmethod
    def weighed(value: Any) -> Any:
        """The value, where it is not endless."""
        _check(_subject(value))
        return value

    @staticmethod
    def joined(parts: Iterable[Any]) -> str:
        """Texts one after the other."""
        texts = list(map(_text, parts))
        _check(texts)
        return str(_SPENDING.charge("".join(texts)))

    @staticmethod
    def concat(parts: Iterable[str]) -> str:
        """All that was written, counted while it is."""
        texts: list[str] = []
        for part in parts:
            _SPENDING.charge(part)
            texts.append(part)
        return "".join(texts)


def _text(value: Any) -> str:
    _check(_subject(value))
    return str(_SPENDING.charge(str(value)))


def _limited(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A filter or test that is not carried out where it could make too much."""
    first = int(hasattr(function, "jinja_pass_arg"))  # the context
    compares = name in _COMPARING

    @wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        if name == "random":
            _chance()
        rest = [_listed(value) for value in args[first:]]
        if name == "sum" and not all(
            isinstance(value, int | float)
            for value in (*rest[2:], *kwargs.values())
            if not isinstance(value, str)
        ):  # a sum of lists copies each of them
            raise Unrenderable("it sums up what are no numbers")
        form = rest[0] if name == "format" and rest else None
        more = [*rest[1:], *kwargs.values()]
        _check(*map(_subject, rest[:1]), *(map(_subject, more) if compares else more), form=form)
        return _SPENDING.charge(function(*args[:first], *rest, **kwargs))

    return limited


def _listed(value: Any) -> Any:
    """What an iterator still gives, as a list; other values as they are."""
    return (
        list(value) if isinstance(value, Iterator) and not isinstance(value, LoopContext) else value
    )


def _check(*operands: Any, form: Any = None) -> None:
    """Refuse an operation whose operands could make too much; `form`: a format, with widths."""
    if isinstance(form, str) and re.search(r"\d{5}", form):
        raise Unrenderable("it pads a text to more than 10,000 characters")
    if prod(max(1, _weight(operand)) for operand in operands) > _SPENDING.operation:
        raise Unrenderable(_ENDLESS)


def _subject(value: Any) -> Any:
    """What is shown, compared or changed, where a number's size makes nothing long."""
    return 1 if isinstance(value, int | float) else value


def _weight(value: Any) -> float:
    """Characters and items in a value, or a number itself; not counted further than allowed."""
    if isinstance(value, str | bytes | range):
        return len(value)
    if isinstance(value, int | float):
        return abs(value) if abs(value) < 1 << 62 else float("inf")
    if not isinstance(value, dict | list | tuple | set):
        return 1
    total, waiting = 0.0, [value]
    while waiting and total <= _SPENDING.operation:
        parts: Any = waiting.pop()
        total += len(parts)
        for part in (*parts, *parts.values()) if isinstance(parts, dict) else parts:
            if isinstance(part, dict | list | tuple | set):
                waiting.append(part)
            else:
                total += _weight(part)
    return total
