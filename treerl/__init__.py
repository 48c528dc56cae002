"""Grow trees of rollouts, check them with tools, and turn them into training signals."""

from __future__ import annotations

__version__ = "0.1.0"
__all__ = ["__version__"]
