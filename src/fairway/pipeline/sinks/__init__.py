"""Sends each message once through a Waku node, with a receipt for each message (`fairway.pipeline.sinks.waku`)."""

from __future__ import annotations

from fairway.pipeline.sinks.ledger import DispatchReceipt, ReceiptLedger, ReceiptStatus
from fairway.pipeline.sinks.receipts import RECEIPTS, read_receipts

__all__ = ["RECEIPTS", "DispatchReceipt", "ReceiptLedger", "ReceiptStatus", "read_receipts"]
