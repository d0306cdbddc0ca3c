"""A Dask cluster on this machine, a worker for each address given: `python cluster_of_test.py 127.0.0.1 127.0.0.2`. It
prints the scheduler's address, then of each worker the number of its process and where it listens, and ends when its
standard input does.

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
    quiet = {"port": 0, "dashboard_address": None}
    started, address = divide(lambda: Scheduler(host="127.0.0.1", **quiet))
    processes = [started]
    print(address, flush=True)
    for host in sys.argv[1:]:
        started, listens = divide(lambda host=host: Worker(address, host=host, nthreads=1, **quiet))
        processes.append(started)
        print(started, listens, flush=True)
    sys.stdin.read()
    for process in processes:
        os.kill(process, signal.SIGKILL)
