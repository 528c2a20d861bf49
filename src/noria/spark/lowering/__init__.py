"""The second lowering: a plan (`plan.mir`) as a Spark DataFrame with the values that the data-flow gives.

    coding        SQL types in Spark: as people see a column, and as it is computed with
    expressions   expressions as columns; fallback: the kernels' evaluator where Spark has no exact equal
    relation      a lowered plan, and what its lowerings share
    lower         nodes one by one; aggregates and ordered: groups, windows, top-k
"""
