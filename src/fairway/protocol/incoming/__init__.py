"""The way in: decrypt, SDS, reassemble, deliver; and how what is missing is asked for."""
