"""Plans a query as MIR (`plan.mir`).  A block is one SELECT; it passes through these modules in order:

    purposes          the entry: plans a view, an ad-hoc SELECT, or a query for Spark, with all queries within it
    select            resolves the clauses in order and collects them in `block`
    relations
      context         the mode, catalog and parameter values of a planning; scope: the names of FROM
      from_clause     relations and how they join
      joins           the query graph: relations, equalities and filters in one canonical order
      limit_offset    LIMIT and OFFSET
    conditions
      where           terms: filters, keys (`parameters`), conditions after the lookup, `subqueries`
    results
      assembly        the plan above the joins
      grouping        GROUP BY; `joined_groups`: several groupings side by side; `merged_groups`: after a lookup
      windows         the Window nodes
    set_operations    UNION, INTERSECT, EXCEPT of queries

`relations.planned` has the result: a plan, and the positions of its columns.
"""
