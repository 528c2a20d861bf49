"""From relational plans to the data-flow: MIR, rewrites, partial or full, sharding, lowering, migrations."""
