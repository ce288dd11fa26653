"""Arrays to and from files and other libraries."""
