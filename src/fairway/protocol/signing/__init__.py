"""Signatures of members: keys (`keys`), and the stage between SDS and the encryption (`signing`)."""

from __future__ import annotations

from fairway.protocol.signing.keys import SigningKey, public_key_of, public_key_text
from fairway.protocol.signing.signing import MemberKeys, Signing

__all__ = ["MemberKeys", "Signing", "SigningKey", "public_key_of", "public_key_text"]
