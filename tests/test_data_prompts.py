"""Prompts: the exact default, spans, and templates that are refused."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headscope.data.prompts import DEFAULT_TEMPLATE, Template
from headscope.data.questions import QuestionTemplate
from headscope.errors import InputError
from headscope.find.patching_scores import Patching
from headscope.find.translation_score_config import TranslationScore
from headscope.runs.signature import configuration
from headscope.studies.find.soft_gate import FindSoftGate
from headscope.studies.verify.off_target import VerifyOffTarget
from headscope.studies.verify.one_by_one import OneByOne
from headscope.studies.verify.summaries import VerifySummaries
from headscope.verify.removal_translations import Removal


def test_the_default_prompt() -> None:
    prompt = DEFAULT_TEMPLATE.render("The dog sleeps.", "English", "German")
    full = prompt.with_target("Der Hund schläft.")
    assert full.text == (
        "Translate this sentence from English to German\n"
        "Sentence: The dog sleeps.\n"
        "Answer: Der Hund schläft."
    )
    assert prompt.text == full.text.removesuffix(" Der Hund schläft.")


@settings(deadline=None)
@given(
    st.text(),
    st.text(),
    st.sampled_from(["{source}", "a{source_language}{{}}{source} b{target_language}"]),
)
def test_spans_are_exact(source: str, target: str, template: str) -> None:
    prompt = Template(template).render(source, "{source}", "English")
    full = prompt.with_target(target)
    for one in (prompt, full):
        assert one.text[slice(*one.source_span)] == source
    assert full.text[slice(*full.target_span)] == target
    assert full.target_end == len(full.text)
    assert full.text[full.target_start - 1] == " "
    assert full.text.startswith(prompt.text)


def test_the_source_is_found_where_it_stands_not_where_it_also_occurs() -> None:
    prompt = Template("Sentence Sentence: {source} Sentence").render("Sentence", "x", "y")
    assert prompt.source_span == (19, 27)


def test_braces_are_doubled_and_escapes_are_for_options() -> None:
    assert Template("{{{source}}} {{x}}").render("a", "", "").text == "{a} {x}"
    assert Template.from_option(r"{source}\nA\tB\\n").text == "{source}\nA\tB\\n"
    assert Template(r"{source}\n").text == r"{source}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Translate this", "{source} 0 times"),
        ("", "{source} 0 times"),
        ("{source} {source}", "{source} 2 times"),
        ("{source} {language}", "{language}"),
        ("{source} {}", "{}"),
        ("{source} {target}", "{target}"),
        ("{source:>9}", "{source:>9}"),
        ("{source!r}", "{source!r}"),
        ("{source", "malformed"),
        ("source}", "malformed"),
        ("{{source}}", "{source} 0 times"),
    ],
)
def test_bad_templates(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        Template(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        TranslationScore,
        Removal,
        Patching,
        partial(VerifyOffTarget, heads="0.0"),
        partial(OneByOne, heads="0.0"),
        partial(VerifySummaries, heads="0.0"),
        partial(FindSoftGate, heads="0.0"),
    ],
)
def test_settings_take_the_text_of_a_template(settings: Callable[..., Any]) -> None:
    text = "{context} {question}" if getattr(settings, "func", 0) is FindSoftGate else "a {source}"
    made, default = settings(template=text), settings()
    kind = QuestionTemplate if "context" in text else Template
    assert made.template == kind(text) and made == settings(template=kind(text)) != default
    assert configuration(made)["template"] == {"text": text}
    assert dataclasses.replace(made, template=default.template) == default
    assert pickle.loads(pickle.dumps(made)) == made
    with pytest.raises(InputError, match="placeholder"):
        settings(template="{nothing}")
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.template = text
