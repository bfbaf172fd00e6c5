"""Heads Up!, learned head masks (ICML 2025)."""
