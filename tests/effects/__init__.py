"""Tests of `replan.effects`: its promises, and the oracle that judges drawn sequences by them."""
