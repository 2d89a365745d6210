"""Clusters of dask whose scheduler and workers are processes of their own."""

import contextlib
import json
import os
import subprocess
import sys
import time


class Processes:
    """A scheduler, and the workers that are started later; `stack` ends them.

    As on clusters that others look after, the scheduler does not have the package.
    """

    def __init__(self, directory, stack):
        self.directory, self.stack, self.started = directory, stack, 0
        ready = directory / "scheduler.json"
        self.file = ["--scheduler-file", str(ready)]
        absent = "import sys\nsys.modules['dmq_fast'] = None\n"
        self.scheduler = self.start("scheduler", "--host", "127.0.0.1", "--port", "0", begin=absent)
        end = time.monotonic() + 40.0
        while not ready.exists() or not ready.read_text().endswith("}"):
            assert time.monotonic() < end
            time.sleep(0.01)
        self.address = json.loads(ready.read_text())["address"]

    def start(self, kind, *options, begin="", path=()):
        """Start a process that begins with some code and finds the modules in the folders `path`."""
        self.started += 1
        place = self.directory / f"{kind} {self.started}"
        place.mkdir()
        (place / "sitecustomize.py").write_text(begin)
        found = os.pathsep.join(filter(None, [str(place), *map(str, path), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-P", "-m", "dask", kind, *self.file, "--no-dashboard", *options]
        env = os.environ | {"PYTHONPATH": found}
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
        process = self.stack.enter_context(subprocess.Popen(command, env=env, **quiet))
        self.stack.callback(process.kill)
        return process

    def worker(self, **options):
        """Start a worker with one thread."""
        return self.start("worker", "--no-nanny", "--nthreads", "1", **options)

    @contextlib.contextmanager
    def executor(self, **options):
        """Connect to the scheduler."""
        import distributed

        with distributed.Client(self.address, **options) as client, client.get_executor() as executor:
            yield executor
