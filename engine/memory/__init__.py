"""Memory and what is handed out with it: storage, workspace and random numbers of a context."""
