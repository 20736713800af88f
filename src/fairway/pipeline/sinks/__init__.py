"""Sends messages through a Waku node, each once, with a receipt for each (`fairway.pipeline.sinks.waku`)."""

from __future__ import annotations

from fairway.pipeline.sinks.ledger import DispatchReceipt, ReceiptLedger, ReceiptStatus
from fairway.pipeline.sinks.receipts import RECEIPTS, read_receipts

__all__ = ["RECEIPTS", "DispatchReceipt", "ReceiptLedger", "ReceiptStatus", "read_receipts"]
