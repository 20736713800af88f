"""noise-libp2p, Noise_XX_25519_ChaChaPoly_SHA256, sans-IO: the handshake, and the session that follows it."""
