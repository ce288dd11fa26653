"""Reading ahead, in threads and in processes."""
