"""Ours and every other way side by side, on the same data and function, and how times grow; writes docs/results.

Work is on 8 emulated slots with a service time that waits, but for the tables and curves that say so. Results of all
contenders are compared before any is timed.
"""

import msgspec

from equipoise_lab.bench.harness import Context, Report, Result
from equipoise_lab.bench.peers.curves import all_curves
from equipoise_lab.bench.peers.markdown_page import as_markdown
from equipoise_lab.bench.peers.results import Results, slug, worst_first
from equipoise_lab.bench.peers.sizes import FULL, QUICK, Sizes
from equipoise_lab.bench.peers.tables import all_tables


def run(context: Context) -> Result:
    """Time all contenders on all work."""
    return measured(QUICK if context.quick else FULL, context)


def measured(sizes: Sizes, context: Context) -> Result:
    """Time all contenders on work of the given sizes."""
    results = Results(all_tables(sizes, context), all_curves(sizes, context))
    duels = worst_first(results.tables)
    metrics = {f"{slug(duel.name)}_over_best_peer": duel.ratio.median for duel in duels}
    whole = [table.whole_over_best_peer for table in results.tables if table.whole_over_best_peer is not None]
    metrics["whole_over_best_peer"] = max(whole)
    metrics["tables"] = float(len(results.tables))
    metrics["tables_where_a_peer_is_faster"] = float(sum(bool(table.losses) for table in results.tables))
    return Result(metrics, msgspec.to_builtins(results))


def page(report: Report) -> str:
    """The page of the documentation that shows a report."""
    return as_markdown(report)
