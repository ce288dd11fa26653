"""Weight updates of the optimizers."""
