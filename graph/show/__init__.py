"""Graphs for people: explain, pictures and MXNet's print_summary."""
