"""What a finished run shows, and what it does not: paired, with intervals, corrected for all that was tested."""

from experiments.statistics.effects import Draw
from experiments.statistics.markdown import markdown
from experiments.statistics.report import Report, report
from experiments.statistics.results import Results, load_results

__all__ = ["Draw", "Report", "Results", "load_results", "markdown", "report"]
