"""Build the documentation: pages and generated reference into build/docs, the site into site/.

    python docs/tools/build.py          # what `make docs` runs; any warning is an error

The pages of `docs/` go in as they are but for formulas, which become MathML, drawn by browsers
without scripts, `<!-- public MODULE -->`, which becomes that module's reference, and
`<!-- peers FILE -->`, which becomes the table of a stored result. The built site loads nothing from
elsewhere and opens from the file system.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import commands
import formulas
import notebooks
import public
import speed

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Where mkdocs.yml looks for pages, and where it puts the site.
STAGED = ROOT / "build" / "docs"
SITE = ROOT / "site"

#: In the site, written last: the site is as old as this file.
MARK = ".built"

#: Folders of docs/ that hold no pages of the site.
LEFT_OUT = {"tools"}
#: What the theme loads from elsewhere for a search without a server, and what stands for it here.
SHIM = "https://unpkg.com/iframe-worker/shim"
SHIM_COPY = Path("assets/javascripts/frame-worker.js")


def main() -> int:
    stage()
    shutil.rmtree(SITE, ignore_errors=True)  # no page of an older build stays
    built = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"], cwd=ROOT
    )
    if built.returncode == 0:
        keep_at_home(SITE)
        (SITE / MARK).touch()
    return built.returncode


def stage() -> None:
    """Fill `STAGED` with every page of the site, written or generated."""
    shutil.rmtree(STAGED, ignore_errors=True)
    for file in sorted(DOCS.rglob("*")):
        place = file.relative_to(DOCS)
        if file.is_dir() or place.parts[0] in LEFT_OUT or "__pycache__" in place.parts:
            continue
        target = STAGED / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            target.write_text(page(file), encoding="utf-8")
            continue
        shutil.copyfile(file, target)
        if file.suffix == ".ipynb":
            target.with_suffix(".md").write_text(notebooks.page(file), encoding="utf-8")
    folder = STAGED / "reference" / "commands"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in commands.pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def page(file: Path) -> str:
    """A page of `docs/` as the site's generator gets it."""
    text = speed.expanded(public.expanded(file.read_text(encoding="utf-8")))
    return formulas.as_mathml(text)


def keep_at_home(site: Path) -> None:
    """Let every page load our script where the theme would fetch one from elsewhere."""
    copy = site / SHIM_COPY
    shutil.copyfile(Path(__file__).with_name("frame-worker.js"), copy)
    for file in site.rglob("*.html"):
        text = file.read_text(encoding="utf-8")
        if SHIM in text:
            up = "../" * (len(file.relative_to(site).parts) - 1)
            file.write_text(text.replace(SHIM, up + SHIM_COPY.as_posix()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
