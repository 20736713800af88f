"""Scalable Data Sync: causal order, acknowledgement and repair within one channel (SDS)."""
