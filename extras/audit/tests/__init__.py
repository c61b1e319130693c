"""Tests of `audit`: what histories say about retries and effects."""
