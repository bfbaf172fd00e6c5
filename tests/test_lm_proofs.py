"""The verdict of the self-check is kept, and only for what it was given of."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from headscope.errors import Caution, InputError
from headscope.lm import proofs, selfcheck
from headscope.lm.loading import load
from headscope.lm.model import LanguageModel
from headscope.lm.selfcheck import Noise
from lm_helpers import saved

Count = Callable[[], int]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(proofs, "cached_assets_path", lambda *_, **__: tmp_path / "kept")
    (tmp_path / "kept").mkdir()
    return tmp_path / "kept"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Count:
    """How often a model was checked since the last question."""
    made: list[LanguageModel] = []
    real = selfcheck.selfcheck

    def counted(lm: LanguageModel) -> Noise:
        made.append(lm)
        return real(lm)

    monkeypatch.setattr(selfcheck, "selfcheck", counted)

    def since() -> int:
        number = len(made)
        made.clear()
        return number

    return since


def test_a_model_proves_itself_once(tmp_path: Path, cache: Path, checks: Count) -> None:
    folder = saved(tmp_path / "model")
    first, second = load(folder, device="cpu"), load(folder, device="cpu")
    assert checks() == 1
    assert (first.noise, first.proved) == (second.noise, second.proved) != (None, None)
    assert load(folder, device="cpu", check="always").noise == first.noise
    assert checks() == 1
    never = load(folder, device="cpu", check="never")
    assert checks() == 0 and never.noise is None and never.proved is None
    assert len(list(cache.glob("*.json"))) == 1


@pytest.mark.parametrize(
    "changed", ["time", "bytes", "configuration", "tokenizer", "dtype", "attention"]
)
def test_what_decides_on_the_numbers_is_checked_again(
    changed: str, tmp_path: Path, cache: Path, checks: Count
) -> None:
    folder = saved(tmp_path / "model")
    load(folder, device="cpu")
    assert checks() == 1
    file, dtype = folder / "config.json", "auto"
    config = json.loads(file.read_text("utf-8"))
    weights = folder / "model.safetensors"
    if changed == "time":  # as another program writes them: same size, another time
        os.utime(weights, ns=(1, 1))
    elif changed == "bytes":  # same size and time
        about, content = weights.stat(), bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        os.utime(weights, ns=(about.st_atime_ns, about.st_mtime_ns))
    elif changed == "configuration":
        file.write_text(json.dumps(config | {"rms_norm_eps": 0.5}), "utf-8")
    elif changed == "attention":
        file.write_text(json.dumps(config | {"attn_implementation": "eager"}), "utf-8")
    elif changed == "tokenizer":
        tokenizer = folder / "tokenizer_config.json"
        said = json.loads(tokenizer.read_text("utf-8"))
        tokenizer.write_text(json.dumps(said | {"model_max_length": 77}), "utf-8")
    else:
        dtype = "bfloat16"
    load(folder, device="cpu", dtype=dtype)
    assert checks() == 1


def test_what_failed_is_not_kept(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model")

    def fails(lm: LanguageModel) -> Noise:
        raise InputError("not to be trusted")

    with monkeypatch.context() as patch:
        patch.setattr(selfcheck, "selfcheck", fails)
        for _ in range(2):
            with pytest.raises(InputError, match="not to be trusted"):
                load(folder, device="cpu")
    assert list(cache.glob("*.json")) == []
    assert load(folder, device="cpu").proved is not None


_NOW = "2026-01-01T00:00:00+00:00"
_RUBBISH = [
    "", "{}", "[1]", '[{"typical": 1}, 2, 3]', "\x00", "null", '"ab"', "[" * 100_000,
    f'[{{"typical": 0, "largest": 0}}, {"[" * 100_000}]', '[{"typical": 0}, "now"]',
    *(
        json.dumps([{"typical": typical, "largest": largest}, _NOW])
        for typical, largest in (
            (1e9, 1e9), (0.3, 0.5), (-0.1, 0.0), (0.1, 0.05), ("0", "0"), (None, 0.0),
            (False, False), ([], {}), (math.nan, 0.0), (0.0, math.nan), (0.0, math.inf),
            (0.0, 10**400),
        )
    ),
    *(
        json.dumps([{"typical": 0.0, "largest": 0.0}, proved])
        for proved in (0, None, "", "soon", "2026-01-01", "2026-01-01T00:00:00", "9000" + _NOW[4:])
    ),
    json.dumps([{"typical": 0.0, "largest": 0.0, "more": 1}, _NOW]),
]  # fmt: skip


@pytest.mark.parametrize("rubbish", _RUBBISH, ids=range(len(_RUBBISH)))
def test_a_damaged_verdict_counts_as_none(
    rubbish: str, tmp_path: Path, cache: Path, checks: Count
) -> None:
    folder = saved(tmp_path / "model")
    proof = load(folder, device="cpu").noise
    (file,) = cache.glob("*.json")
    file.write_text(rubbish, "utf-8")
    again = load(folder, device="cpu")
    assert again.noise == proof and again.proved is not None and again.proved > _NOW
    assert checks() == 2
    load(folder, device="cpu")
    assert checks() == 0


def test_without_a_place_to_write_it_is_checked_every_time(
    tmp_path: Path, checks: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_place(*_: object, **__: object) -> Path:
        raise PermissionError("read-only")

    monkeypatch.setattr(proofs, "cached_assets_path", no_place)
    folder = saved(tmp_path / "model")
    assert load(folder, device="cpu").proved and load(folder, device="cpu").proved
    assert checks() == 2


def test_processes_that_load_at_once_check_once(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    script = (
        "import sys, headscope.lm.selfcheck as s\n"
        "real = s.selfcheck\n"
        "def counted(lm):\n    print('checked')\n    return real(lm)\n"
        "s.selfcheck = counted\n"
        "from headscope.lm.loading import load\n"
        "print(load(sys.argv[1], device='cpu').proved)\n"
    )
    env = {**os.environ, "HF_ASSETS_CACHE": str(tmp_path / "assets"), "OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([sys.executable, "-c", script, str(folder)], env=env, text=True,
                         stdout=subprocess.PIPE)
        for _ in range(3)
    ]  # fmt: skip
    said = [process.communicate(timeout=300)[0].split() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sum("checked" in words for words in said) == 1
    assert len({words[-1] for words in said}) == 1


def test_a_lock_that_another_process_holds_has_a_word_and_an_end(
    tmp_path: Path, cache: Path, checks: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "model")
    load(folder, device="cpu")
    (verdict,) = cache.glob("*.json")
    holds = (
        "import sys, time\nfrom filelock import FileLock\n"
        "with FileLock(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", holds, str(verdict.with_suffix(".lock"))]
    monkeypatch.setattr(proofs, "WORD_AFTER", 0.05)
    monkeypatch.setattr(proofs, "PATIENCE", 0.2)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        checks()
        verdict.unlink()
        with pytest.warns(Caution, match="another process checks"):
            assert load(folder, device="cpu").proved is not None
        assert checks() == 1
        process.kill()
    with warnings.catch_warnings():
        warnings.simplefilter("error", Caution)
        load(folder, device="cpu")
    assert checks() == 0


def test_a_cache_of_somebody_else_is_no_hindrance(
    tmp_path: Path, cache: Path, checks: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError("not yours")

    folder = saved(tmp_path / "model")
    monkeypatch.setattr(proofs.FileLock, "_acquire", refuses)
    monkeypatch.setattr(proofs, "write_bytes", refuses)
    assert load(folder, device="cpu").proved is not None
    assert checks() == 1


@pytest.mark.parametrize("layers", [2, 100])
def test_the_number_of_passes_does_not_grow_with_the_layers(layers: int) -> None:
    from small_models import build

    from lm_helpers import tokenizer

    lm = LanguageModel.wrap(build("llama", layers=layers), tokenizer(), check=False)
    passes: list[int] = []
    lm.model.register_forward_hook(lambda *_: passes.append(1))
    with torch.no_grad():
        assert selfcheck.selfcheck(lm) == Noise()
    # Plain, ones, removals (of all heads where the first does little), two tokens, their text.
    assert len(passes) <= 1 + 1 + 2 + 2 + 1
