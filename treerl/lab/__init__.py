"""The small worlds: closed, fully checkable problems with a policy small enough for a CPU."""
