"""Everything that is done to a plan between the text and the graph, in this order:

    optimize    of every plan, once it is planned: passes until none changes anything (`rewrites`)
    kept_top    of a view with a LIMIT: only the rows are kept that a lookup can show (`tops`); shared_top of an ad-hoc
                one: some more
    of_parts    of a view of several workers: averages of what each has (`averages`)
    told        of a view as it goes into the graph: its rows tell the errors of its conditions (`told`); told_plan of a
                query that Spark runs

    essence     of views and SELECTs that are compared though their tables have changed between (`essence`)

Views are compared, to be shared, between the second and the third: what a view tells follows from its plan.
"""

from noria.plan.optimizer.averages import of_parts
from noria.plan.optimizer.essence import essence
from noria.plan.optimizer.rewrites import optimize
from noria.plan.optimizer.telling import told, told_plan
from noria.plan.optimizer.tops import first_rows, is_copy, kept_top, shared_top, top_of

__all__ = ["essence", "first_rows", "is_copy", "kept_top", "of_parts", "optimize", "shared_top", "told", "told_plan",
           "top_of"]
