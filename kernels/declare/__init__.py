"""The ways to declare an operator: a formula, a reduction, a composite, a layer."""
