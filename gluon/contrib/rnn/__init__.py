"""More recurrent cells."""
