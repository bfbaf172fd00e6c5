"""What is known of the model that an export is made from: its name, licence and card."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headscope.errors import InputError, first_line
from headscope.hub import download
from headscope.lm.gguf import is_gguf, open_gguf

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
#: What a base's card says that stays true of a model made from it.
CARRIED = ("license", "license_name", "license_link", "language", "pipeline_tag")
_CARD = "README.md"
_LEGAL = ("LICENSE*", "LICENCE*", "NOTICE*", "USE_POLICY*")


@dataclass(frozen=True)
class Base:
    """The base of an export.

    `hub` is its id on the Hub, with `revision` its commit; None for a folder. `name` is what a
    reader is told: the id, or the folder's own name without its path. `carried` holds fields of
    its card's front matter as they stand there, `listed` the base models that the card names in
    turn. `unread` says why there is no card to read from; None if there is one.
    """

    name: str
    hub: str | None = None
    revision: str | None = None
    carried: Mapping[str, Any] = field(default_factory=dict)
    listed: tuple[str, ...] = ()
    unread: str | None = None

    @property
    def licence(self) -> str | None:
        """The licence as the base's card names it; None if it names none."""
        told = self.carried.get("license_name") or self.carried.get("license")
        return None if told is None else str(told)

    @property
    def base_models(self) -> tuple[str, ...]:
        """What `base_model` of an export's card says: Hub ids, or nothing."""
        return (self.hub,) if self.hub is not None else self.listed


def read_base(name: str, folder: Path, revision: str | None = None) -> Base:
    """Read what the card beside a checkpoint says; for a model of the Hub it is fetched.

    A card that is missing or damaged is no error: the result tells so, and has no licence. The
    bundled model is part of this package and has its licence.
    """
    if name == "pocket":
        return Base(name, carried=_own_licence())
    if is_gguf(folder):
        return _of_gguf(name, folder, revision)
    hub = name if revision is not None and _HUB_ID.fullmatch(name) else None
    shown = hub or (name if "/" not in name and "\\" not in name else folder.name)
    missing = None if hub is None else _fetch(hub, revision)
    card = folder / _CARD
    if not card.is_file():
        return Base(shown, hub, revision, unread=missing or "it has no card")
    told, damage = _front_matter(card)
    if damage is not None:
        return Base(shown, hub, revision, unread=damage)
    listed = told.get("base_model")
    several = listed if isinstance(listed, list) else [listed]
    return Base(
        shown,
        hub,
        revision,
        {key: told[key] for key in CARRIED if told.get(key) is not None},
        tuple(one for one in several if isinstance(one, str) and _HUB_ID.fullmatch(one)),
    )


def _of_gguf(name: str, path: Path, revision: str | None) -> Base:
    """What a GGUF file says of itself; it needs no card."""
    told = open_gguf(path, name).metadata
    fields = {key: told.get(f"general.{key.replace('_', '.')}") for key in CARRIED[:3]}
    carried = {key: value for key, value in fields.items() if value}
    unread = None if carried else "the file names none"
    hub = None if revision is None else "/".join(name.split("/")[:2])
    return Base(path.name, hub, revision, carried, unread=unread)


def _own_licence() -> dict[str, str]:
    """The licence of headscope as its installed metadata names it, in the Hub's spelling."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        told = metadata("headscope").json.get("license_expression")
    except PackageNotFoundError:
        told = None  # run from a bare source tree
    return {"license": str(told).lower()} if told else {}


def _fetch(hub: str, revision: str | None) -> str | None:
    """Bring card and licence of a Hub model to where its files are; why not, if they are not."""
    try:
        download(hub, revision, "model", [_CARD, *_LEGAL], ignore=["*/*"])
    except InputError as error:
        return f"its card could not be fetched ({first_line(error.__cause__ or error)})"
    return None


def _front_matter(card: Path) -> tuple[dict[str, Any], str | None]:
    """The YAML at the head of a card, and what is wrong with it."""
    import yaml
    from huggingface_hub import metadata_load

    try:
        told = metadata_load(card)
    except (ValueError, OSError, yaml.YAMLError) as error:
        return {}, f"its card cannot be read ({first_line(error)})"
    return (told, None) if isinstance(told, dict) else ({}, "its card has no front matter")
