"""Many searches, one table: what to run, where it is kept, and how it goes on after anything that stopped it."""
