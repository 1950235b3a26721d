"""`README.md` of a site: what the first page says as Markdown, under the head that the Hugging Face hub reads.

Knows the report's words and the tables' names, not what is in them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.site.figures import NamedPlot
from experiments.site.index_page import extent, failures, origin
from experiments.site.material import Material
from experiments.statistics import Report
from experiments.statistics.markdown import markdown

_HEAD = "---\n"


def card(material: Material, report: Report, plots: Sequence[NamedPlot], tables: Sequence[str]) -> str:
    """The file. `tables`: Parquet files of the site, the main one first."""
    title, rest = markdown(report).split("\n", 1)
    parts = [
        _head(material, tables) + title,
        f"{extent(material, report)}. Pages with players for every take: open `index.html`.",
        *([_bullets(material.gaps)] if material.gaps else []),
        rest.strip(),
        *(["## Figures", *map(_figure, plots)] if plots else []),
        _failures(material),
        _made(material),
        _files(tables),
    ]
    return "\n\n".join(parts) + "\n"


def space_card(text: str, title: str) -> str:
    """The same file for a static space, which has another head."""
    body = text.split(_HEAD, 2)[2] if text.startswith(_HEAD) else text
    return f"{_HEAD}title: {_quoted(title)}\nsdk: static\napp_file: index.html\npinned: false\n{_HEAD}{body}"


def _head(material: Material, tables: Sequence[str]) -> str:
    configs = [
        f"- config_name: {_quoted(_config(name))}\n  data_files: {_quoted(name)}"
        + ("\n  default: true" if not place else "")
        for place, name in enumerate(tables)
    ]
    lines = [
        f"pretty_name: {_quoted(material.name)}",
        "task_categories:\n- text-to-speech",
        "tags:\n- audio\n- chunksearch\n- text-to-speech",
        *(["configs:", *configs] if configs else []),
    ]
    return _HEAD + "\n".join(lines) + "\n" + _HEAD + "\n"


def _config(name: str) -> str:
    return name.removeprefix("data/").removesuffix(".parquet").replace("/", "-")


def _figure(named: NamedPlot) -> str:
    return f"![{_escaped(named.title)}](plots/{named.name}.svg)\n\n{_escaped(f'{named.title} {named.caption}')}"


def _failures(material: Material) -> str:
    rows = [f"{row.name}: {', '.join(cell.text for cell in row.cells)}" for row in failures(material).rows]
    return "## Failures\n\n" + (_bullets(rows) if rows else "None.")


def _made(material: Material) -> str:
    commands = "\n".join(material.commands)
    facts = _bullets([f"{label}: {value}" for label, value in origin(material)])
    return f"## Reproduce\n\n```sh\n{commands}\n```\n\n{facts}"


def _files(tables: Sequence[str]) -> str:
    lines = [
        *(f"`{name}`" for name in tables),
        "`summary.json`: every number of the report, with intervals",
        "`audio/UNIT.flac`, `audio/UNIT.mp3`: takes; `candidates/UNIT.flac`: what was rejected, if the run kept it",
        "`site.json`: length and SHA-256 of every file",
        "On the hub, audio may be packed: `for part in audio/*.tar candidates/*.tar; do tar -xf $part; done`",
    ]
    return "## Files\n\n" + "\n".join(f"- {line}" for line in lines)


def _bullets(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {_escaped(sentence)}" for sentence in sentences)


def _escaped(text: str) -> str:
    """Plain words that Markdown takes for nothing else."""
    text = " ".join(text.replace("&", "&amp;").replace("<", "&lt;").split())
    return "".join(f"\\{sign}" if sign in "\\`*_[]|#" else sign for sign in text)


def _quoted(text: str) -> str:
    """A YAML string: JSON is YAML."""
    return json.dumps(text, ensure_ascii=False)
