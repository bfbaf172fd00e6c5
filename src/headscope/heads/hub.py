"""Head artifacts on the Hugging Face Hub: fetched by name, pushed in one commit."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, ClassVar, Self

from numpy.typing import NDArray

from headscope.display import Displayed
from headscope.errors import InputError, first_line, naming
from headscope.heads import store
from headscope.heads.geometry import Geometry
from headscope.hub import download, status_of, transport
from headscope.scratch import scratch

_NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_HUB_ID = re.compile(_NAME, re.ASCII)
_ADDRESS = re.compile(
    rf"hf://(?:models/)?(?P<name>{_NAME})(?:@(?P<revision>refs/pr/[0-9]+|[^/@]+))?"
    r"(?:/(?P<subfolder>.*))?",
    re.ASCII,
)
# Nobody is asked over the network for what is called like a file.
_FILES = (".csv", ".tsv", ".json", ".jsonl", ".txt", ".yaml", ".yml", ".safetensors")


class Artifact(Displayed, ABC):
    """Something that is saved as a folder, and so can be shared on the Hugging Face Hub."""

    kind: ClassVar[str]

    if TYPE_CHECKING:

        @property
        def geometry(self) -> Geometry: ...
        @property
        def origin(self) -> store.Origin: ...

    @abstractmethod
    def _tensors(self) -> dict[str, NDArray[Any]]: ...

    @classmethod
    @abstractmethod
    def _of(cls, saved: store.Saved) -> Self: ...

    def save_pretrained(self, directory: str | PathLike[str]) -> None:
        """Write `scores.safetensors`, `heads.safetensors` (int32, (n, 2)) or `gate.safetensors`
        (float32, (L, W)), `config.json` and a model card."""
        store.save(directory, self.kind, self.geometry, self._tensors(), self.origin)

    @classmethod
    def from_pretrained(
        cls, directory: str | PathLike[str], *, revision: str | None = None, subfolder: str = ""
    ) -> Self:
        """Read what `save_pretrained` or `push_to_hub` wrote, in `subfolder` of it if named; of
        scores also those of a finished run, of several directions their mean.

        A folder comes first; a text `owner/name` that is none is a repository of the Hub at the
        branch, tag or commit `revision`, downloaded once and then read from the client's cache,
        also without network. InputError if it is missing, something else or damaged.
        """
        saved = load(directory, cls.kind, revision, subfolder)
        with naming(saved.directory):
            return cls._of(saved)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        revision: str | None = None,
        subfolder: str = "",
        private: bool | None = None,
        commit_message: str = "Add attention head artifact",
    ) -> str:
        """Upload the artifact to the model repository `repo_id` (`owner/name`) in one commit.

        The repository is created if it is missing, public unless `private`; so is the branch
        `revision`. The files lie in `subfolder`, so that one repository can hold several
        artifacts; it is given a model card of its own if it has none. What is pushed is what
        `save_pretrained` writes, provenance included. The account is the one that HF_TOKEN or
        `hf auth login` names. Returns the address of the commit. InputError if the Hub does not
        let you, or the place holds another kind of artifact or a model, which stays as it is.
        """
        place = Repository.of(repo_id, revision, subfolder)
        with scratch("push") as folder:
            target = folder / place.subfolder
            target.mkdir(parents=True, exist_ok=True)
            self.save_pretrained(target)
            return _push(folder, place, private, commit_message)


@dataclass(frozen=True)
class Repository:
    """Where an artifact lies on the Hub: a model repository, its branch, tag or commit, a folder.

    `subfolder` is a path with `/` between its parts, empty for the top of the repository.
    """

    name: str
    revision: str | None = None
    subfolder: str = ""

    @classmethod
    def of(cls, name: str, revision: str | None, subfolder: str) -> Repository:
        """The place of these parts; InputError if they cannot be one."""
        if _HUB_ID.fullmatch(name) is None:
            raise InputError(f"{name!r} is no name of a Hub repository; write OWNER/NAME")
        return cls(name, revision, _inside(subfolder))

    @classmethod
    def parse(cls, text: str) -> Repository | None:
        """Read `owner/name` or `hf://owner/name@revision/subfolder`; None for all other texts.

        A text below a folder that exists here, or one that ends like a file, is a path that
        somebody mistyped and no repository, so a slip costs no wait for the network.
        """
        address = _ADDRESS.fullmatch(text)
        if address is not None:
            return cls.of(address["name"], address["revision"], address["subfolder"] or "")
        if _HUB_ID.fullmatch(text) is None or text.endswith(_FILES):
            return None
        return None if Path(text).parent.exists() else cls(text)

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name} at revision {self.revision}"

    @property
    def arguments(self) -> str:
        """What `from_pretrained` is called with to load from here, as Python."""
        named = {"revision": self.revision, "subfolder": self.subfolder}
        given = [f"{name}={json.dumps(value)}" for name, value in named.items() if value]
        return ", ".join([json.dumps(self.name), *given])

    def fetch(self, files: Sequence[str]) -> Path:
        """The folder of the client's cache that holds these files of this place, downloaded once.

        `files` are names; `*/NAME` is that name in any folder below. Files that the repository
        has not are not there.
        """
        below = _literal(f"{self.subfolder}/") if self.subfolder else ""
        patterns = [f"{below}{file}" for file in files]
        folder = download(self.name, self.revision, "repository", patterns)
        return folder / self.subfolder


def load(
    directory: str | PathLike[str], kind: str, revision: str | None = None, subfolder: str = ""
) -> store.Saved:
    """Read an artifact from a folder or, where `directory` is a text and no folder, from the Hub.

    What is fetched is a JSON and a safetensors file of known names; it passes the same checks as
    a folder. Of the folder of a finished run its own is read, of scores in several directions
    their mean. Nothing is asked over the network for what exists here.
    """
    path = Path(directory)
    place = None
    if isinstance(directory, str) and not exists(path):
        place = Repository.parse(directory)
    if place is None:
        if revision is not None:
            raise InputError(
                f"{directory}: is no repository of the Hub, and only those have revisions; "
                "leave revision out"
            )
        return store.load(store.place_in(path / _inside(subfolder), kind), kind)
    if revision is not None or subfolder:
        place = Repository.of(place.name, revision or place.revision, subfolder or place.subfolder)
    folder = place.fetch(["config.json", f"{kind}.safetensors"])
    if not (folder / "config.json").is_file():
        where = f"its folder {place.subfolder}" if place.subfolder else "its top folder"
        raise InputError(
            f"the Hub repository {place} holds no {kind} in {where} (no config.json); name the "
            "subfolder that holds them"
        )
    return store.load(folder, kind)


def _push(folder: Path, place: Repository, private: bool | None, message: str) -> str:
    from huggingface_hub import HfApi

    artifact = folder / place.subfolder
    kind = str(store.kind_of(artifact))
    saved = store.load(artifact, kind)
    card = store.model_card(kind, saved.geometry, saved.origin, place.arguments)
    (artifact / "README.md").write_bytes(card.encode())
    api = HfApi(library_name="headscope", library_version=store.installed_version())
    config = f"{place.subfolder}/config.json".lstrip("/")
    with _pushing(place):
        api.create_repo(place.name, private=private, exist_ok=True)
        if place.revision is not None:
            api.create_branch(place.name, branch=place.revision, exist_ok=True)
        if api.file_exists(place.name, config, revision=place.revision):
            there = api.hf_hub_download(place.name, config, revision=place.revision)
            if (held := store.kind_of(Path(there).parent)) != kind:
                raise InputError(
                    f"the Hub repository {place} holds the {config} of something else "
                    f"({held or 'a model'}), so the {kind} are not pushed there; name another "
                    "repository or subfolder"
                )
        if place.subfolder and not api.file_exists(
            place.name, "README.md", revision=place.revision
        ):
            (folder / "README.md").write_bytes(store.folder_card(saved.origin).encode())
        commit = api.upload_folder(
            repo_id=place.name,
            folder_path=folder,
            revision=place.revision,
            commit_message=message,
        )
    return str(commit.commit_url)


@contextmanager
def _pushing(place: Repository) -> Iterator[None]:
    from huggingface_hub import errors

    try:
        yield
    except InputError:
        raise
    except errors.HFValidationError as error:
        raise InputError(
            f"{place.name!r} is no possible Hub id; write OWNER/NAME with letters, digits, '-', "
            "'_' and '.'."
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise InputError(
            f"Nothing can be pushed to {place} while the Hub is switched off by HF_HUB_OFFLINE; "
            "unset it, or save to a folder."
        ) from error
    # Uploads fail with errors of several libraries, wrapped in a RuntimeError or a ValueError.
    except (OSError, RuntimeError, ValueError, transport()) as error:
        status = status_of(error)
        if status in (401, 403):
            raise InputError(
                f"The Hub does not let you write to {place} (status {status}); set HF_TOKEN to a "
                "token with write access to it, or log in with 'hf auth login'."
            ) from error
        raise InputError(
            f"The push to {place} failed ({first_line(error)}); try again: what is there already "
            "is not sent twice."
        ) from error


def _inside(subfolder: str) -> str:
    """A subfolder in plain form; InputError if it leads out of the repository."""
    path = PurePosixPath(subfolder)
    if path.is_absolute() or ".." in path.parts:
        raise InputError(f"the subfolder {subfolder!r} is no folder inside; write PART/PART")
    return "" if path == PurePosixPath() else str(path)


def _literal(text: str) -> str:
    return re.sub(r"([*?\[])", r"[\1]", text)


def exists(path: Path) -> bool:
    """Whether there is a file or folder of this name, or none can be."""
    try:
        return path.exists()
    except OSError:  # too long a name, or one below a folder that may not be entered
        return False
