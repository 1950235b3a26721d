"""A report as Markdown: headlines, warnings, a table. Knows no statistics."""

from __future__ import annotations

from collections.abc import Sequence

from experiments.statistics.comparisons import Summary
from experiments.statistics.effects import Effect, many, number, signed, span
from experiments.statistics.metrics import Metric
from experiments.statistics.report import Report

SYMBOLS = {"better": "better", "worse": "worse", "no effect shown": "not shown", "cannot be judged": "cannot be judged"}


def markdown(found: Report) -> str:
    """The whole report; ends with a newline."""
    tested = [metric for metric in found.metrics if metric.tested]
    parts = [
        f"# {_plain(found.study or 'Study')}",
        f"{many(len(found.configurations), 'configuration')}, {many(found.prompts, 'prompt')}, "
        f"{many(len(found.seeds), 'seed')}; all differences are against {found.baseline or 'nothing'}, "
        "paired by prompt and seed, prompts first.",
        _list("What is shown", found.headlines),
        _list("Before believing it", found.warnings),
        _table(found, tested),
        _list("Cost and quality", [one.sentence for one in found.frontiers]),
        _list("Edges of the sweep", [one.sentence for one in found.edges]),
        _list("Selection against judgement", [one.sentence for one in found.optimism]),
        _list("All tests", [one.sentence for one in found.effects if one.verdict != "described"]),
        f"## How it was judged\n\n{method(found)}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _list(title: str, sentences: Sequence[str]) -> str:
    lines = "\n".join(f"- {_plain(sentence)}" for sentence in sentences)
    return f"## {title}\n\n{lines}" if sentences else ""


def _table(found: Report, tested: Sequence[Metric]) -> str:
    if not found.configurations:
        return ""
    by_summary = {(one.configuration, one.metric): one for one in found.summaries}
    by_effect = {(one.configuration, one.metric): one for one in found.effects if one.kind == "baseline"}
    heads = ["configuration", *(f"{metric.name} ({_arrow(metric)})" for metric in tested)]
    lines = ["| " + " | ".join(heads) + " |", "|" + "|".join([" --- "] * len(heads)) + "|"]
    for configuration in found.configurations:
        keys = [(configuration.name, metric.name) for metric in tested]
        cells = [_cell(by_summary[key], by_effect.get(key)) for key in keys]
        lines.append("| " + " | ".join([configuration.name, *cells]) + " |")
    return "## Means\n\nMean [interval]; difference; verdict.\n\n" + "\n".join(lines)


def _cell(summary: Summary, effect: Effect | None) -> str:
    if summary.mean is None:
        return "no value"
    mean = f"{number(summary.mean.mean)}{span(summary.mean.bootstrap)}"
    corpus = f" (corpus {number(summary.corpus.value)})" if summary.corpus else ""
    compared = f"; {signed(effect.size.mean)}; {SYMBOLS[effect.verdict]}" if effect and effect.size else ""
    return mean + corpus + compared


def _arrow(metric: Metric) -> str:
    return f"{metric.better} is better"


def method(found: Report) -> str:
    """How tests were made, for people."""
    return (
        "Takes of a prompt are averaged first; prompts are the sample. Intervals are "
        f"{found.level:.0%} each, BCa bootstrap over prompts. A difference is shown when the p of the exact Wilcoxon "
        f"signed rank test (zeros dropped) is below {found.alpha:g} after Holm's correction over all "
        f"{many(found.tests, 'test')} of this report and the mean points the same way; the paired t test is beside it."
    )


def _plain(sentence: str) -> str:
    sentence = " ".join(sentence.replace("<", "&lt;").split())
    return "".join(f"\\{sign}" if sign in "_|*`" else sign for sign in sentence)
