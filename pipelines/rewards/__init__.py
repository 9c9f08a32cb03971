"""Stage 4: verifiers, RULER and the one scalar that comes out of them."""
