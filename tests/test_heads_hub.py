"""Artifacts on the Hub: pushed in one commit, fetched by name, read again without network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from headscope.errors import InputError
from headscope.heads import Gate, Geometry, HeadScores, HeadSet, Origin, resolve_heads
from headscope.heads.hub import Repository as Place
from headscope.heads.resolve import place_of
from hub_server import READER, WRITER, Hub, Repository, run, running

GEOMETRY = Geometry((3, 0, 2))
ORIGIN = Origin("find mask", "headscope-0|find mask|abc", {"seed": 7}, {"model": "ab/cd"})
SET = HeadSet(GEOMETRY, HeadSet.parse("2.1,0.2", GEOMETRY).heads, ORIGIN)
GATE = Gate(GEOMETRY, SET.scaled(0.5).values, ORIGIN)

# Each line of the first argument is an expression; what it gives or is refused with is an answer.
ASK = """
import json, sys, time
from headscope.errors import InputError
from headscope.heads import Gate, Geometry, HeadScores, HeadSet, resolve_heads
geometry = Geometry((3, 0, 2))
answers = []
for line in sys.argv[1].splitlines():
    try:
        said = eval(line)
    except InputError as error:
        said = f"refused: {error}"
    answers.append(said if isinstance(said, str) else repr(said))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def hub() -> Iterator[Hub]:
    with running() as server:
        yield server


def ask(hub: Hub, home: Path, *lines: str, token: str = "", **environment: str) -> list[str]:
    given = {"HF_TOKEN": token} if token else {}
    return run(ASK, hub.environment(home, **given, **environment), "\n".join(lines))


def stored(
    artifact: HeadScores | HeadSet | Gate, folder: Path, below: str = ""
) -> dict[str, bytes]:
    """The files of an artifact as a repository holds them."""
    artifact.save_pretrained(folder)
    return {f"{below}{file.name}": file.read_bytes() for file in folder.iterdir()}


def test_a_push_is_one_commit_and_comes_back_with_and_without_network(
    hub: Hub, tmp_path: Path
) -> None:
    SET.save_pretrained(tmp_path / "set")
    GATE.save_pretrained(tmp_path / "gate")
    scores = HeadScores(
        GEOMETRY, np.array([[1.0, 2, 3], [0, 0, 0], [5, 4, 0]]), "m", config={"a": 1}
    )
    scores.save_pretrained(tmp_path / "scores")
    home = tmp_path / "home"
    local = [f"'{tmp_path / name}'" for name in ("set", "gate", "scores")]
    first, again, *_ = ask(
        hub,
        home,
        f"HeadSet.from_pretrained({local[0]}).push_to_hub('me/heads')",
        f"HeadSet.from_pretrained({local[0]}).push_to_hub('me/heads')",
        f"Gate.from_pretrained({local[1]}).push_to_hub('me/several', subfolder='a/gate', "
        "private=True, revision='tried', commit_message='A gate')",
        f"HeadScores.from_pretrained({local[2]}).push_to_hub('me/several', subfolder='scores', "
        "revision='tried')",
        token=WRITER,
    )
    heads = hub.repositories["me/heads"]
    assert first == again == f"{hub.url}/me/heads/commit/{heads.refs['main']}"
    assert heads.messages == ["initial commit", "Add attention head artifact"]
    assert not heads.private
    files = heads.files("main")
    assert set(files) == {".gitattributes", "README.md", "config.json", "heads.safetensors"}
    assert files["heads.safetensors"] == (tmp_path / "set" / "heads.safetensors").read_bytes()
    card = files["README.md"].decode()
    assert 'HeadSet.from_pretrained("me/heads")' in card
    front = yaml.safe_load(card.split("---\n")[1])
    assert front["library_name"] == "headscope" and front["base_model"] == "ab/cd"

    several = hub.repositories["me/several"]
    assert several.private
    assert set(several.files("main")) == {".gitattributes"}
    assert several.messages[1:] == ["A gate", "Add attention head artifact"]
    files = several.files("tried")
    assert {path for path in files if "/" not in path} == {".gitattributes", "README.md"}
    card = files["a/gate/README.md"].decode()
    assert 'from_pretrained("me/several", revision="tried", subfolder="a/gate")' in card
    assert yaml.safe_load(files["README.md"].decode().split("---\n")[1])["base_model"] == "ab/cd"

    lines = [
        f"HeadSet.from_pretrained('me/heads') == HeadSet.from_pretrained({local[0]})",
        f"HeadSet.from_pretrained('me/heads').origin == HeadSet.from_pretrained({local[0]}).origin",
        "Gate.from_pretrained('me/several', revision='tried', subfolder='a/gate')"
        f" == Gate.from_pretrained({local[1]})",
        "HeadScores.from_pretrained('hf://me/several@tried/scores')"
        f" == HeadScores.from_pretrained({local[2]})",
        "str(resolve_heads('me/heads', None, geometry))",
        "str(resolve_heads('hf://me/several@tried', 2, geometry))",
        "str(resolve_heads('hf://me/several@tried/a/gate', None, geometry))",
    ]
    expected = ["True"] * 4 + ["L2.H1,L0.H2", "L2.H0,L2.H1", "L0.H2,L2.H1"]
    fresh = tmp_path / "fresh"
    assert ask(hub, fresh, *lines, token=READER) == expected
    before = len(hub.asked)
    # The same cache: switched off, and with a Hub that cannot be reached.
    assert ask(hub, fresh, *lines, HF_HUB_OFFLINE="1") == expected
    assert len(hub.asked) == before
    assert ask(hub, fresh, lines[0], HF_ENDPOINT="http://127.0.0.1:9") == ["True"]


def test_what_the_hub_does_not_give_is_one_sentence(hub: Hub, tmp_path: Path) -> None:
    files = stored(GATE, tmp_path / "gate")
    weights = files["gate.safetensors"]
    named = {
        "damaged": {**files, "gate.safetensors": weights[:-1] + b"\x55"},
        "short": {**files, "gate.safetensors": weights[:9]},
        "model": {"config.json": b'{"model_type": "llama"}', "model.safetensors": b"0" * 99},
        "below": stored(GATE, tmp_path / "gate", "part/"),
        "whole": files,
        "gated": files,
        "hidden": files,
    }
    for name, content in named.items():
        hub.repositories[f"other/{name}"] = Repository(private=name == "hidden")
        hub.repositories[f"other/{name}"].commit("main", content, "x")
    hub.repositories["other/gated"].gated = True
    hub.failing["other/broken"] = 418
    hub.failing["other/forbidden"] = 403
    expected = {
        "Gate.from_pretrained('other/gone')": "neither a folder other/gone nor a Hub repository",
        "Gate.from_pretrained('other/hidden')": "nor a Hub repository of that name that you may",
        "Gate.from_pretrained('other/gated')": "The Hub repository other/gated is gated; ask",
        "Gate.from_pretrained('other/broken')": "other/broken could not be downloaded",
        "Gate.from_pretrained('other/forbidden')": "not let you read the repository.*403.*HF_TOKEN",
        "Gate.from_pretrained('other/whole', revision='v9')": "has no revision v9",
        "Gate.from_pretrained('other/whole', subfolder='x')": "holds no gate in its folder x",
        "Gate.from_pretrained('other/below')": "holds no gate in its top folder.*name the subf",
        "HeadSet.from_pretrained('other/whole')": "holds 'gate', but 'heads' is needed",
        "Gate.from_pretrained('other/model')": "was not written by headscope",
        "Gate.from_pretrained('other/damaged')": "gate.safetensors.*does not match the digest",
        "Gate.from_pretrained('other/short')": "gate.safetensors.*is damaged",
        "resolve_heads('other/whole', None, Geometry((2, 2)))": "was made for a model of",
        "resolve_heads('other/gone', None, geometry)": r"'other/gone' names no heads \(.*: There",
        "resolve_heads('other/model', None, geometry)": "no scores, no heads and no gate",
    }
    answers = ask(hub, tmp_path / "home", *expected)
    for (line, words), answer in zip(expected.items(), answers, strict=True):
        assert answer.startswith("refused: ") and "\n" not in answer, line
        assert re.search(words, answer), line
    assert not any("model.safetensors" in one for one in hub.asked)
    line = "Gate.from_pretrained('other/whole')"
    wrong = ask(hub, tmp_path / "none", line, token="hf_wrong")
    offline = ask(hub, tmp_path / "none", line, HF_HUB_OFFLINE="1")
    assert "not let you read the repository other/whole (status 401)" in wrong[0]
    assert "not (wholly) in the local cache while the Hub" in offline[0]


def test_a_refused_push_changes_nothing(hub: Hub, tmp_path: Path) -> None:
    GATE.save_pretrained(tmp_path / "gate")
    hub.repositories["me/model"] = Repository()
    hub.repositories["me/model"].commit("main", {"config.json": b"{}"}, "x")
    hub.repositories["me/set"] = Repository()
    hub.repositories["me/set"].commit("main", stored(SET, tmp_path / "set", "s/"), "x")
    hub.failing["me/fails/commit"] = 418
    gate = f"Gate.from_pretrained('{tmp_path / 'gate'}').push_to_hub"
    expected = {
        f"{gate}('me/model')": "holds the config.json of something else (a model)",
        f"{gate}('me/set', subfolder='s')": "s/config.json of something else (heads)",
        f"{gate}('you/new')": "not let you write to you/new (status 403); set HF_TOKEN",
        f"{gate}('me/fails')": "The push to me/fails failed",
        f"{gate}('me/a--b')": "is no possible Hub id",
        f"{gate}('new')": "'new' is no name of a Hub repository; write OWNER/NAME",
        f"{gate}('me/new', subfolder='../x')": "is no folder inside",
    }
    commits = {name: list(one.messages) for name, one in hub.repositories.items()}
    answers = ask(hub, tmp_path / "home", *expected, token=WRITER)
    for (line, words), answer in zip(expected.items(), answers, strict=True):
        assert answer.startswith("refused: ") and words in answer and "\n" not in answer, line
    left = {name: one.messages for name, one in hub.repositories.items()}
    assert left == {**commits, "me/fails": ["initial commit"]}
    (unknown,) = ask(hub, tmp_path / "home", f"{gate}('me/gate')")
    assert "not let you write to me/gate (status 401)" in unknown
    (off,) = ask(hub, tmp_path / "home", f"{gate}('me/gate')", HF_HUB_OFFLINE="1")
    assert "while the Hub is switched off by HF_HUB_OFFLINE" in off


# Names: what is here comes first, and a slip costs no question to the network


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("me/heads", Place("me/heads")),
        ("hf://me/heads", Place("me/heads")),
        ("hf://models/me/heads@v1", Place("me/heads", "v1")),
        ("hf://me/heads@refs/pr/3/a/b", Place("me/heads", "refs/pr/3", "a/b")),
        ("hf://me/heads/a", Place("me/heads", None, "a")),
        ("heads", None),
        ("me/heads/a", None),
        ("./heads", None),
        ("/me/heads", None),
        ("~/heads", None),
        ("me/heads.csv", None),
        ("here/heads", None),  # below a folder that exists
        ("5.3,7.11", None),
        ("мы/heads", None),
        ("hf://heads", None),
    ],
)
def test_which_texts_are_repositories(
    text: str, place: Place | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here").mkdir()
    assert Place.parse(text) == place


def test_a_folder_comes_before_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    GATE.save_pretrained(tmp_path / "me" / "gate")
    GATE.save_pretrained(tmp_path / "me" / "several" / "a")
    assert Gate.from_pretrained("me/gate") == GATE
    assert Gate.from_pretrained("me/several", subfolder="a") == GATE
    assert place_of("me/gate") == Path("me/gate")
    with pytest.raises(InputError, match="only those have revisions"):
        Gate.from_pretrained("me/gate", revision="v1")
    # No path of the program's own is ever looked up elsewhere.
    with pytest.raises(InputError, match=r"holds no config\.json; name a folder"):
        Gate.from_pretrained(Path("you/gate"))
    with pytest.raises(InputError, match="names no heads: it is neither a folder nor a file"):
        resolve_heads("me/typo", None, GEOMETRY)
    with pytest.raises(InputError, match=r"'you/typo' names no heads.*HF_HUB_OFFLINE"):
        resolve_heads("you/typo", None, GEOMETRY)
