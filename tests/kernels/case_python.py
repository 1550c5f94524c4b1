"""What all cases of Python kernels share: the interpreter under test, a nursery, and a kernel each."""
import json
import subprocess
import sys
import unittest

from frames_python import Nursery

# The interpreter under test: the first argument.
INTERPRETER = sys.argv[1] if len(sys.argv) > 1 else sys.executable
CHART = "application/vnd.soma.chart+json"
DATA = "application/vnd.soma.data+json"


def has(name):
    """Whether the interpreter can import a module."""
    command = [INTERPRETER, "-c", "import " + name]
    return subprocess.run(command, stderr=subprocess.DEVNULL, cwd="/").returncode == 0


class Case(unittest.TestCase):
    """One nursery for all cases, one kernel for each."""

    @classmethod
    def setUpClass(cls):
        cls.nursery = Nursery(INTERPRETER)
        cls.ready = json.loads(cls.nursery.packet("ready")[1])
        cls.ipython = cls.ready["flavour"] != "plain"

    @classmethod
    def tearDownClass(cls):
        cls.nursery.end()

    def setUp(self):
        self.kernel = self.nursery.fork()
        self.addCleanup(self.kernel.end)

    def run_ok(self, code, **options):
        made = self.kernel.run(code, **options)
        self.assertEqual(made.status, "ok", (code, made.error, made.err))
        return made

    def ended(self, kernel):
        while True:
            words, _ = self.nursery.packet("ended")
            if int(words[1]) == kernel.pid:
                return words[2]
