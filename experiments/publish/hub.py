"""A repository on the Hugging Face hub, through huggingface_hub. Knows nothing of sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import huggingface_hub

from experiments.publish.plan import Kind
from experiments.publish.send import Remote


class HubRepository:
    """See `send.Repository`. `api` is a `huggingface_hub.HfApi`, or what answers like one."""

    def __init__(self, name: str, kind: Kind, *, private: bool, api: Any | None = None) -> None:
        self.name, self.kind, self._private = name, kind, private
        self._api: Any = api or huggingface_hub.HfApi(library_name="chunksearch")

    @property
    def address(self) -> str:
        """Where people find it."""
        return f"https://huggingface.co/{self.kind}s/{self.name}"

    def create(self) -> None:
        sdk = {"space_sdk": "static"} if self.kind == "space" else {}
        self._api.create_repo(self.name, repo_type=self.kind, private=self._private, exist_ok=True, **sdk)

    def files(self) -> dict[str, Remote]:
        tree = self._api.list_repo_tree(self.name, recursive=True, repo_type=self.kind)
        return {
            entry.path: Remote(entry.lfs.sha256 if entry.lfs else None, entry.blob_id)
            for entry in tree
            if hasattr(entry, "blob_id")  # folders have none
        }

    def commit(self, message: str, files: Mapping[str, bytes], removed: Sequence[str]) -> None:
        operations = [
            *(huggingface_hub.CommitOperationAdd(path, content) for path, content in files.items()),
            *(huggingface_hub.CommitOperationDelete(path) for path in removed),
        ]
        self._api.create_commit(self.name, operations, commit_message=message, repo_type=self.kind)


def has_token() -> bool:
    """Whether somebody has logged in, or HF_TOKEN is set."""
    return bool(huggingface_hub.get_token())
