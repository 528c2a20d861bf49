"""From relational plans to the data-flow: MIR, the optimiser, views, lowering."""
