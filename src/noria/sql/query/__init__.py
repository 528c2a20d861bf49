"""Plans a query as MIR (`plan.mir`).  A block is one SELECT; it passes through these modules in order:

    purposes        the entry: plans a view, an ad-hoc SELECT, or a query for Spark, with all queries within it
    context         the mode, catalog and parameter values of a planning; scope: the names of FROM
    select          resolves the clauses in order and collects them in `block`
      from_clause   relations and how they join
      where         terms: filters, keys (`parameters`), conditions after the lookup, `subqueries`
      joins         the query graph: relations, equalities and filters in one canonical order
    assembly        the plan above the joins
      grouping      GROUP BY; `grouped_apart`: several groupings side by side; `grouped_again`: after a lookup
      windows       the Window nodes
      ends          LIMIT and OFFSET
    set_operations  UNION, INTERSECT, EXCEPT of queries

`planned` has the result: a plan, and the positions of its columns.
"""
