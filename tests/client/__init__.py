"""Tests of what a program can ask and tell."""
