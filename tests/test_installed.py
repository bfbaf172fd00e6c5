"""What an installed package registers is used like headscope's own, and named where it fails."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import json_of

POINTS = """[headscope.methods]
find depth = somebodys_heads:command
[headscope.controls]
parity = somebodys_heads:PARITY
[headscope.measures]
length_ratio = somebodys_heads:length_ratio
[headscope.readers]
bars = somebodys_heads:BARS
"""
PAIRS = [("en: the dog sleeps", "de: der Hund"), ("the cat", "die Katze"), ("a house", "ein Haus")]


def install(site: Path, points: str, module: str = "", name: str = "somebodys-heads") -> None:
    """Put a package where Python finds it, as pip does: its module, and what it says of itself."""
    about = site / f"{name.replace('-', '_')}-0.3.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
    (about / "entry_points.txt").write_text(points)
    shutil.copy(Path(__file__).parent / "installed_package.py", site / "somebodys_heads.py")
    if module:
        (site / "somebodys_heads.py").write_text(module)


def with_packages_of(site: Path) -> dict[str, str]:
    """The environment in which packages are found there, too."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path}


def headscope(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headscope", *map(str, arguments)],
        env={**with_packages_of(site), "COLUMNS": "100"},
        cwd=site,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_package_brings_a_method_a_control_a_measure_and_a_reader(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install(site, POINTS)
    assert "Score every head by how deep it lies" in headscope(site, "find", "--help").stdout
    assert "--power" in headscope(site, "find", "depth", "--help").stdout
    assert "depth" in headscope(site, "methods").stdout
    found = headscope(site, "find", "depth", "--power", 2, "--out", "found", "--json")
    assert found.returncode == 0, found.stderr
    (site / "pairs.bars").write_text("".join(f"{a} ||| {b}\n" for a, b in PAIRS))
    tested = headscope(
        site, "verify", "removal", "--heads", "found", "--k", 3, "--data", "pairs.bars", "--pair",
        "en-de", "--measure", "length_ratio", "--control", "parity", "--draws", 2, "--json",
    )  # fmt: skip
    assert tested.returncode == 0, tested.stderr
    result = json_of(tested.stdout)
    assert result["controls"]["parity"]["words"] == "random heads of layers of the same parity"
    assert {test["control"] for test in result["tests"]} == {"parity"}
    assert "length_ratio" in result["statistics"]
    drawn = [row for row in result["conditions"] if row["kind"] == "parity"]
    assert len(drawn) == 2 and all(len(row["heads"]) == 3 for row in drawn)
    in_python = (
        "import headscope as h; r = h.find.depth('pocket', power=1, progress=False);"
        "print(r.scores.top(1).heads[0].layer)"
    )
    done = subprocess.run(
        [sys.executable, "-c", in_python], cwd=site, capture_output=True, text=True, check=True,
        env=with_packages_of(site),
    )  # fmt: skip
    assert done.stdout.strip() == "5"


@pytest.mark.parametrize(
    ("points", "module", "arguments", "why"),
    [
        (POINTS, "raise ValueError('no')", ("find", "depth"), "'find depth' under headscope.meth"),
        (POINTS, "x = 1", ("verify", "removal", "--heads", "0.1", "--control", "parity"),
         "'parity' under headscope.controls"),
        (POINTS, "PARITY = 3", ("verify", "removal", "--heads", "0.1", "--control", "parity"),
         "it is of type int, not a Control"),
    ],
)  # fmt: skip
def test_what_a_package_cannot_do_is_said_with_its_name(
    points: str, module: str, arguments: tuple[str, ...], why: str, tmp_path: Path
) -> None:
    install(tmp_path, points, module)
    told = headscope(tmp_path, *arguments)
    assert told.returncode == 2 and "Traceback" not in told.stderr
    assert "somebodys-heads 0.3 registers" in told.stderr and why in told.stderr


def test_a_broken_package_takes_nothing_else_along(tmp_path: Path) -> None:
    install(tmp_path, POINTS, "raise ValueError('no')")
    listed = headscope(tmp_path, "find", "--help")
    assert listed.returncode == 0 and "induction" in listed.stdout
    done = headscope(
        tmp_path, "verify", "removal", "--heads", "5.1", "--pair", "en-de", "--limit", 2,
        "--draws", 1, "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "'parity' under headscope.controls" in done.stderr


def test_a_name_that_is_no_command_is_told(tmp_path: Path) -> None:
    install(tmp_path, "[headscope.methods]\nlook = somebodys_heads:command\n")
    told = headscope(tmp_path, "find", "--help")
    assert told.returncode == 0 and "VERB NAME" in told.stderr.replace("\n", " ")


def test_of_two_packages_with_one_name_the_first_counts(tmp_path: Path) -> None:
    install(tmp_path, POINTS)
    install(tmp_path, "[headscope.controls]\nparity = nobodys:X\n", name="zz-heads")
    told = headscope(tmp_path, "find", "depth", "--out", "found")
    assert told.returncode == 0 and "zz-heads 0.3 registers 'parity'" in told.stderr


def test_another_version_of_a_package_makes_another_run(tmp_path: Path) -> None:
    install(tmp_path, POINTS)
    asked = ("find", "depth", "--json")
    first = json_of(headscope(tmp_path, *asked).stdout)
    assert json_of(headscope(tmp_path, *asked).stdout)["run"] == first["run"]
    about = tmp_path / "somebodys_heads-0.3.dist-info"
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-heads\nVersion: 0.4\n")
    second = json_of(headscope(tmp_path, *asked).stdout)
    assert second["signature"] != first["signature"] and second["run"] != first["run"]
    assert "somebodys-heads 0.4" in second["signature"]
