"""``python -m elrun``: the command elrun."""

from ._binary import main

main()
