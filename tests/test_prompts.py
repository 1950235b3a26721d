"""Prompt files of every kind, and complaints that name the line."""

from pathlib import Path

import pytest

from experiments.prompts import PROMPT_SETS, Prompt, PromptError, read_prompts


def written(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.mark.parametrize(("name", "count"), [("everyday", 60), ("hard", 40)])
def test_the_sets_that_come_along(name: str, count: int) -> None:
    prompts = read_prompts(name)
    assert len(prompts) == count
    assert len({prompt.text for prompt in prompts}) == count
    assert set(PROMPT_SETS) == {"everyday", "hard"}


def test_the_hard_ones_are_of_five_kinds() -> None:
    kinds = [prompt.id.split("-")[0] for prompt in read_prompts("hard")]
    assert {kind: kinds.count(kind) for kind in kinds} == dict.fromkeys(
        ("name", "number", "twister", "repeat", "question"), 8
    )


def test_every_format(tmp_path: Path) -> None:
    (tmp_path / "a.wav").touch()
    lines = '{"text": "One.", "id": "x", "instruction": "softly"}\n\n{"text": "Two, three.", "reference": "a.wav"}\n'
    one, two = read_prompts(written(tmp_path, "p.jsonl", lines))
    assert one == Prompt("x", "One.", instruction="softly")
    assert two == Prompt("p-02", "Two, three.", reference=str(tmp_path / "a.wav"))
    assert one.request().id == "x"
    table = 'id,text,language\na,"One, two.",English\nb,Three.,\n'
    assert read_prompts(written(tmp_path, "p.csv", table)) == [
        Prompt("a", "One, two.", "English"),
        Prompt("b", "Three."),
    ]
    broken = 'id,text\na,"One,\ntwo."\nb,Three.\n'
    assert [prompt.text for prompt in read_prompts(written(tmp_path, "broken.csv", broken))] == ["One,\ntwo.", "Three."]
    odd = '{"text": "One \u2028 two."}\n{"text": "Three."}\n'
    assert [prompt.text for prompt in read_prompts(written(tmp_path, "odd.jsonl", odd))] == [
        "One \u2028 two.",
        "Three.",
    ]
    assert [prompt.text for prompt in read_prompts(written(tmp_path, "p.txt", "\ufeffOne.\n\n Two. \n"))] == [
        "One.",
        "Two.",
    ]
    listed = "c1|what it says|a.wav|What to say.|truth.wav\n"
    assert read_prompts(written(tmp_path, "meta.lst", listed)) == [
        Prompt("c1", "What to say.", reference=str(tmp_path / "a.wav"))
    ]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.jsonl", '{"text": "a"}\n{"text": "b"', r"p\.jsonl:2: no valid JSON"),
        ("p.jsonl", "[1]", r"p\.jsonl:1: a list, not an object"),
        ("p.jsonl", '{"text": "a"}\n{"txt": "b"}', r"p\.jsonl:2: unknown field 'txt'; allowed are id, text"),
        ("p.jsonl", '{"text": 3}', r"p\.jsonl:1: text is 3; it must be text"),
        ("p.jsonl", '{"text": " "}', r"p\.jsonl:1: no text"),
        (
            "p.jsonl",
            '{"text": "a", "id": "x"}\n\n{"text": "b", "id": "x"}',
            r"p\.jsonl:3: id 'x' is that of line 1 too",
        ),
        ("p.jsonl", '{"text": "a", "reference": "no.wav"}', r"p\.jsonl:1: reference '.*no\.wav' is no file"),
        ("p.jsonl", "\n", r"p\.jsonl: no prompts"),
        ("p.csv", "id,txt\na,b\n", r"p\.csv:1: no column 'text'; the header has id, txt"),
        ("p.csv", "id,text\na,b,c\n", r"p\.csv:2: 2 columns are needed"),
        ("p.csv", 'text\n"a\n', r"p\.csv:2: unexpected end of data"),
        ("meta.lst", "a|b|c\n", r"meta\.lst:1: 3 fields between bars"),
        ("p.docx", "a", r"is no prompt file; allowed are files that end in \.jsonl, \.csv, \.txt, \.lst, and everyday"),
    ],
)
def test_complaints_name_the_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    with pytest.raises(PromptError, match=message):
        read_prompts(written(tmp_path, name, content))


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes(b"ok\n\xff\xfe")
    with pytest.raises(PromptError, match=r"p\.txt: not UTF-8 at byte 3"):
        read_prompts(tmp_path / "p.txt")
    with pytest.raises(PromptError, match=r"nowhere\.txt: No such file"):
        read_prompts(tmp_path / "nowhere.txt")
