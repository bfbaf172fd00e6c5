"""The documentation says what the code does: commands parse, snippets import, links lead somewhere.

`make docs` builds the site; here it is built only where it is older than what it is made of.
"""

from __future__ import annotations

import ast
import html
import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer
from filelock import FileLock
from typer.main import get_command

import headscope
from browser_helpers import chromium, visit
from headscope.cli.app import app
from headscope.cli.commands import commands_of

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "site"
PAGES = sorted(DOCS.rglob("*.md"))
TOLD = [ROOT / "README.md", *PAGES]
FENCE = re.compile(r"^```([\w-]*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: Pages that somebody reads from their beginning, each for one kind of reader.
READ = [ROOT / "README.md"] + [
    DOCS / f"{name}.md"
    for name in ("start", "which-heads", "corpora", "lesson", "languages", "models")
]


def tool(name: str) -> ModuleType:
    """A module of docs/tools, which is a folder of scripts and no package."""
    sys.path.insert(0, str(DOCS / "tools"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def changed() -> float:
    """When anything that the site is made of was changed last."""
    sources = [
        ROOT / "mkdocs.yml",
        *(file for file in DOCS.rglob("*") if file.is_file() and "__pycache__" not in file.parts),
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "bench" / "results").glob("peers*.json"),
    ]
    return max(file.stat().st_mtime for file in sources)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, as old as its mark."""
    with FileLock(tmp_path_factory.getbasetemp().parent / "docs.lock"):
        mark = SITE / tool("build").MARK
        if not mark.exists() or mark.stat().st_mtime < changed():
            done = subprocess.run(
                [sys.executable, "docs/tools/build.py"], cwd=ROOT, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stdout + done.stderr
    return SITE


def blocks(file: Path, *languages: str) -> Iterator[str]:
    for language, text in FENCE.findall(file.read_text(encoding="utf-8")):
        if language in languages:
            yield text


def sentences(page: str) -> Iterator[str]:
    """The prose of a page, without code blocks, tables, headings and pictures."""
    prose = re.sub(r"^(?:\||#+ |!\[).*$", "", FENCE.sub("\n", page), flags=re.MULTILINE)
    prose = re.sub(r"`[^`]+`", "`code`", re.sub(r"\]\([^)]*\)", "]", prose))
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) )", prose):
        yield from filter(None, re.split(r"(?<=[.!?])[*”)\]]*\s+", paragraph.strip()))


def words(text: str) -> int:
    return len(re.findall(r"\S*\w\S*", text))


@pytest.mark.parametrize("file", READ, ids=lambda file: file.name)
def test_no_sentence_of_a_page_for_readers_is_long(file: Path) -> None:
    told = list(sentences(file.read_text(encoding="utf-8")))
    assert [one for one in told if words(one) > 30] == []
    assert len(told) > 20


def test_sentences_are_counted_without_what_is_no_prose() -> None:
    page = "# A title\n\nOne two.\nThree *four.* `five six` [seven](a b).\n\n```\nx y\n```\n\n"
    assert [words(one) for one in sentences(page + "| a | b |\n* eight nine\n* ten")] == [
        2,
        2,
        2,
        2,
        1,
    ]


def test_the_readme_is_read_in_five_minutes() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 1200


def command_lines() -> list[tuple[str, str]]:
    """Every line of a shell block that calls headscope, with the page it is on."""
    found = []
    for file in TOLD:
        for text in blocks(file, "", "bash", "sh", "console"):
            for line in text.replace("\\\n", " ").splitlines():
                if line.startswith("headscope "):
                    found.append((str(file.relative_to(ROOT)), line))
    return found


@cache
def root_command() -> Any:
    return get_command(app)


def leaf_of(words: list[str]) -> tuple[Any, list[str]]:
    """The command that words call, and what is left of them for it."""
    command, rest = root_command(), list(words)
    while hasattr(command, "commands"):
        command = commands_of(command)[rest.pop(0)]
    return command, rest


@pytest.mark.parametrize(("page", "line"), command_lines())
def test_a_command_on_a_page_parses(page: str, line: str) -> None:
    # A bare ellipsis stands for more of what is before it.
    words = shlex.split(re.sub(r"(?<=\s)…(?=\s|$)", "", line), comments=True)
    command, rest = leaf_of(words[1:])
    command.make_context(line, rest)


def test_a_wrong_command_would_not_parse() -> None:
    command, rest = leaf_of(["verify", "removal", "--heads", "5.3", "--dose", "2"])
    with pytest.raises(typer.TyperException, match="--dose"):
        command.make_context("headscope verify removal", rest)
    assert len(command_lines()) > 80


@pytest.mark.parametrize("file", TOLD, ids=lambda file: str(file.relative_to(ROOT)))
def test_snippets_compile_and_what_they_import_is_there(file: Path) -> None:
    for text in blocks(file, "python"):
        for node in ast.walk(ast.parse(text)):
            match node:
                case ast.Import(names=names):
                    asked = [(name.name, None) for name in names]
                case ast.ImportFrom(module=str(module), names=names):
                    asked = [(module, name.name) for name in names]
                case _:
                    continue
            for module, name in asked:
                if not module.startswith("headscope"):
                    assert importlib.util.find_spec(module), module
                elif not (name is None or hasattr(importlib.import_module(module), name)):
                    importlib.import_module(f"{module}.{name}")


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    pages = {file: file.read_text(encoding="utf-8") for file in site.rglob("*.html")}
    ids = {file: set(re.findall(r'\bid="([^"]+)"', text)) for file, text in pages.items()}
    broken = []
    for file, text in pages.items():
        if file.name == "404.html":  # served for any address, so its links begin at the root
            continue
        for link in set(re.findall(r'(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = html.unescape(link).partition("#")
            target = (file.parent / path).resolve() if path else file
            if not target.exists() or (anchor and target in ids and anchor not in ids[target]):
                broken.append(f"{file.relative_to(site)}: {link}")
    assert not broken
    assert len(pages) > 35


def test_every_command_with_its_options_is_in_the_reference(site: Path) -> None:
    walked = list(tool("commands").walk(root_command()))
    assert ("find", "lahis") in [path for path, _ in walked]
    for path, command in walked:
        page = site / "reference" / "commands" / (f"{path[0]}.html" if path[1:] else "index.html")
        text = page.read_text(encoding="utf-8")
        _, begun, rest = text.partition(f'id="{"-".join(path)}"')
        assert begun, f"headscope {' '.join(path)} is not on {page.name}"
        section = html.unescape(rest.partition("<h2 ")[0])
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert f"<code>{parameter.opts[0]}" in section, (path, parameter.opts)


def test_every_public_name_is_in_the_reference(site: Path) -> None:
    text = "".join(
        file.read_text(encoding="utf-8") for file in (site / "reference" / "python").glob("*.html")
    )
    public = tool("public")
    for room in ("heads", "lm", "data", "measure", "runs"):
        module = importlib.import_module(f"headscope.{room}")
        assert public.names(module.__name__) == tuple(module.__all__)
        for name in module.__all__:
            assert f'id="headscope.{room}.{name}"' in text, f"headscope.{room}.{name}"
    for name in set(headscope.__all__) - {"__version__", "find", "verify", "compare", "use"}:
        assert re.search(rf'id="headscope\.[\w.]+\.{name}"', text), name
    from headscope.find.registry import methods

    for method in methods():
        assert re.search(rf'id="[\w.]+\.{method.function}"', text), method.function
        assert re.search(rf'id="[\w.]+\.{method.config}"', text), method.config
    for name in public.studies():
        assert f'id="{name}"' in text, name


def test_every_method_has_its_page() -> None:
    from headscope.find.registry import methods

    told = "".join(file.read_text(encoding="utf-8") for file in (DOCS / "methods").glob("*.md"))
    for method in methods():
        command = "verify heads" if method.name == "single-removal" else f"find {method.name}"
        assert f"headscope {command} " in told, method.name
    listed = (DOCS / "methods" / "index.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for file in (DOCS / "methods").glob("*.md"):
        assert f"methods/{file.name}" in navigation
        assert file.name == "index.md" or f"({file.name})" in listed, file.name
    for file in DOCS.glob("*.md"):
        assert re.search(rf"(- |: ){file.name}$", navigation, re.MULTILINE), file.name


def test_no_page_names_a_place_of_the_machine_it_was_made_on(site: Path) -> None:
    texts = [*site.rglob("*.html"), *site.rglob("*.js*"), *PAGES, *DOCS.rglob("*.ipynb")]
    for file in texts:
        found = re.search(
            r"(?<![\w.~-])/(?:work|tmp|root|home)/\w+", file.read_text(encoding="utf-8")
        )
        assert found is None, f"{file}: {found and found[0]}"


def test_formulas_are_drawn_without_scripts(site: Path) -> None:
    drawn = 0
    for file in site.rglob("*.html"):
        for formula in re.findall(r"<math .*?</math>", file.read_text(encoding="utf-8"), re.DOTALL):
            drawn += 1
            assert "\\" not in formula, f"{file.name}: a command that was not understood: {formula}"
    written = sum(
        len(re.findall(r"^```math$|\$`", file.read_text(encoding="utf-8"), re.MULTILINE))
        for file in PAGES
    )
    assert drawn == written > 20


def test_formulas_keep_what_is_around_them() -> None:
    made = tool("formulas").as_mathml(
        "a $`x_1 * y`$ b $5 `code` *c*\n\n```math\n\\frac{1}{2}\n```\n"
    )
    parts = re.fullmatch(r"(a )(<math.*?</math>)( b .*)", made, re.DOTALL)
    assert parts is not None, made
    before, formula, after = parts.groups()
    assert before + after.partition("\n")[0] == "a  b $5 `code` *c*"
    assert "<msub><mi>x</mi><mn>1</mn></msub>" in formula and "*" not in formula
    assert "<mfrac><mrow><mn>1</mn></mrow><mrow><mn>2</mn></mrow></mfrac>" in after


def test_the_table_of_speed_shows_losses_and_what_was_left_out() -> None:
    """One row for each comparison that is stored."""
    speed = tool("speed")
    result = json.loads((speed.RESULTS / "peers.json").read_text(encoding="utf-8"))
    slower = dict(result["rows"][0], aim=1.0)
    slower["ratio"] = {"median": 0.5, "min": 0.4, "max": 0.6, "n": 5}
    absent = {"model": "gemma3", "what": "mask: a package", "why": "it knows no such model"}
    result |= {"rows": [*result["rows"], slower], "left_out": [absent]}
    lines = speed.page(result).splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(result["rows"]) + 1
    assert sum("| **0.50** (0.40–0.60) | ≥ 1.0, **missed** |" in line for line in lines) == 1
    assert lines[-1] == "* gemma3, mask: a package: it knows no such model"
    assert "<!-- peers" not in speed.expanded((DOCS / "speed.md").read_text(encoding="utf-8"))


def test_it_opens_and_searches_from_the_file_system_without_any_request(site: Path) -> None:
    with chromium() as browser, visit(browser, site / "methods" / "removal.html", 360) as opened:
        page = opened.page
        assert page.locator("h1").inner_text().startswith("Removal and controls")
        page.keyboard.press("/")
        page.keyboard.type("hypergeometric")
        result = page.get_by_role("link", name=re.compile("Overlap and consistency")).first
        result.wait_for(timeout=15_000)
        for name in ("index", "methods/masks", "notebooks/first-look", "reference/commands/find"):
            page.goto((site / f"{name}.html").as_uri())
            assert opened.value("document.documentElement.scrollWidth <= innerWidth"), name
        assert page.locator("h1").inner_text().startswith("headscope find")
        assert opened.errors == []
        assert opened.requests and all(one.startswith("file:") for one in opened.requests)
