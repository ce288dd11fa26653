"""What tests share: oracles, generators of random cases, stand-ins."""
