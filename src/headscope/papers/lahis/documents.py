"""Documents of the user's own, each language in two files: to find heads on, and to test them on.

The published code scores and tests on articles of one collection; here no text is in both.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from headscope.data.documents import DocumentFile
from headscope.data.files import write_text_atomically
from headscope.data.split import sentence_digest
from headscope.errors import InputError
from headscope.papers.lahis.scale import scale
from headscope.papers.paper import Setting
from headscope.studies.documents import DocumentsChoice, read_languages

Side = Literal["found", "tested"]
SIDES: tuple[Side, Side] = ("found", "tested")
#: Documents are read so many times as often as they are needed: halves are not quite equal.
READ = 3


def choice(setting: Setting, side: Side, limit: int | None = None) -> DocumentsChoice:
    """The documents of one side: the bundled model's own, or the files of `split`, made if need be.

    `limit` is of each language, as far as there are so many; None: what the scale says.
    """
    wanted = limit or getattr(scale(setting), side)
    if setting.pocket:
        return DocumentsChoice(limit=wanted)
    folder = split(setting)
    files = sorted(folder.glob(f"{side}-*.jsonl"))
    named = tuple(f"{one.stem.removeprefix(f'{side}-')}={one}" for one in files)
    # A file may hold fewer, which is an error where a limit is given.
    held = min(one.read_bytes().count(b"\n") for one in files)
    if held >= wanted:
        return DocumentsChoice(data=named, limit=wanted)
    return DocumentsChoice(data=named, limit=None if limit is None else held)


def split(setting: Setting) -> Path:
    """The folder of both files of every language; a document's text alone decides its side.

    Raises `InputError` if a language has no document for one of them.
    """
    folder = setting.folder / "documents"
    done = folder / "SPLIT"
    if done.is_file():
        return folder
    one = scale(setting)
    given = DocumentsChoice(data=setting.data.documents)
    enough = READ * max(one.found, one.tested)
    files = read_languages(given, setting.model.model, "dev", setting.seed, enough, enough)
    for code, file in files.items():
        for side, texts in _sides(code, file).items():
            rows = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
            kept = rows[: getattr(one, side)]
            write_text_atomically(folder / f"{side}-{code}.jsonl", "\n".join(kept) + "\n")
    write_text_atomically(done, "by the hash of each text\n")
    return folder


def _sides(code: str, file: DocumentFile) -> dict[Side, list[str]]:
    sides: dict[Side, list[str]] = {side: [] for side in SIDES}
    for one in file.documents:
        sides[SIDES[int(sentence_digest(one.text)[:2], 16) & 1]].append(one.text)
    if not all(sides.values()):
        raise InputError(
            f"{file.path}: {len(file.documents)} documents in {code} are too few to find heads on "
            f"one half and test them on the other; give more with --documents {code}=FILE"
        )
    return sides
