"""Rewrites a plan between the text and the graph, in this order:

    optimize    every plan: passes until none changes it (`rewrites`)
    kept_top    a view with a LIMIT: keep only the rows that a lookup can show (`tops`); shared_top: some more rows, for
                an ad-hoc view
    of_parts    a view over several workers: split AVG into SUM and COUNT (`averages`)
    error_reporting_view
                a view that enters the graph: carry the errors of conditions in its rows (`error_propagation`);
                error_reporting_plan: the same for a query that Spark runs

    comparison_form
                only to compare plans from before and after a change of their tables

To be shared, views are compared after `kept_top` and before `of_parts`, because the later rewrites follow from the
plan.
"""

from noria.plan.optimizer.averages import of_parts
from noria.plan.optimizer.comparison_form import comparison_form
from noria.plan.optimizer.error_propagation import error_reporting_plan, error_reporting_view
from noria.plan.optimizer.rewrites import optimize
from noria.plan.optimizer.tops import first_rows, is_copy, kept_top, shared_top, top_of

__all__ = [
           "comparison_form",
           "error_reporting_plan",
           "error_reporting_view",
           "first_rows",
           "is_copy",
           "kept_top",
           "of_parts",
           "optimize",
           "shared_top",
           "top_of",
]
