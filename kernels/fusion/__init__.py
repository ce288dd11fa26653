"""Several operators in one kernel."""
