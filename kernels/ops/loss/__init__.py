"""Loss layers: their derivative ignores the head gradient."""
