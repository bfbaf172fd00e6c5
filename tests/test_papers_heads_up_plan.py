"""What of Heads Up!'s tables is planned, of which data, and by which of the paper's settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from heads_up_helpers import configs_of, llama_setting
from headscope.recipes.papers.heads_up import families
from headscope.recipes.papers.heads_up.asked import directions
from headscope.recipes.papers.paper import Setting, Steering


@pytest.fixture
def llama(tmp_path: Path) -> Setting:
    return llama_setting(tmp_path)


def test_families_are_tested_on_what_their_masks_hold_out(
    llama: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    steered = replace(
        llama, steering=Steering(limit=40, shots=2, chat=False, instruction="{input}!")
    )
    tested = configs_of(steered, monkeypatch, families, "verify_families")["families"].tasks
    (trained, *_) = (one.choice for one in directions(steered))
    # All but the directions and their files is what the masks were trained by.
    assert replace(tested, pair=trained.pair, data=trained.data) == trained
    assert (tested.limit, tested.held_out, tested.shots) == (40, 20, 2)
