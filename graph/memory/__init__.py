"""Where every intermediate array of a bound graph lies."""
