"""The partially-stateful data-flow: graph, operators, ticks, pulls, eviction, the worker's step."""
