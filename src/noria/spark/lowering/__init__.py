"""The second lowering: it translates a plan (`plan.mir`) into a Spark DataFrame with the data-flow's values.

    coding        SQL types as Spark types: for display (shown) and for computation (coded)
    expressions   expressions as columns; fallback: the kernels' evaluator where Spark has no exact equal
    relation      a lowered plan, and a helper for its keys
    lower         each node of a plan; aggregates and ordered: groups, windows, top-k
Call `lower.dataframe`.
"""
