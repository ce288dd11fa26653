"""What ran, when and for how long: MXNet's profiler, its objects and its files."""
