"""noise-libp2p: the secure channel between two peers, Noise_XX_25519_ChaChaPoly_SHA256, as state machines without I/O.

`NoiseHandshake` carries out the handshake and returns `Secured`, whose `NoiseSession` encrypts and decrypts the rest.
"""

from fairway.libp2p.noise.handshake import NOISE_PROTOCOL, NoiseHandshake, Secured
from fairway.libp2p.noise.identity import NoiseCredentials
from fairway.libp2p.noise.pattern import Role, generate_noise_key
from fairway.libp2p.noise.session import NoiseSession

__all__ = [
    "NOISE_PROTOCOL",
    "NoiseCredentials",
    "NoiseHandshake",
    "NoiseSession",
    "Role",
    "Secured",
    "generate_noise_key",
]
