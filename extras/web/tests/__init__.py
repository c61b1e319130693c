"""Tests of the HTTP API and its rules of access."""
