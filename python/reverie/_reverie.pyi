"""Native half of the reverie package; import reverie instead."""



def version() -> str:
    """The version of the native library, as "1.2.3"."""
