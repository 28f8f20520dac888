"""Recordings as models, and against their replays: `contend model`, `contend validate`."""
