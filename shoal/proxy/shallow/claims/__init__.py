"""Claim checks: the batches stay with Shoal, and the mirror gets what it needs to order their copy.

protocol/shallow has the rules: claim_check.py, kept_batches.py.
"""
