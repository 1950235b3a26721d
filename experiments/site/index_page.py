"""What the first page of a site says: the report's words first, then its numbers, then where to hear them.

Knows the report and the run, not how a page looks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from experiments.report.marks import with_unit
from experiments.site.cells import (
    Cell,
    Head,
    Row,
    Table,
    head_of,
    label_of,
    measured,
    name_cell,
    plain,
    text_cell,
)
from experiments.site.figures import NamedPlot
from experiments.site.material import Material, Said
from experiments.statistics import Report
from experiments.statistics.effects import Effect, many, signed
from experiments.statistics.markdown import method
from experiments.statistics.metrics import Metric

BESIDE = ("reward", "search_rtf", "first_commit_seconds", "seconds")
"""Metrics that are shown with those that were tested."""
_ORIGIN = {
    "run": "run",
    "created": "begun",
    "commit": "commit",
    "processor": "processor",
    "cores": "cores",
    "devices": "GPUs",
    "python": "Python",
}


def index_page(
    material: Material, report: Report, plots: Sequence[NamedPlot], files: Sequence[Mapping[str, str]]
) -> dict[str, Any]:
    """All that the template of the first page needs."""
    headline, findings = words(report)
    return {
        "title": material.name,
        "name": material.name,
        "extent": extent(material, report),
        "headline": headline,
        "findings": findings,
        "warnings": [*material.gaps, *report.warnings, *(edge.sentence for edge in report.edges)],
        "reading": reading(report),
        "configurations": configurations(report),
        "plots": plots,
        "prompts": _prompts(material, report),
        "effects": _effects(report),
        "method": method(report),
        "everything": _everything(report),
        "failures": failures(material),
        "units": len(material.takes),
        "commands": material.commands,
        "origin": origin(material),
        "files": files,
    }


def words(report: Report) -> tuple[str, list[str]]:
    """The sentence to begin with, and those that follow: what was tested comes before what was selected for."""
    tested = tuple(f"{metric.name} against" for metric in report.metrics if metric.tested)
    sentences = list(report.headlines) or ["Nothing was compared."]
    headline = next((sentence for sentence in sentences if tested and sentence.startswith(tested)), sentences[0])
    return headline, [sentence for sentence in sentences if sentence != headline]


def extent(material: Material, report: Report) -> str:
    """How much was run, in one line."""
    counts = [
        many(len(report.configurations), "configuration"),
        many(report.prompts, "prompt"),
        many(len(report.seeds), "seed"),
        many(len(material.takes), "take"),
    ]
    return ", ".join(counts)


def reading(report: Report) -> str:
    """How to read the table of configurations."""
    tests = (
        f"Verdicts are of the paired differences to {report.baseline}, corrected for all "
        f"{many(report.tests, 'test')} of this study."
    )
    return (
        f"Means over prompts (seeds averaged first) with {report.level:.0%} intervals from a bootstrap over prompts. "
        + (tests if report.tests else "There are too few prompts, or no judge, for a test of anything.")
    )


def shown_metrics(report: Report) -> list[Metric]:
    """Tested metrics first, then those of `BESIDE` that the run has."""
    by_name = {metric.name: metric for metric in report.metrics if not metric.tested}
    tested = [metric for metric in report.metrics if metric.tested]
    return [*tested, *(by_name[name] for name in BESIDE if name in by_name)]


def configurations(report: Report) -> Table:
    """The table of configurations: settings that vary, metrics with intervals and verdicts, what went wrong."""
    knobs = list(dict.fromkeys(knob for one in report.configurations for knob in one.settings))
    metrics = shown_metrics(report)
    verdicts = {(one.configuration, one.metric): one for one in report.effects if one.kind == "baseline"}
    means = {(one.configuration, one.metric): one for one in report.summaries}
    rows = []
    for one in report.configurations:
        cells = [_setting(one.settings.get(knob)) for knob in knobs]
        for metric in metrics:
            summary, effect = means[one.name, metric.name], verdicts.get((one.name, metric.name))
            mean = summary.mean
            corpus = f"corpus {with_unit(summary.corpus.value, '{:.3g}')}" if summary.corpus else ""
            verdict = "baseline" if one.name == report.baseline and metric.tested else _verdict(effect)
            value, interval = (mean.mean, mean.bootstrap) if mean else (None, None)
            cells.append(measured(value, interval, verdict, corpus))
        trouble = [f"{one.failed} failed"] if one.failed else []
        trouble += [f"{one.hit_frame_limit} at the limit"] if one.hit_frame_limit else []
        cells.append(Cell(str(one.units), one.units, ", ".join(trouble)))
        rows.append(Row(one.name, cells))
    heads = [Head("configuration", words=True), *(Head("N" if knob == "n" else knob) for knob in knobs)]
    return Table("Configurations", [*heads, *map(head_of, metrics), Head("takes")], rows)


def failures(material: Material) -> Table:
    """Units that failed, or were cut at the frame limit."""
    rows = [
        Row(
            take.unit,
            [
                name_cell(take.configuration),
                Cell(said.id, kind="word", href=f"prompts/{said.slug}.html#take-{take.unit}"),
                Cell(str(take.seed), take.seed),
                text_cell(take.error or str(take.row.get("status", "")).replace("_", " ")),
            ],
        )
        for said in material.prompts
        for take in said.takes
        if take.state == "failed" or take.row.get("status") != "complete"
    ]
    heads = [Head("unit", words=True), Head("configuration", words=True), Head("prompt", words=True)]
    return Table("Failures", [*heads, Head("seed"), Head("what happened", words=True)], rows)


def origin(material: Material) -> list[tuple[str, str]]:
    """Where the run was made, as far as it says."""
    about = material.store.about["origin"] | {"run": material.store.run}
    known = [(label, about[name]) for name, label in _ORIGIN.items() if about.get(name)]
    shown = [(label, ", ".join(value) if isinstance(value, list) else str(value)) for label, value in known]
    if about.get("dirty"):
        shown.append(("changed since that commit", "yes"))
    return shown + [(name, str(version)) for name, version in about.get("versions", {}).items() if version]


def _setting(value: Any) -> Cell:
    try:
        return Cell(str(value), float(value))
    except (TypeError, ValueError):
        return Cell("–" if value is None else str(value))


def _verdict(effect: Effect | None) -> str:
    return "" if effect is None or effect.verdict == "described" else effect.verdict


def _prompts(material: Material, report: Report) -> Table:
    metrics = [metric for metric in report.metrics if metric.tested]
    rows = []
    for said in material.prompts:
        failed = sum(take.state == "failed" for take in said.takes)
        note = f"{failed} failed" if failed else ""
        means = [plain(_mean(said, metric)) for metric in metrics]
        takes = Cell(str(len(said.takes)), len(said.takes), note)
        rows.append(Row(said.id, [text_cell(said.prompt["text"]), takes, *means], f"prompts/{said.slug}.html"))
    heads = [Head("prompt", words=True), Head("text", words=True), Head("takes")]
    return Table("Prompts", [*heads, *map(head_of, metrics)], rows)


def _mean(said: Said, metric: Metric) -> float | None:
    values = [value for take in said.takes if (value := take.figure(metric.name)) is not None]
    return sum(values) / len(values) if values else None


def _effects(report: Report) -> Table:
    labels = {metric.name: label_of(metric) for metric in report.metrics}
    rows = [
        Row(
            labels[one.metric],
            [
                name_cell(one.configuration),
                name_cell({"doubling": f"per doubling, {one.against}"}.get(one.kind, one.against)),
                _difference(one),
                Cell(f"{one.wins} / {one.ties} / {one.losses}", one.wins - one.losses),
                plain(one.p_t, "{:.2g}"),
                plain(one.p_wilcoxon, "{:.2g}"),
                plain(one.p_holm, "{:.2g}"),
            ],
        )
        for one in report.effects
        if one.verdict != "described"
    ]
    names = ("metric", "configuration", "against")
    heads = [Head(name, words=True) for name in names] + [Head("difference"), Head("better / same / worse", "prompts")]
    return Table("Tests", [*heads, Head("p", "t test"), Head("p", "Wilcoxon"), Head("p", "after Holm")], rows)


def _difference(one: Effect) -> Cell:
    if one.size is None:
        return Cell("–", None, "no value", one.verdict)
    cell = measured(one.size.mean, one.size.bootstrap, one.verdict)
    return Cell(signed(one.size.mean), cell.sort, cell.small, cell.verdict)


def _everything(report: Report) -> Table:
    means = {(one.configuration, one.metric): one.mean for one in report.summaries}
    names = [one.name for one in report.configurations]
    rows = []
    for metric in report.metrics:
        found = [means[name, metric.name] for name in names]
        rows.append(Row(label_of(metric), [plain(mean.mean if mean else None) for mean in found]))
    return Table("Everything that was measured", [Head("metric", words=True), *map(Head, names)], rows)
