"""Loops and conditions in graphs: foreach, while_loop and cond."""
