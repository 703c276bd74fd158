"""Read by every Python process that starts with this folder on its path: has it disturbed as the fuzz has drawn."""

import os

if os.environ.get("FUZZ_DISTURBANCES"):
    from tools.fuzzing.disturbances import disturb_this_process

    disturb_this_process()
