"""`chunksearch publish`: put a site on the Hugging Face hub, or show what that would be. Knows nothing of the hub."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from experiments.commands.checks import bad_input
from experiments.commands.outcome import DONE, CommandError, InputError, Outcome, described
from experiments.commands.terminal import Terminal
from experiments.publish.plan import CARD, KINDS, Commit, Kind, planned
from experiments.publish.send import send
from experiments.site.card import space_card
from experiments.site.files import read_site

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)


@dataclass(frozen=True)
class Options:
    """The options of `publish` as they were typed."""

    site: Path
    repo: str
    kind: str
    private: bool
    dry_run: bool
    as_json: bool


def run(options: Options) -> Outcome:
    """Publish a site. Raises `InputError` for a folder that is no whole site and for names that the hub refuses."""
    terminal = Terminal.opened(output_is_data=options.as_json)
    if not _REPOSITORY.fullmatch(options.repo):
        raise InputError(f"--repo: {options.repo!r}; give a user or an organisation and a name, such as me/my-study")
    if options.kind not in KINDS:
        raise InputError(f"--type: {options.kind!r} is not known; allowed are {', '.join(KINDS)}")
    kind: Kind = options.kind
    try:
        about = read_site(options.site)
    except ValueError as error:
        raise bad_input(error, "SITE") from error
    card = (options.site / CARD).read_bytes()
    if kind == "space":
        card = space_card(card.decode(), str(about["name"])).encode()
    commits = planned(options.site, about, kind, card)
    data: dict[str, Any] = {"repo": options.repo, "type": kind, "commits": [_plain(commit) for commit in commits]}
    terminal.results.print(_listed(commits))
    if options.dry_run:
        return Outcome(DONE, data | {"sent": 0})
    return _sent(options, kind, commits, card, terminal, data)


def _sent(
    options: Options, kind: Kind, commits: list[Commit], card: bytes, terminal: Terminal, data: dict[str, Any]
) -> Outcome:
    try:
        from experiments.publish.hub import HubRepository, has_token
    except ModuleNotFoundError as error:
        raise InputError(
            f"publish: the package {error.name!r} is not installed; pip install 'chunksearch[publish]'"
        ) from error
    if not has_token():
        raise InputError("publish: nobody is logged in to the hub; run `hf auth login`, or set HF_TOKEN")
    repository = HubRepository(options.repo, kind, private=options.private)
    arrived: list[Commit] = []
    try:
        with terminal.notes.status("sending") as status:

            def note(commit: Commit) -> None:
                arrived.append(commit)
                status.update(f"sending, {len(arrived)} of {len(commits)} commits are there")

            sent = send(options.site, commits, repository, card, note)
    except Exception as error:
        raise CommandError(
            f"publish: {len(arrived)} of {len(commits)} commits are there, then: {described(error)}; "
            "the same command goes on from here",
            data=data,
        ) from error
    terminal.results.print(f"{repository.address}: {sent} of {len(commits)} commits had something new", markup=False)
    return Outcome(DONE, data | {"sent": sent, "address": repository.address})


def _listed(commits: list[Commit]) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("commit")
    table.add_column("from")
    for heading in ("files", "holding", "MB"):
        table.add_column(heading, justify="right")
    for commit in commits:
        table.add_row(escape(commit.message), escape(commit.uploads[0].path), *_counts([commit]))
    table.add_row("all", "", *_counts(commits), style="bold")
    return table


def _counts(commits: list[Commit]) -> tuple[str, str, str]:
    files = sum(len(commit.uploads) for commit in commits)
    return str(files), str(sum(commit.sources for commit in commits)), f"{sum(c.bytes for c in commits) / 1e6:.1f}"


def _plain(commit: Commit) -> dict[str, Any]:
    files = [{"path": upload.path, "bytes": upload.bytes, "holds": len(upload.sources)} for upload in commit.uploads]
    return {"message": commit.message, "bytes": commit.bytes, "files": files}
