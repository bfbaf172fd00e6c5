"""Files of the Hugging Face Hub, brought into its client's cache, and what can go wrong there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headscope.errors import InputError, first_line


def download(
    name: str,
    revision: str | None,
    noun: str,
    patterns: Sequence[str],
    ignore: Sequence[str] | None = None,
) -> Path:
    """The cached folder of a model repository with the files that match `patterns`.

    Without network, or with HF_HUB_OFFLINE=1, it is what the client's cache holds. `noun` says in
    messages what is looked for. InputError, one sentence, for whatever the Hub does not give.
    """
    from huggingface_hub import snapshot_download

    with _fetching(name, revision, noun):
        return Path(
            snapshot_download(
                name,
                revision=revision,
                allow_patterns=list(patterns),
                ignore_patterns=None if ignore is None else list(ignore),
            )
        )


@contextmanager
def _fetching(name: str, revision: str | None, noun: str) -> Iterator[None]:
    from huggingface_hub import errors

    where = name if revision is None else f"{name} at revision {revision}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise InputError(
            f"The Hub {noun} {where} is gated; ask for access on its page and log in with "
            "'hf auth login'."
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise InputError(
            f"There is neither a folder {name} nor a Hub {noun} of that name that you may read; "
            "check the spelling, or log in with 'hf auth login' for a private one."
        ) from error
    except errors.RevisionNotFoundError as error:
        raise InputError(
            f"The Hub {noun} {name} has no revision {revision}; give a branch, a tag or a commit."
        ) from error
    except errors.HFValidationError as error:
        raise InputError(
            f"{name!r} is neither a folder nor a possible Hub id (owner/name); check the spelling."
        ) from error
    except (OSError, transport()) as error:  # any other answer of the Hub, or none at all
        status = status_of(error)
        if status in (401, 403):
            raise InputError(
                f"The Hub does not let you read the {noun} {where} (status {status}); set "
                "HF_TOKEN to a token that may, or log in with 'hf auth login'."
            ) from error
        if isinstance(error, errors.LocalEntryNotFoundError) and status is None:
            raise InputError(
                f"There is no folder {name}, and the Hub {noun} {where} is not (wholly) in the "
                "local cache while the Hub cannot be reached or is switched off by "
                "HF_HUB_OFFLINE; connect once to download it, or give a folder."
            ) from error
        raise InputError(
            f"The Hub {noun} {where} could not be downloaded ({first_line(error)}); try again, "
            "or give a folder."
        ) from error


def transport() -> type[Exception]:
    """The base error of the client's HTTP library, whose name changes over versions."""
    from huggingface_hub import errors

    transport: type[Exception] = vars(errors)["HTTPError"]
    return transport


def status_of(error: BaseException | None) -> int | None:
    """The HTTP status that an error, or what caused it, carries."""
    while error is not None:
        response: Any = getattr(error, "response", None)
        if response is not None:
            return int(response.status_code)
        error = error.__cause__
    return None
