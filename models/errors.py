"""The one exception of the project; it lives here because every layer may raise it and none may import upward."""


class BakeoffError(Exception):
    """Bad input or a bad environment. The message says what was asked, what was found and what to do next."""
