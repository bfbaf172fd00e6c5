"""Chat templates: what they are given, what they may not do, and what a run says of them."""

from __future__ import annotations

import copy
import os
import re
import resource
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import find_helpers
from headscope.errors import InputError
from headscope.lm import rendering
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import uses_chat, wrap_prompts
from headscope.lm.rendering import PROMPT_DATE
from headscope.lm.tokens import ChatWriter, end_of_turn
from headscope.studies.models import template_inputs

CHATML = (
    "{% if messages[0].role != 'system' %}<|im_start|>system\nYou are Qwen.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
DATED = (
    "{{ bos_token }}{%- if not date_string is defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '?' %}"
    "{%- endif %}{%- endif %}Today: {{ date_string }}\n\n"
    "{% for m in messages %}{{ m.role }}: {{ m.content | trim }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)
NO_SYSTEM = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}"
    "{% endif %}{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"
)
ALWAYS = (
    "A chat. {% for m in messages if m.role != 'system' %}{{ m.role }}: {{ m.content }} "
    "{% endfor %}"
)
# As Mistral's templates do, since its system message stands before the last turn.
LATE = (
    "{% set rows = messages %}{% if messages[0].role == 'system' %}"
    "{% set system = messages[0].content %}{% set rows = messages[1:] %}{% endif %}{{ bos_token }}"
    "{% for m in rows %}{% if m.role == 'user' %}[INST] {% if loop.last and system is defined %}"
    "{{ system }}\n\n{% endif %}{{ m.content }}[/INST]{% else %} {{ m.content }}{{ eos_token }}"
    "{% endif %}{% endfor %}"
)
LOWERS = "A chat. {% for m in messages %}{{ m.content | lower }}\n{% endfor %}"
GROWS = "{% set n = namespace(s='xxxxxxxx', t='xxxxxxxx') %}{% for i in range(60) %}"
LOOP = "{% for i in range(100000) %}{% for j in range(100000) %}"
HOSTILE = {
    "division": "{{ 1 / 0 }}",
    "modulo": "{{ 1 % 0 }}",
    "recursion": "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}",
    "recursive loop": "{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}",
    "nesting": "{{ " + "(" * 50_000 + "1" + ")" * 50_000 + " }}",
    "overflow": "{{ 10.0 ** 400 }}",
    "memory": "{{ 'x' * 10 ** 12 }}",
    "large text": "{{ 'x' * 10 ** 9 }}",
    "large list": "{{ [0] * 10 ** 9 }}",
    "large power": "{{ 10 ** 10 ** 9 }}",
    "index": "{{ messages[9].content.x }}",
    "key": "{{ {}['a'].b }}",
    "type": "{{ messages[0].content + 1 }}",
    "own": "{{ raise_exception('first line\nsecond \u001b[31m line') }}",
    "security": "{{ ''.__class__.__mro__ }}",
    "mutation": "{{ messages.append(1) }}",
    "syntax": "{% if %}",
    "filter": "{{ 'a' | nofilter }}",
    "include": "{% include 'x' %}",
    "nested loops": LOOP + "{% endfor %}{% endfor %}",
    "output without end": LOOP + "aaaa{% endfor %}{% endfor %}",
    "kept output": "{% set x %}" + LOOP + "aaaa{% endfor %}{% endfor %}{% endset %}{{ x }}",
    "doubled by ~": GROWS + "{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
    "doubled by +": GROWS + "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
    "doubled list": GROWS + "{% set n.s = [n.s, n.s] %}{% endfor %}{{ n.s }}",
    "compared lists": GROWS
    + "{% set n.s = [n.s, n.s] %}{% set n.t = [n.t, n.t] %}{% endfor %}{{ n.s == n.t }}",
    "filter pads": "{{ 'x' | center(1000000000) }}",
    "method pads": "{{ 'x'.ljust(10 ** 9) }}",
    "format pads": "{{ '{:1000000000}'.format(1) }}",
    "percent pads": "{{ '%*d' % (1000000000, 1) }}",
    "replace": "{{ ('x' * 30000).replace('x', 'y' * 30000) }}",
    "join": "{{ (['x' * 30000] * 30000) | join }}",
    "sum of lists": "{{ ([[1] * 1000] * 10000) | sum(start=[]) }}",
    "round": "{{ 1.5 | round(1000000000, 'ceil') }}",
    "long": "{{ 'x' * 300000 }}",
    "random": "{{ ['a', 'b'] | random }}",
    "lipsum": "{{ lipsum() }}",
    "address": "{{ messages | map('upper') }}",
    "address of a function": "{{ raise_exception }}",
}


def chat_model(template: Any, name: str = "qwen3") -> LanguageModel:
    tokenizer = copy.deepcopy(find_helpers.tokenizer())
    tokenizer.chat_template = template
    return LanguageModel.wrap(find_helpers.model(name), tokenizer, name=name, check=False)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Templates have two seconds."""
    monkeypatch.setattr(rendering, "SECONDS", 2.0)


@pytest.mark.parametrize("name", HOSTILE)
def test_whatever_a_template_does_is_one_sentence_in_time(name: str, hurried: None) -> None:
    lm = chat_model(HOSTILE[name])
    threads, most = threading.active_count(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.monotonic()
    with pytest.raises(InputError) as refused:
        wrap_prompts(lm, ["Hello"], True)
    assert time.monotonic() - began < 10
    assert len(str(refused.value).splitlines()) == 1 and str(refused.value).isprintable()
    assert len(str(refused.value)) < 500 and "chat template" in str(refused.value)
    assert threading.active_count() == threads
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - most < 100_000  # kilobytes
    if sys.platform == "linux" and (process := rendering._PROCESS._process):
        status = Path(f"/proc/{process.pid}/status").read_text("utf-8")
        assert int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) < 500_000


@pytest.mark.parametrize("name", ["division", "large power", "recursion", "syntax", "random"])
def test_without_the_template_none_of_this_matters(name: str) -> None:
    lm = chat_model(HOSTILE[name])
    assert wrap_prompts(lm, ["Hello"], False) == ["Hello"] and not uses_chat(lm, False)
    assert end_of_turn(lm.tokenizer) is None
    plain = chat_model(None)
    made = lm.generate(["Hello"]), plain.generate(["Hello"])
    assert made[0][0].output_ids == made[1][0].output_ids


def test_a_process_that_was_ended_is_begun_again() -> None:
    lm = chat_model(CHATML)
    first = wrap_prompts(lm, ["Hello"], True)
    process = rendering._PROCESS._process
    assert process is not None and process.poll() is None
    process.kill()
    process.wait()
    assert wrap_prompts(lm, ["Hello"], True) == first
    rendering._PROCESS.end()
    assert wrap_prompts(lm, ["Hello"], True) == first


def test_a_forked_process_has_a_process_of_its_own() -> None:
    lm = chat_model(CHATML)
    first = wrap_prompts(lm, ["Hello"], True)
    own = rendering._PROCESS._process
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, wrap_prompts(lm, ["Hello"], True)[0].encode())
            rendering._PROCESS.end()
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as said:
        assert [said.read()] == first
    os.waitpid(child, 0)
    assert wrap_prompts(lm, ["Hello"], True) == first and rendering._PROCESS._process is own


def test_a_template_is_rendered_from_any_thread_and_several_at_once(hurried: None) -> None:
    lm, made = chat_model(CHATML), []
    slow = chat_model(HOSTILE["nested loops"])

    def work(model: LanguageModel) -> None:
        try:
            made.append(wrap_prompts(model, ["Hello"], True))
        except InputError:
            made.append(None)

    threads = [threading.Thread(target=work, args=(model,)) for model in (slow, lm, lm, slow)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made, key=str) == sorted(
        [None, None, *[wrap_prompts(lm, ["Hello"], True)] * 2], key=str
    )


@pytest.mark.parametrize("template", [CHATML, NO_SYSTEM, ALWAYS, DATED])
@pytest.mark.parametrize("turns", [1, 2, 3, 5])
def test_prompts_are_those_of_plain_transformers(template: str, turns: int) -> None:
    lm = chat_model(template.replace("strftime_now", "no_such_name"))
    messages = [
        {"role": "assistant" if at % 2 else "user", "content": f"Turn {at}, with {'x' * at}."}
        for at in range(turns)
    ]
    expected = lm.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=bool(turns % 2)
    )
    assert ChatWriter(lm.tokenizer)._rendered([row["content"] for row in messages]) == expected


def test_the_date_of_a_prompt_is_the_same_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = chat_model(DATED)
    (prompt,) = wrap_prompts(lm, ["Hello"], True)
    assert "Today: 26 Jul 2024\n" in prompt and datetime(2024, 7, 26) == PROMPT_DATE
    # What transformers itself is asked for stays as it is.
    today = datetime.now().strftime("%d %b %Y")
    said = [{"role": "user", "content": "Hello"}]
    assert today in lm.tokenizer.apply_chat_template(said, tokenize=False)
    assert ChatWriter(lm.tokenizer).dated and not ChatWriter(chat_model(CHATML).tokenizer).dated


def test_what_a_template_makes_of_prompts_is_signed() -> None:
    lm = chat_model(DATED)
    other = copy.copy(lm)
    vars(other)["tokenizer_or_none"] = tokenizer = copy.deepcopy(lm.tokenizer)
    assert template_inputs(other) == template_inputs(lm)
    tokenizer.bos_token = "<unk>"  # the same template, and other prompts
    assert template_inputs(other) != template_inputs(lm)
    assert template_inputs(lm.with_system("Be brief.")) != template_inputs(lm)


def test_a_template_with_a_state_of_its_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = chat_model(CHATML)
    said = iter(range(1000))
    monkeypatch.setattr(
        lm.tokenizer, "apply_chat_template", lambda rows, **_: f"{next(said)} {rows[-1]['content']}"
    )
    with pytest.raises(InputError, match="every time"):
        template_inputs(lm)


# The system turn


def before(lm: LanguageModel) -> str:
    return wrap_prompts(lm, ["Hello"], True)[0].partition("Hello")[0]


def test_the_system_turn_of_a_template_is_found_and_set() -> None:
    lm = chat_model(CHATML)
    assert ChatWriter(lm.tokenizer).system_turn == "You are Qwen."
    assert before(lm) == "<|im_start|>system\nYou are Qwen.<|im_end|>\n<|im_start|>user\n"
    brief, none = lm.with_system("Be brief."), lm.with_system("")
    assert before(brief) == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n"
    assert before(none) == "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n"
    assert ChatWriter(lm.tokenizer, "").system_turn is None
    assert lm.system is None and before(lm).count("Qwen") == 1


@pytest.mark.parametrize(
    ("template", "system", "expected"),
    [
        (NO_SYSTEM, "", "<s>[user] "),
        (NO_SYSTEM, "Be brief.", None),
        (ALWAYS, "", None),
        (ALWAYS, "Be brief.", None),
        (LATE, "", "<s>[INST] "),
        (LATE, "Be brief.", "<s>[INST] Be brief.\n\n"),
        (DATED, "", None),
        (DATED, "Be brief.", "<s>Today: 26 Jul 2024\n\nsystem: Be brief.\nuser: "),
    ],
)
def test_a_system_message_is_followed_or_refused(
    template: str, system: str, expected: str | None
) -> None:
    lm = chat_model(template).with_system(system)
    if expected is None:
        with pytest.raises(InputError, match="--system"):
            before(lm)
    else:
        assert before(lm) == expected


def test_a_system_message_before_the_last_turn_is_told() -> None:
    lm = chat_model(LATE)
    writer = ChatWriter(lm.tokenizer, "Be brief.")
    assert writer.system_turn == "Be brief."
    text, _ = writer.write(["One.", "Eins.", "Two."])
    assert text == "<s>[INST] One.[/INST] Eins.</s>[INST] Be brief.\n\nTwo.[/INST]"
    # Of a template that changes every turn nothing can be told.
    assert ChatWriter(chat_model(LOWERS).tokenizer).system_turn is None


def test_a_system_message_needs_the_template() -> None:
    for lm, chat in ((chat_model(CHATML), False), (chat_model(None), None)):
        with pytest.raises(InputError, match="--system"):
            uses_chat(lm.with_system("Be brief."), chat)
