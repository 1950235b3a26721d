"""The effects as a heat map in SVG, to be read on light and dark pages; the same bytes for the same numbers.

Knows numbers, not where they come from.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from experiments.sensitivity.damages import Damage
from experiments.sensitivity.table import Effect

STRONGEST = 6.0
"""Standard deviations from which on cells look the same."""

BETWEEN = "#7d7d7d"
"""Of what stands on the page itself: contrast above 4 with white and with GitHub's dark page."""

LOWER, LEVEL, HIGHER, UNJUDGED = "#b3541e", "#e9e6e1", "#0a6b64", "#5c5c66"
_STYLE: Any = {"svg.fonttype": "none", "svg.hashsalt": "chunksearch", "font.size": 8, "text.color": BETWEEN}


def heat_map(damages: Sequence[Damage], found: Sequence[Effect], terms: Sequence[str], stage: str = "whole") -> str:
    """SVG: a row a damage, a column a term; the cell is the drop in standard deviations, brown where the copy is below.

    "n" is a copy that is never judged.
    """
    cells = {(one.damage, one.term): one for one in found if one.stage == stage}
    rows = [damage for damage in damages if any((damage.name, term) in cells for term in terms)]
    colours = LinearSegmentedColormap.from_list("drop", [HIGHER, LEVEL, LOWER]).with_extremes(bad=UNJUDGED)
    drops = np.array([[_drop(cells.get((damage.name, term))) for term in terms] for damage in rows])
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2.4 + 0.84 * len(terms), 1.3 + 0.25 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        image = axes.imshow(drops, cmap=colours, vmin=-STRONGEST, vmax=STRONGEST, aspect="auto")
        for row, damage in enumerate(rows):
            for column, term in enumerate(terms):
                one = cells.get((damage.name, term))
                drop = drops[row, column]
                plain = math.isfinite(drop) and abs(drop) < 0.8 * STRONGEST
                weight = "bold" if one is not None and one.meant else "normal"
                text = f"{round(drop, 1) + 0.0:.1f}" if math.isfinite(drop) else "n"
                axes.text(column, row, text, ha="center", va="center", weight=weight, color="#111" if plain else "#fff")
        axes.set_yticks(range(len(rows)), [damage.what for damage in rows])
        axes.set_xticks(range(len(terms)), [term.replace(".", "\n") for term in terms])
        axes.tick_params(length=0, colors=BETWEEN, top=True, labeltop=True, bottom=False, labelbottom=False)
        for spine in axes.spines.values():
            spine.set_visible(False)
        bar = figure.colorbar(image, ax=axes, fraction=0.03, label="mean drop, standard deviations of undamaged takes")
        bar.ax.tick_params(length=0, colors=BETWEEN)
        bar.ax.yaxis.label.set_color(BETWEEN)
        bar.outline.set_visible(False)
        held = io.StringIO()
        figure.savefig(held, format="svg", transparent=True, metadata={"Date": None})
    return held.getvalue()


def _drop(one: Effect | None) -> float:
    return math.nan if one is None else one.drop_in_units
