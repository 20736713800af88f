"""The incoming path: decryption, reassembly, delivery, and the retrieval of missing messages."""
