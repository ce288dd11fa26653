"""From a call of an operator to work pushed to the engine."""
