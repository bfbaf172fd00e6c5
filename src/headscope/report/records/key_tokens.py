"""What the report of key-token attention reads of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headscope.errors import InputError
from headscope.runs.reading import damaged_line, naming, read_result, read_rows

__all__ = ["HeadRow", "KeyTokensRecord", "Token", "WordCell", "read_key_tokens"]

KIND = "key-token attention"


@dataclass(frozen=True)
class Token:
    """A token's characters, `[start, end)` of its text, and the key words it belongs to."""

    start: int
    end: int
    words: tuple[int, ...]


@dataclass(frozen=True)
class WordCell:
    """Attention of a head to a word: mean and largest over steps, and the token of the largest."""

    mean: float
    even: float
    largest: float
    token: str | None


@dataclass(frozen=True)
class HeadRow:
    """A head with its attention to all key words and to each."""

    name: str
    score: float
    even: float
    words: tuple[WordCell, ...]


@dataclass(frozen=True, eq=False)
class KeyTokensRecord:
    """A run of `find key-tokens`.

    `attention` is float32 (T, N, W) and `mass`, `even_mass` are (T, N): by step, head (best first)
    and word. `controls` holds for each kind the attention of every draw.
    """

    result: Mapping[str, Any]
    model: str
    heads: tuple[HeadRow, ...]
    words: tuple[str, ...]
    score: float
    even: float
    controls: dict[str, tuple[float, ...]]
    filled_up: dict[str, int]
    prompt: str
    answer: str
    generated: bool
    prompt_tokens: tuple[Token, ...]
    answer_tokens: tuple[Token, ...]
    attention: NDArray[np.float32]
    mass: NDArray[np.float32]
    even_mass: NDArray[np.float32]

    @property
    def steps(self) -> int:
        """T, the steps looked from."""
        return int(self.mass.shape[0])


def read_key_tokens(path: Path) -> KeyTokensRecord:
    """Read a finished run; InputError if it holds no key-token attention or is damaged."""
    result = read_result(path)
    arrays = _arrays(path / "steps.safetensors")
    tokens = _tokens(path / "tokens.jsonl")
    with naming(path / "result.json", KIND):
        heads = tuple(
            HeadRow(
                f"{int(one['layer'])}.{int(one['head'])}",
                float(one["score"]),
                float(one["uniform"]),
                tuple(
                    WordCell(
                        float(word["mean"]),
                        float(word["uniform"]),
                        float(word["max"]),
                        None if word["token"] is None else str(word["token"]),
                    )
                    for word in one["words"]
                ),
            )
            for one in result["heads"]
        )
        words = tuple(str(one["word"]) for one in result["words"])
        control = dict(result["control"])
        record = KeyTokensRecord(
            result=result,
            model=str(result["model"]["name"]),
            heads=heads,
            words=words,
            score=float(result["score"]),
            even=float(result["uniform"]),
            controls={
                kind: tuple(float(draw["score"]) for draw in part["draws"])
                for kind, part in control.items()
            },
            filled_up={
                kind: max(int(draw["filled_up"]) for draw in part["draws"])
                for kind, part in control.items()
            },
            prompt=str(result["prompt"]),
            answer=str(result["answer"]),
            generated=bool(result["generated"]),
            prompt_tokens=tuple(tokens["prompt"]),
            answer_tokens=tuple(tokens["answer"]),
            **arrays,
        )
        shape = (int(result["tokens"]), len(heads), len(words))
    whole = (*tokens["prompt"], *tokens["answer"])
    if (
        record.attention.shape != shape
        or record.mass.shape != shape[:2]
        or record.even_mass.shape != shape[:2]
        or len(tokens["answer"]) not in (0, shape[0])
        or any(word not in range(shape[2]) for token in whole for word in token.words)
    ):
        raise InputError(
            f"{path}: its files are not of one run; run the same command again into a new folder"
        )
    return record


def _arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    names = ("attention", "mass", "even_mass")
    try:
        arrays = load(path.read_bytes())
        return {name: arrays[name].astype(np.float32) for name in names}
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (SafetensorError, KeyError, ValueError) as error:
        raise InputError(f"{path}: is damaged; run the same command again") from error


def _tokens(path: Path) -> dict[str, list[Token]]:
    tokens: dict[str, list[Token]] = {"prompt": [], "answer": []}
    for number, row in read_rows(path):
        try:
            words = tuple(int(word) for word in row["words"])
            tokens[str(row["part"])].append(Token(int(row["start"]), int(row["end"]), words))
        except (KeyError, TypeError, ValueError) as error:
            raise damaged_line(path, number) from error
    return tokens
