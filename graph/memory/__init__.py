"""The memory plan: an address for every intermediate array of a bound graph."""
