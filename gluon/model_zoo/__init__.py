"""Networks that others have designed."""
