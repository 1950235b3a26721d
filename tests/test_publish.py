"""A site's way to a hub of this process: what is planned is what arrives, once, whatever breaks on the way."""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from experiments.commands import publish as command
from experiments.commands.outcome import CommandError, InputError
from experiments.publish import plan
from experiments.publish.plan import Commit, Kind, planned
from experiments.publish.send import Remote, send
from experiments.site.files import built_aside, read_site

CARD = '---\npretty_name: "s"\n---\n\n# s\n'


@dataclass
class Hub:
    """A repository that keeps small files and large ones differently, and fails when it is told to."""

    held: dict[str, bytes] = field(default_factory=dict)
    commits: list[tuple[str, list[str], list[str]]] = field(default_factory=list)
    troubles: list[Exception] = field(default_factory=list)
    breaks_after: int | None = None
    created: int = 0

    def create(self) -> None:
        self.created += 1

    def files(self) -> dict[str, Remote]:
        return {
            path: Remote(
                hashlib.sha256(content).hexdigest() if path.endswith((".tar", ".flac", ".mp3")) else None,
                hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest(),
            )
            for path, content in self.held.items()
        }

    def commit(self, message: str, files: Mapping[str, bytes], removed: Sequence[str]) -> None:
        if self.troubles:
            raise self.troubles.pop(0)
        if len(self.commits) == self.breaks_after:
            raise RuntimeError("connection lost")
        self.commits.append((message, list(files), list(removed)))
        self.held |= files
        for path in removed:
            del self.held[path]


def busy(code: int = 429, after: str = "") -> Exception:
    error = RuntimeError("Too Many Requests")
    error.response = SimpleNamespace(status_code=code, headers={"Retry-After": after} if after else {})  # type: ignore[attr-defined]
    return error


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of 1487 small files, without anything to see."""
    return made_site(tmp_path_factory.mktemp("publish") / "site")


def made_site(out: Path, count: int = 700) -> Path:
    with built_aside(out, {"name": "s", "run": "r"}) as root:
        for folder, files, end in (("audio", count, ".mp3"), ("candidates", count, ".flac"), ("prompts", 84, ".html")):
            (root / folder).mkdir()
            for number in range(files):
                (root / folder / f"{number:04d}{end}").write_text(f"{folder} {number}")
        (root / "README.md").write_text(CARD)
        (root / "index.html").write_text("<h1>")
    return out


def plan_of(site: Path, kind: Kind = "dataset") -> list[Commit]:
    return planned(site, read_site(site), kind, (site / "README.md").read_bytes())


def sent(site: Path, hub: Hub, kind: Kind = "dataset", sleeps: list[float] | None = None) -> int:
    card = (site / "README.md").read_bytes()
    pause = (sleeps if sleeps is not None else []).append
    return send(site, plan_of(site, kind), hub, card, lambda _: None, pause)


def test_many_small_files_are_few_commits(site: Path) -> None:
    (only,) = plan_of(site)
    assert [upload.path for upload in only.uploads][:2] == ["audio/part-000.tar", "candidates/part-000.tar"]
    assert only.uploads[-1].path == "site.json"
    assert (len(only.uploads), only.sources) == (2 + 84 + 3, 1487)
    spaced = plan_of(site, "space")
    assert [len(commit.uploads) for commit in spaced] == [200] * 7 + [87]
    assert spaced[-1].uploads[-1].path == "site.json"
    assert [commit.message for commit in spaced][-1] == "s: part 8 of 8"


def test_what_is_planned_arrives(site: Path) -> None:
    hub = Hub()
    assert sent(site, hub) == 1
    (commit,) = plan_of(site)
    assert {path: len(content) for path, content in hub.held.items()} == {
        upload.path: upload.bytes for upload in commit.uploads
    }
    found = {path: content for path, content in hub.held.items() if not path.endswith(".tar")}
    for path in ("audio/part-000.tar", "candidates/part-000.tar"):
        with tarfile.open(fileobj=io.BytesIO(hub.held[path])) as tar:
            found |= {entry.name: tar.extractfile(entry).read() for entry in tar}  # type: ignore[union-attr]
    assert found == {path.relative_to(site).as_posix(): path.read_bytes() for path in site.rglob("*") if path.is_file()}


def test_packs_are_cut_where_they_are_full(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "SHARD_BYTES", 200 * 1024)
    monkeypatch.setattr(plan, "COMMIT_BYTES", 500 * 1024)
    hub = Hub()
    assert sent(site, hub) == len(plan_of(site)) > 3
    shards = [path for path in hub.held if path.endswith(".tar")]
    assert len(shards) == 2 * 4
    assert all(len(hub.held[path]) <= 220 * 1024 for path in shards)
    assert all(commit.bytes <= 500 * 1024 for commit in plan_of(site))


def test_a_second_time_nothing_is_sent(site: Path) -> None:
    hub = Hub()
    sent(site, hub, "space")
    assert (sent(site, hub, "space"), len(hub.commits)) == (0, 8)
    hub.held["audio/0003.mp3"] = b"audio X"
    assert sent(site, hub, "space") == 1
    assert hub.commits[-1] == ("s: part 1 of 8", ["audio/0003.mp3"], [])


def test_it_goes_on_after_a_break(site: Path) -> None:
    whole, hub = Hub(), Hub()
    sent(site, whole, "space")
    for breaks_after in (0, 3, 7):
        hub.breaks_after = breaks_after
        with pytest.raises(RuntimeError, match="connection lost"):
            sent(site, hub, "space")
        assert len(hub.commits) == breaks_after
    assert "site.json" not in hub.held
    hub.breaks_after = None
    assert sent(site, hub, "space") == 1
    assert hub.held == whole.held
    assert hub.commits == whole.commits


def test_a_busy_hub_is_waited_for(site: Path) -> None:
    sleeps: list[float] = []
    hub = Hub(troubles=[busy(503), busy(429, "7"), busy(504)])
    assert sent(site, hub, sleeps=sleeps) == 1
    assert sleeps == [2.0, 7.0, 8.0]
    with pytest.raises(RuntimeError, match="Too Many"):
        sent(site, Hub(troubles=[busy(403)]), sleeps=sleeps)
    assert len(sleeps) == 3


def test_files_of_an_older_site_go_and_all_others_stay(site: Path) -> None:
    old = {"audio/old.mp3": b"", "prompts/old.html": b"", "candidates/old.flac": b""}
    hub = Hub(held={**old, ".gitattributes": b"", "notes/mine.md": b""})
    sent(site, hub, "space")
    assert hub.commits[-1][2] == sorted(old)
    assert all(removed == [] for _, _, removed in hub.commits[:-1])
    assert {".gitattributes", "notes/mine.md"} <= set(hub.held)


def options(site: Path, **changed: Any) -> command.Options:
    given = {"site": site, "repo": "me/it", "kind": "dataset", "private": False, "dry_run": True, "as_json": False}
    return command.Options(**{**given, **changed})


def test_a_dry_run_lists_commits_without_the_package(
    site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    outcome = command.run(options(site, kind="space"))
    assert (outcome.code, outcome.data["sent"], len(outcome.data["commits"])) == (0, 0, 8)
    assert sum(commit["bytes"] for commit in outcome.data["commits"]) > 0
    json.dumps(outcome.data)
    assert "s: part 8 of 8" in capsys.readouterr().out
    monkeypatch.delitem(sys.modules, "experiments.publish.hub", raising=False)
    with pytest.raises(InputError, match=r"pip install 'chunksearch\[publish\]'"):
        command.run(options(site, dry_run=False))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"repo": "it"}, "--repo: 'it'; give a user"),
        ({"repo": "https://huggingface.co/me/it"}, "--repo: "),
        ({"kind": "model"}, "--type: 'model' is not known; allowed are dataset, space"),
        ({"site": Path("nowhere")}, "no site in it"),
    ],
)
def test_what_is_wrong_is_one_line(site: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        command.run(options(**{"site": site, **changed}))
    assert "\n" not in str(error.value)


def test_a_site_that_was_changed_is_not_published(tmp_path: Path) -> None:
    site = made_site(tmp_path / "site", 2)
    (site / "index.html").write_text("<h2>")
    with pytest.raises(InputError, match="not the file that the site was made with"):
        command.run(options(site))


class Api:
    """What is used of `huggingface_hub.HfApi`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.error = error

    def create_repo(self, name: str, **given: Any) -> None:
        self.calls.append((f"create {name}", given))

    def list_repo_tree(self, name: str, **given: Any) -> list[Any]:
        self.calls.append((f"list {name}", given))
        file = SimpleNamespace(path="audio/old.mp3", lfs=SimpleNamespace(sha256="0"), blob_id="1")
        return [SimpleNamespace(path="audio"), file]

    def create_commit(self, name: str, operations: list[Any], **given: Any) -> None:
        if self.error:
            raise self.error
        self.calls.append((f"commit {name}", given | {"paths": [one.path_in_repo for one in operations]}))


@pytest.mark.parametrize("kind", ["dataset", "space"])
def test_the_hub_is_asked_for_the_right_things(site: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'chunksearch[publish]'")
    api = Api()
    monkeypatch.setattr(hub, "HfApi", lambda **_: api)
    monkeypatch.setattr(hub, "get_token", lambda: "token")
    outcome = command.run(options(site, dry_run=False, kind=kind, private=True))
    assert outcome.data["address"] == f"https://huggingface.co/{kind}s/me/it"
    (created, made), (listed, _), *commits = api.calls
    assert (created, listed) == ("create me/it", "list me/it")
    assert made["repo_type"] == kind
    assert made["private"] is True
    assert made.get("space_sdk") == ("static" if kind == "space" else None)
    assert {given["repo_type"] for _, given in commits} == {kind}
    assert outcome.data["sent"] == len(commits) == len(outcome.data["commits"])
    assert commits[-1][1]["paths"][-2:] == ["site.json", "audio/old.mp3"]


def test_a_space_has_a_head_of_its_own(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}

    def keep(_folder: Path, _commits: Any, _hub: Any, card: bytes, _arrived: Any) -> int:
        kept["card"] = card
        return 0

    pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'chunksearch[publish]'")
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    monkeypatch.setattr(command, "send", keep)
    command.run(options(site, dry_run=False, kind="space"))
    assert kept["card"].decode() == '---\ntitle: "s"\nsdk: static\napp_file: index.html\npinned: false\n---\n\n# s\n'


def test_without_a_token_or_with_a_broken_line_one_line_says_so(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = pytest.importorskip("huggingface_hub", reason="needs huggingface_hub: pip install 'chunksearch[publish]'")
    monkeypatch.setattr(hub, "get_token", lambda: None)
    with pytest.raises(InputError, match="nobody is logged in"):
        command.run(options(site, dry_run=False))
    monkeypatch.setattr(hub, "get_token", lambda: "token")
    monkeypatch.setattr(hub, "HfApi", lambda **_: Api(OSError("network is\nunreachable")))
    with pytest.raises(CommandError, match="0 of 1 commits are there, then: OSError: network is unreachable") as error:
        command.run(options(site, dry_run=False))
    assert "\n" not in str(error.value)
