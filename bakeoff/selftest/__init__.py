"""Tests the measuring itself: faulty backends must be detected, and correct but unusual ones must pass."""
