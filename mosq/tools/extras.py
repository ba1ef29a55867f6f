"""Explain how to install the optional packages of mosq (the extras in pyproject.toml)."""


def install_advice(extra: str) -> str:
    """Return how to install an extra from a checkout or a wheel; mosq is not on a package index."""
    return f"install it from the checkout: pip install '.[{extra}]' (or from a wheel: pip install 'FILE.whl[{extra}]')"
