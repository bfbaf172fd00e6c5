"""Chat templates: what they are given, what they may not do, and what a run says of them."""

from __future__ import annotations

import copy
import html
import json
import os
import re
import resource
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import find_helpers
from conftest import json_of
from headscope.data.pairs import write_pairs
from headscope.errors import Caution, InputError
from headscope.lm import rendering
from headscope.lm.model import LanguageModel
from headscope.lm.prompting import encode_answers, uses_chat, wrap_prompts
from headscope.lm.rendering import PROMPT_DATE
from headscope.lm.tokens import ChatWriter, end_of_turn
from headscope.shown.words import sentence_of
from headscope.studies.models import (
    ModelChoice,
    about_prompts,
    given_model,
    template_inputs,
)
from headscope.studies.pairs import PairsChoice
from headscope.studies.use.prompts import GivenPrompt, rendered
from headscope.studies.verify.removal import VerifyRemoval
from headscope.studies.verify.removal import comparison as removal

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


def chatml(answer: str, begun: str, before: str = "") -> str:
    """A template with these pieces behind the header of an answer, in a turn and in a prompt."""
    return (
        f"{before}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n"
        f"{{% if m.role == 'assistant' %}}{answer}{{% endif %}}{{{{ m.content }}}}<|im_end|>\n"
        "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
        f"{begun}{{% endif %}}"
    )


# What families of templates have behind a user's turn. Of each what prompts end in, what stands
# before the answer, and what the template is told; None: the prompt is the generation prompt.
_TURN = "<|im_end|>\n<|im_start|>assistant\n"
CLOSED = (
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
)
PLACES: dict[str, tuple[str, str | None, str, dict[str, Any]]] = {
    "llama": (
        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
        "{{ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
        "<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}",
        None, "", {},
    ),
    "mistral": (
        "<s>{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{% else %} {{ m.content }}</s>{% endif %}{% endfor %}",
        None, " ", {},
    ),
    "qwen 3": (
        chatml("{% if loop.last %}<think>\n\n</think>\n\n{% endif %}", CLOSED), None, "", {},
    ),
    "no thoughts in turns": (chatml("", CLOSED), None, "", {}),
    "glm": (
        "{% for m in messages %}{% if m.role == 'user' %}<|user|>\n{{ m.content }}{{ '/nothink' if "
        "not enable_thinking }}{% else %}<|assistant|>\n<think></think>\n{{ m.content.strip() }}"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
        "{{ '\n<think></think>' if not enable_thinking }}{% endif %}",
        None, "\n", {},
    ),
    "deepseek 3": (
        "{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}"
        "<|Assistant|></think>{{ m.content }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|Assistant|>{% if thinking %}<think>{% else %}</think>"
        "{% endif %}{% endif %}",
        None, "", {},
    ),
    "gemma": (
        "{% if enable_thinking or messages[0].role == 'system' %}<|turn>system\n"
        "{{ '<|think|>\n' if enable_thinking }}<turn|>\n{% endif %}{% for m in messages %}"
        "{% if m.role != 'system' %}<|turn>{{ m.role }}\n{{ m.content | trim }}<turn|>\n"
        "{% endif %}{% endfor %}{% if add_generation_prompt %}<|turn>assistant\n"
        "{{ '<|channel>thought\n<channel|>' if not enable_thinking }}{% endif %}",
        None, " ", {},
    ),
    "a closed channel": (
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final"
        "{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}"
        "<|start|>assistant<|channel|>analysis<|message|><|end|>"
        "<|start|>assistant<|channel|>final<|message|>{% endif %}",
        None, " ", {},
    ),
    "a thought of tags that end": (
        chatml("", "<|think_start|><|think_end|>"), None, " ", {},
    ),
    "a thought of a suffix": (
        chatml("", "<|inner_prefix|><|inner_suffix|>\n"), None, "", {},
    ),
    "a tag against thoughts": (
        chatml("", "{{ '<|nothink|>' if not reason }}", "{{ 'Think aloud.' if reason }}"),
        None, " ", {},
    ),
    "a channel that stays open": (
        "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant<|channel|>analysis<|message|>{% endif %}",
        "<|end|><|start|>assistant<|message|>", "", {},
    ),
    "a switch that asks for a thought elsewhere": (
        chatml("", "{{ '<reflect>' if not reason }}", "{{ 'Think aloud. ' if reason }}"),
        _TURN, "", {},
    ),
    "a switch that asks for a thought in the system message": (
        chatml("", "{{ '<reflect>' if not reason }}",
               "{{ 'Think aloud. ' if reason and messages[0].role == 'system' }}"),
        _TURN, "", {},
    ),
    "a switch that asks for a thought in the user's turn": (
        chatml("", "{{ '<reflect>' if not reason }}").replace(
            "<|im_end|>", "{{ ' /think' if reason and m.role == 'user' }}<|im_end|>"),
        _TURN, "", {},
    ),
    "a thought that only thinking leaves out": (
        chatml("", "{{ '<reflect>' if not enable_thinking }}"), _TURN, "", {},
    ),
    "a switch beside another": (
        chatml("", "{{ '<think>' if not quiet }}", "{{ 'Think aloud. ' if brief }}"),
        _TURN, "", {"quiet": True},
    ),
    "a switch where prompts are always begun": (
        "{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
        "{{ '[THINK]' if loop.last and effort != 'none' }}{% else %} {{ m.content }}</s>"
        "{% endif %}{% endfor %}",
        " [/INST]", " ", {"effort": "none"},
    ),
    "numbered turns": (
        "{% for m in messages %}[{{ loop.index }}]<{{ m.role }}>{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}[{{ messages | length + 1 }}]<assistant>{% endif %}",
        None, "", {},
    ),
    "deepseek r1": (
        "{% for m in messages %}{% if m.role == 'user' %}<|User|>{{ m.content }}{% else %}"
        "<|Assistant|>{{ m.content.split('</think>')[-1] }}<|end|>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|Assistant|><think>\n{% endif %}",
        "<|Assistant|>", "", {},
    ),
    "qwen 3 that thinks": (
        chatml("{% if loop.last %}<think>\n\n</think>\n\n{% endif %}", "<think>\n"),
        f"{_TURN}<think>\n\n</think>\n\n", "", {},
    ),
    "harmony": (
        "{% for m in messages %}<|start|>{{ m.role }}{% if m.role == 'assistant' %}<|channel|>final"
        "{% endif %}<|message|>{{ m.content }}<|end|>{% endfor %}"
        "{% if add_generation_prompt %}<|start|>assistant{% endif %}",
        "<|end|><|start|>assistant<|channel|>final<|message|>", "", {},
    ),
    "no prompt": (
        "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}",
        "\n[assistant]", " ", {},
    ),
    "a switch": (
        chatml("", "{% if thinking is not defined or thinking %}<think>\n{% endif %}"),
        _TURN, "", {"thinking": False},
    ),
    "a switch that is on": (
        chatml("", "{% if not plain_answers %}[THINK]{% endif %}"),
        _TURN, "", {"plain_answers": True},
    ),
    "an effort": (
        chatml("", "{% if effort not in ['none', 'off'] %}<|begin_of_thought|>{% endif %}"),
        _TURN, "", {"effort": "none"},
    ),
    "a budget": (
        chatml("", "{% if budget is defined and budget == 0 %}<seed:think><seed:b>No budget."
               "</seed:b>\n</seed:think>{% else %}<seed:think>{% endif %}"),
        f"{_TURN}<seed:think><seed:b>No budget.</seed:b>\n</seed:think>", " ", {"budget": 0},
    ),
    "a variable that ends it elsewhere": (
        chatml("", "{{ '<think>\n' if thinking is not defined or thinking else '<reflect>' }}"),
        _TURN, "", {},
    ),
}  # fmt: skip
BY_SYSTEM = chatml(
    "",
    "{% if ns.think %}<think>\n{% else %}<think></think>{% endif %}",
    "{% set ns = namespace(think=true) %}{% for m in messages %}{% if '/no_think' in m.content %}"
    "{% set ns.think = false %}{% endif %}{% endfor %}",
)
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


def test_at_exit_the_process_ends_behind_the_reply_that_a_thread_waits_for() -> None:
    process, replies = rendering._Process(), list[Any]()
    loops = "{% for i in range(99) %}{% for j in range(9999) %}{% endfor %}{% endfor %}done"
    request = {"template": loops, "messages": [], "words": {}}
    thread = threading.Thread(target=lambda: replies.append(process.ask(request)))
    thread.start()
    while thread.is_alive() and not process._lock.locked():
        time.sleep(0.001)
    process.end_at_exit()
    thread.join()
    assert replies == [{"text": "done", "dated": False}] and process._process is None


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


# Where answers stand


def plain(lm: LanguageModel, turns: list[str], **told: Any) -> str:
    """What transformers makes of a conversation by itself."""
    messages = [
        {"role": "assistant" if at % 2 else "user", "content": turn}
        for at, turn in enumerate(turns)
    ]
    text: str = lm.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=bool(len(turns) % 2),
        **{"enable_thinking": False, **told},
    )  # fmt: skip
    return text


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("turns", [["Hello"], ["One.", "Eins.", "Hello"]])
def test_answers_stand_where_the_template_puts_them(name: str, turns: list[str]) -> None:
    template, ends, joint, told = PLACES[name]
    lm = chat_model(template)
    writer = ChatWriter(lm.tokenizer)
    prompt, start = writer.write(turns)
    assert prompt[start:].startswith("Hello") and writer.joint == joint
    if ends is None:
        assert prompt == plain(lm, turns) and writer.contradiction is None
        assert writer.probes[0] == plain(lm, ["HEADSCOPE"]) and len(writer.probes) == 3
    else:
        assert prompt == plain(lm, turns, **told).partition("Hello")[0] + "Hello" + ends
        assert writer.contradiction is not None
        assert writer.probes[0] != plain(lm, ["HEADSCOPE"])
    if told:
        assert prompt == plain(lm, turns, **told) != plain(lm, turns)
        [(variable, value)] = told.items()
        assert f"{variable}={json.dumps(value)}" in writer.contradiction
        assert about_prompts(lm)["template_told"] == f"{variable}={json.dumps(value)}"
    elif name not in CLOSES_A_THOUGHT:
        assert plain(lm, [*turns, "Antwort"]).startswith(prompt + joint + "Antwort")
        [row] = encode_answers(lm, turns[-1:], ["Antwort"])
        whole = plain(lm, [*turns[-1:], "Antwort"])
        assert [*row.ids] == lm.encode(whole, special=False)[: len(row.ids)]
        assert lm.decode(row.ids[row.start :]).strip() == "Antwort"


@given(
    st.sampled_from(["<|assistant|>", "assistant: ", "[A]\n", "<s>assistant\n"]),
    st.sampled_from(["", "<think>", "[THINK]\n", "<|channel|>analysis<|message|>"]),
    st.sampled_from(["", "<think>\n\n</think>\n", "<|channel|>final<|message|>", "Answer: "]),
    st.sampled_from(["", "x ", "\n"]),
)
@settings(deadline=None, max_examples=30)
def test_a_reference_follows_what_the_template_writes(
    header: str, opened: str, before: str, user_end: str
) -> None:
    """Whatever a generation prompt opens: an answered conversation begins as the row does."""
    lm = chat_model(
        f"{{% for m in messages %}}{{% if m.role == 'assistant' %}}{header}{before}{{% endif %}}"
        f"{{{{ m.content }}}}{user_end};{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{header}{opened}{{% endif %}}"
    )
    writer = ChatWriter(lm.tokenizer)
    prompt, _ = writer.write(["Hello"])
    assert plain(lm, ["Hello", "Antwort"]).startswith(prompt + writer.joint + "Antwort")
    assert (writer.contradiction is None) == (prompt == plain(lm, ["Hello"]))
    assert uses_chat(lm) and not uses_chat(lm, None, plain(lm, ["{source}"]))


CLOSES_A_THOUGHT = (
    "gemma", "a closed channel", "a thought of tags that end", "a thought of a suffix",
    "a tag against thoughts", "no thoughts in turns", "a budget",
)  # fmt: skip


@pytest.mark.parametrize("system", ["Be brief.", ""])
def test_a_gemma_prompt_with_a_system_message_asks_for_no_thought(system: str) -> None:
    lm = chat_model(PLACES["gemma"][0].replace("<turn|>", "{{ messages[0].content }}<turn|>", 1))
    prompt, _ = ChatWriter(lm.tokenizer, system).write(["Hello"])
    asked = [{"role": "user", "content": "Hello"}]
    messages = [*([{"role": "system", "content": system}] if system else []), *asked]
    assert prompt == lm.tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
    )


@pytest.mark.parametrize("condition", ["'/think' in {}", "{} | length > 9"])
@pytest.mark.parametrize("closed", [False, True])
def test_a_prompt_that_opens_a_thought_for_some_texts_is_refused(
    condition: str, closed: bool
) -> None:
    """Whether other prompts are those of the template or not."""
    condition = condition.format("messages[-1].content")
    opened = f"{{% if {condition} %}}<think>{{% endif %}}"
    writer = ChatWriter(chat_model(chatml("", opened if closed else f"<r>{opened}")).tokenizer)
    if closed:
        assert writer.write(["Hello"])[0].endswith(_TURN)
    with pytest.raises(InputError, match="place of an answer is not known") as refused:
        writer.write(["Translate it /think"])
    assert len(str(refused.value).splitlines()) == 1
    lm = chat_model(chatml("", opened))
    asked = ({"role": "user", "content": "Translate it /think"},)
    with pytest.raises(InputError, match="place of an answer is not known"):
        rendered(lm, [GivenPrompt("1", asked, "here")])


@pytest.mark.parametrize("words", ["a", "assistant", "HEADSCOPE", "<|im_start|>"])
def test_words_of_a_prompt_are_found_before_the_header_of_its_answer(words: str) -> None:
    text, start = ChatWriter(chat_model(CHATML).tokenizer).write([words])
    assert text[:start].endswith("<|im_start|>user\n") and text[start:].startswith(words)


def test_a_system_message_that_closes_a_thought_is_told() -> None:
    lm = chat_model(BY_SYSTEM)
    assert "--system /no_think" in str(ChatWriter(lm.tokenizer).contradiction)
    assert wrap_prompts(lm, ["Hello"], True)[0].endswith("<|im_start|>assistant\n")
    told = lm.with_system("/no_think")
    assert ChatWriter(told.tokenizer, "/no_think").contradiction is None
    assert wrap_prompts(told, ["Hello"], True)[0].endswith("assistant\n<think></think>")
    assert template_inputs(told) != template_inputs(lm)


def test_conversations_of_the_users_go_on_where_answers_stand() -> None:
    lm = chat_model(PLACES["harmony"][0])
    asked = [{"role": "user", "content": "Hello"}]
    begun = [*asked, {"role": "assistant", "content": "Ant"}]
    for messages, end in ((asked, ""), (begun, "Ant")):
        prompt = GivenPrompt("1", tuple(messages), "here")
        [row] = rendered(lm, [prompt])
        assert row.text == plain(lm, ["Hello", "@"]).partition("@")[0] + end


@pytest.mark.parametrize("name", ["deepseek r1", "a switch"])
def test_a_contradiction_is_told_in_json_terminal_and_page(
    name: str, command: Callable[..., Any], tmp_path: Path
) -> None:
    lm = chat_model(PLACES[name][0])
    lm.model.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    words = str(ChatWriter(lm.tokenizer).contradiction)
    asked = [
        "find", "key-tokens", "--model", tmp_path / "model", "--prompt", "the camp",
        "--word", "camp", "--heads", "1.0", "--answer", "Feuer", "--out", tmp_path / "run",
    ]  # fmt: skip
    said = command(*asked, "--json")
    assert said.code == 0 and words in " ".join(said.err.split())
    assert words in [each[0].lower() + each[1:-1] for each in cautions_of(said.out)]
    assert words[-40:] in " ".join(command(*asked).out.split())  # of the finished run
    assert command("report", tmp_path / "run").code == 0
    page = html.unescape((tmp_path / "run" / "report.html").read_text("utf-8"))
    assert words[-40:] in page


def cautions_of(printed: str) -> list[str]:
    cautions: list[str] = json_of(printed)["cautions"]
    return cautions


def test_scores_have_it_and_the_settings_too(command: Callable[..., Any], tmp_path: Path) -> None:
    lm = chat_model(PLACES["harmony"][0])
    words = sentence_of(str(ChatWriter(lm.tokenizer).contradiction))
    own = copy.deepcopy(lm.model)
    own.generation_config.update(repetition_penalty=1.5)
    own.save_pretrained(tmp_path / "model")
    lm.tokenizer.save_pretrained(tmp_path / "model")
    write_pairs(tmp_path / "pairs.tsv", find_helpers.pairs("en-de", 3).pairs)
    signatures = []
    for name, more in (("run", ()), ("followed", ("--generation-config",))):
        said = command(
            "find", "translation-score", "--model", tmp_path / "model", "--pair", "en-de",
            "--data", tmp_path / "pairs.tsv", "--out", tmp_path / name, "--json", *more,
        )  # fmt: skip
        told = json_of(said.out)
        signatures.append(told["signature"])
        assert told["cautions"].count(words) == 1
        assert command("report", tmp_path / name).code == 0
        page = html.unescape((tmp_path / name / "report.html").read_text("utf-8"))
        assert words[-40:] in page and "repetition_penalty=1.5" in page
    assert len(set(signatures)) == 2


def test_a_comparison_has_it_among_its_cautions(tmp_path: Path) -> None:
    lm, pairs = chat_model(PLACES["deepseek r1"][0]), find_helpers.pairs("en-de", 3)
    write_pairs(tmp_path / "pairs.tsv", pairs.pairs)
    choice = PairsChoice(("en-de",), (str(tmp_path / "pairs.tsv"),))
    with given_model(lm) as named:
        config = VerifyRemoval(
            heads="0.0",
            model=ModelChoice(**named),
            pairs=choice,
            measure=("loss",),
            draws=1,
            controls=("random",),
        )
        with pytest.warns(Caution, match=r"behind '<\|Assistant\|>'"):
            found = removal.run(config, tmp_path / "run")
    words = str(ChatWriter(lm.tokenizer).contradiction)
    assert sentence_of(words) in found.cautions


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
