"""Exports on the Hugging Face hub, with their card."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from treerl.errors import ConfigError, StoreError

__all__ = ["TOKEN", "publish"]

TOKEN = "HF_TOKEN"
"""The environment variable that holds the token."""


def publish(path: str | Path, repo: str, card: str, *, private: bool = False) -> str:
    """Push an export to a data set repository of the hub, and its card as the README.

    The token is taken from the environment alone: it stands in no argument, message or file.

    Args:
        path: A file of :func:`~treerl.prm.formats.export`.
        repo: "owner/name"; made if it does not exist.
        card: Markdown, as of :func:`~treerl.prm.card.dataset_card`; replaces an older README.
        private: A new repository is private; one that exists stays what it is.

    Returns:
        The address of the data set.

    Raises:
        ConfigError: There is no token in the environment.
        StoreError: The file cannot be read, or the hub refuses.
    """
    token = os.environ.get(TOKEN)
    if not token:
        raise ConfigError(f"there is no token: put one with write access into {TOKEN}")
    import datasets
    from huggingface_hub import HfApi, constants

    try:
        with TemporaryDirectory() as cache:
            table = datasets.load_dataset(
                "json", data_files=str(path), split="train", cache_dir=cache
            )
            hub = HfApi(token=token)
            repo = hub.create_repo(
                repo, repo_type="dataset", private=private, exist_ok=True
            ).repo_id
            # The card first: push_to_hub then adds its own lines to the head of it.
            hub.upload_file(
                path_or_fileobj=card.encode("utf-8"),
                path_in_repo="README.md",
                repo_id=repo,
                repo_type="dataset",
                commit_message="Data set card",
            )
            table.push_to_hub(repo, private=private, token=token)
    except Exception as error:  # whatever the libraries and the network may raise
        reason = str(error).replace(token, "***").strip().partition("\n")[0][:300]
        raise StoreError(
            f"{path} cannot be pushed to {repo} ({type(error).__name__}: {reason})"
        ) from None  # the error itself may hold the request with its token
    return f"{constants.ENDPOINT}/datasets/{repo}"
