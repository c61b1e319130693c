"""Agents as users write them, each for an environment of its own: `PROGRAM ADDRESS SHOP_URL WORKFLOW_ID`.

Each is a worker that also starts its workflow, or finds it running, and ends when that has ended.
"""
