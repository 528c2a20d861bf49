"""From plans to the data-flow graph (section 5.1): the registry of operators, and the planner of a worker's views.

In: views and their plans (`plan/`).  Out: nodes of an engine's graph, and the graph as data (`plan/graph_plan.py`).
"""
