"""Starting the processes of a distributed job, on this host or with Ray."""
