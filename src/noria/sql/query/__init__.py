"""A query as a plan (`plan.mir`).  A block, one SELECT, passes through in this order:

    purposes        what it is for: a view, an ad-hoc SELECT, a query for Spark; plans it, and all within it
    context         what planning needs to know, handed down; scope: the names of FROM
    select          the clauses in order, with the data in `block`
      from_clause   relations and how they join
      where         terms: filters, keys (`parameters`), conditions after the lookup, `subqueries`
      joins         the query graph: relations, equalities and filters in one canonical order
    assembly        the plan above the joins
      grouping      GROUP BY; `grouped_apart`: several groupings side by side; `grouped_again`: after a lookup
      windows       the Window nodes
      ends          LIMIT and OFFSET
    set_operations  UNION, INTERSECT, EXCEPT of queries
    planned         the result: a plan, and where its columns stand
"""
