"""What matrix's own loop could save: it fills its cache by a context pass as owl's does, and has no audio."""

from bakeoff.models.pipelines.owl.advice import gains

__all__ = ["gains"]
