"""What compilers say of users' Triton kernels, in terms of the users' files.

Input: jobs with their binaries, or the reason why there is none. Output: nothing, or a `KernelError`. Invariant: text
that does not compile is an error with the user's file and line, for nothing else can run in its place; a kernel that
asks for more than a target has is left out there, and is an error where no target is left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from smelt.base.errors import KernelError
from smelt.ir.kernel.device import DeviceLaunch

from .binaries import BEYOND, Binary, Job

_PLACE: Final = re.compile(r"at line (\d+) of (\w+): ")


def check_users(compiled: Mapping[Job, Binary | str]) -> None:
    made: dict[str, bool] = {}
    for job, found in compiled.items():
        if job.kernel.user is None:
            continue
        if isinstance(found, str) and not found.startswith(BEYOND):
            raise KernelError("SM-KERNEL-001", _told(job.kernel.user, job.target.name, found))
        made[job.kernel.name] = made.get(job.kernel.name, False) or isinstance(found, Binary)
    for job, found in compiled.items():
        if job.kernel.user is not None and not made[job.kernel.name]:
            raise KernelError("SM-KERNEL-003", f"kernel {job.kernel.user.title} fits no target: {found}")


def _told(launch: DeviceLaunch, target: str, said: str) -> str:
    place = _PLACE.match(said)
    known = {name: (file, line) for name, file, line in launch.places}
    where = f"Triton does not compile it for {target}"
    if place is None or place[2] not in known:
        return f"kernel {launch.title}: {where}: {said}"
    file, first = known[place[2]]
    return f"kernel {launch.title}: {file}:{first + int(place[1]) - 1}: {where}: {said[place.end() :]}"
