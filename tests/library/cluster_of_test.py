"""A Dask cluster on this machine: `python cluster_of_test.py NUMBER`. It prints the scheduler's address, then the
number of each worker's process, and ends when its standard input does.

One process imports everything and divides into scheduler and workers, which saves the seconds that each import of torch
takes. They talk to each other through sockets, as on several machines.
"""

import asyncio
import os
import signal
import sys

from distributed import Scheduler, Worker

import mhalib_classroom.grade._cluster  # noqa: F401


def divide(make):
    """Another process that runs a server."""
    reading, writing = os.pipe()
    process = os.fork()
    if process:
        os.close(writing)
        with os.fdopen(reading) as told:
            return process, told.readline().strip()

    async def run():
        server = await make()
        os.write(writing, f"{server.address}\n".encode())
        await server.finished()

    asyncio.run(run())
    os._exit(0)


if __name__ == "__main__":
    quiet = {"host": "127.0.0.1", "port": 0, "dashboard_address": None}
    started, address = divide(lambda: Scheduler(**quiet))
    processes = [started]
    print(address, flush=True)
    for _ in range(int(sys.argv[1])):
        started, _ = divide(lambda: Worker(address, nthreads=1, **quiet))
        processes.append(started)
        print(started, flush=True)
    sys.stdin.read()
    for process in processes:
        os.kill(process, signal.SIGKILL)
