"""What a Python kernel does, checked in frames: `python3 tests/kernels/python.py INTERPRETER [CASE ...]`."""
import json
import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from case_python import INTERPRETER, Case  # noqa: E402
from frames_python import Nursery  # noqa: E402
from shown_python import Shown  # noqa: E402


class Cells(Case):
    def state_is_kept_and_contexts_are_apart(self):
        self.run_ok("x = 41\nimport math\ndef f(): return x + 1")
        self.assertEqual(self.run_ok("f()").text, "42")
        other = self.nursery.fork()
        self.addCleanup(other.end)
        self.assertEqual(other.run("x").error["name"], "NameError")
        self.assertEqual(self.run_ok("math.floor(x)").text, "41")

    def the_last_value_is_shown_and_none_is_not(self):
        self.assertEqual(self.run_ok("1+1").text, "2")
        self.assertEqual(self.run_ok("_ + 1").text, "3")
        self.assertEqual(self.run_ok("'a'").text, "'a'")
        self.assertEqual(self.run_ok("None").order, ["done"])
        self.assertEqual(self.run_ok("x = 5").order, ["done"])
        self.assertEqual(self.run_ok("5;").order, ["done"])
        self.assertEqual(self.run_ok("").order, ["done"])
        self.assertEqual(self.run_ok("# only a comment").order, ["done"])
        self.assertEqual(self.run_ok("7", flags="s").order, ["done"])
        self.assertEqual(self.run_ok("{'a': [1]}").result["data"]["application/json"], {"a": [1]})
        self.assertEqual(self.run_ok("';'").text, "';'")

    def awaiting_works_at_the_top_and_tasks_go_on(self):
        code = "import asyncio\nasync def f(n):\n    await asyncio.sleep(0.05)\n    return n"
        self.run_ok(code)
        self.assertEqual(self.run_ok("await f(3)").text, "3")
        self.assertEqual(self.run_ok("f(4)").text, "4")
        self.run_ok("t = asyncio.create_task(f(5))")
        self.assertEqual(self.run_ok("await t").text, "5")
        self.run_ok("done = []\nasync def g():\n    await asyncio.sleep(0.05); print('late')")
        self.kernel.start("t = asyncio.create_task(g())\n1")
        self.assertEqual(self.kernel.finish().text, "1")
        self.assertEqual(self.kernel.frame()[1], b"late\n")
        self.assertEqual(self.run_ok("asyncio.run(f(6))").text, "6")
        self.assertEqual(self.run_ok("await f(7)").text, "7")
        self.assertIn("ZeroDivisionError", self.kernel.run("async def h(): 1/0\nawait h()").error["name"])

    def an_error_has_name_value_and_the_lines_of_the_cell(self):
        made = self.kernel.run("def f():\n    return 1/0\nf()")
        self.assertEqual(made.status, "error")
        self.assertEqual(made.error["name"], "ZeroDivisionError")
        self.assertEqual(made.error["value"], "division by zero")
        self.assertIn("return 1/0", made.error["traceback"])
        self.assertNotIn("soma", made.error["traceback"])
        self.assertNotIn("\x1b", made.error["traceback"])
        made = self.kernel.run("x = = 1")
        self.assertEqual(made.error["name"], "SyntaxError")
        self.assertIn("x = = 1", made.error["traceback"])
        made = self.kernel.run("import sys; sys.exit(3)")
        self.assertEqual((made.error["name"], made.error["value"]), ("SystemExit", "3"))
        made = self.kernel.run("def g(): g()\ng()")
        self.assertEqual(made.error["name"], "RecursionError")
        made = self.kernel.run("try:\n    1/0\nexcept ZeroDivisionError as e:\n    raise KeyError('k') from e")
        self.assertIn("ZeroDivisionError", made.error["traceback"])
        self.assertEqual(made.error["value"], "'k'")
        self.assertEqual(self.kernel.run("class E(Exception):\n    def __str__(self): 1/0\nraise E").error["name"], "E")
        self.assertEqual(self.run_ok("1").text, "1")

    def errors_elsewhere_end_nothing(self):
        made = self.run_ok("import threading\ndef f(): 1/0\nt = threading.Thread(target=f); t.start(); t.join()")
        self.assertIn("ZeroDivisionError", made.err)
        self.assertIn("1/0", made.err)
        made = self.run_ok("class D:\n    def __del__(self): 1/0\nd = D(); del d")
        self.assertIn("ZeroDivisionError", made.err)
        made = self.run_ok("import asyncio, gc\nasync def g(): 1/0\nt = asyncio.create_task(g())")
        made = self.run_ok("await asyncio.sleep(0.05); del t; gc.collect();")
        self.assertIn("ZeroDivisionError", made.err)

    def an_interrupt_stops_the_cell_and_keeps_the_state(self):
        self.run_ok("x = 5\nimport time, asyncio")
        endless = "print('on', flush=True)\n"
        cells = ["while True: pass", "time.sleep(100)", "await asyncio.sleep(100)"]
        cells += ["while True: print('y' * 1000)", "import subprocess; subprocess.run(['sleep', '100'])"]
        cells += ["async def s():\n    while True: pass\nawait s()", "asyncio.sleep(100)"]
        cells += ["!sleep 100"]
        for cell in cells:
            self.kernel.start(endless + cell)
            self.assertEqual(self.kernel.frame()[1][:3], b"on\n", cell)
            time.sleep(0.05)
            self.kernel.interrupt()
            made = self.kernel.finish(patience=10)
            self.assertEqual(made.status, "interrupted", cell)
            self.assertEqual(made.error["name"], "KeyboardInterrupt", cell)
            self.assertEqual(self.run_ok("x").text, "5", cell)
        self.kernel.interrupt()
        self.assertEqual(self.run_ok("x").text, "5")
        made = self.kernel.run("try:\n    raise KeyboardInterrupt\nexcept KeyboardInterrupt: pass\n8")
        self.assertEqual(made.text, "8")

    def interrupts_at_any_moment_break_no_frame(self):
        self.run_ok("n = 0")
        for pause in range(30):
            self.kernel.start("n += 1\nwhile True: print('y' * 5000)")
            self.kernel.frame()
            time.sleep(0.0007 * pause)
            self.kernel.interrupt()
            self.assertEqual(self.kernel.finish(patience=10).status, "interrupted")
        self.assertEqual(self.run_ok("n").text, "30")

    def every_text_arrives(self):
        text = "äöü \u2028 \u2029 \x85 \U0001f600 \0 \x1b"
        made = self.run_ok("print(%r, end='')" % text)
        self.assertEqual(made.out, text)
        self.assertEqual(self.run_ok("'ä\u2028' + chr(0x2028)").text, repr("ä\u2028\u2028"))
        self.assertEqual(self.run_ok("print('a\\ud800b')").out, "a?b\n")
        self.run_ok("x = ['\\ud800']\nx")
        self.assertEqual(self.kernel.run("raise ValueError('\\ud800')").status, "error")
        self.assertEqual(self.run_ok("float('nan'), [float('nan')]").text, "(nan, [nan])")

    def bytes_and_text_keep_their_order(self):
        code = "import sys\nprint('a')\nsys.stdout.buffer.write(b'b\\n')\nsys.stdout.write('c\\n')\n"
        self.assertEqual(self.run_ok(code + "sys.stdout.buffer.write(b'\\xff\\n');").out, "a\nb\nc\n\ufffd\n")
        code = "import sys\nfor i in range(3): print('o', i); print('e', i, file=sys.stderr)"
        self.assertEqual(self.run_ok(code).order, ["stdout", "stderr"] * 3 + ["done"])
        code = "import os, subprocess\nprint(1)\nos.system('echo 2')\nprint(3)\nsubprocess.run(['echo', '4'])\nprint(5)"
        self.assertEqual(self.run_ok(code).out, "1\n2\n3\n4\n5\n")
        made = self.run_ok("import sys; [sys.stdout.encoding, sys.stdout.isatty(), sys.stdout.fileno()]")
        self.assertEqual(made.text, "['utf-8', False, 1]")
        made = self.run_ok("import logging; logging.warning('w')")
        self.assertIn("w", made.err)
        self.run_ok("sys.stdout.close()")
        self.assertEqual(self.run_ok("print('still')").out, "still\n")

    def output_comes_while_the_cell_runs(self):
        self.kernel.start("import time\nprint('first')\ntime.sleep(100)")
        began = time.monotonic()
        self.assertEqual(self.kernel.frame()[1], b"first\n")
        self.assertLess(time.monotonic() - began, 5)
        self.kernel.interrupt()
        self.kernel.finish()

    def big_output_passes_and_nothing_grows(self):
        self.kernel.start("for i in range(2000): print('x' * 49999)")
        total = 0
        while True:
            words, body = self.kernel.frame()
            if words[0] == "done":
                break
            total += len(body)
        self.assertEqual(total, 100_000_000)
        made = self.run_ok("import resource; resource.getrusage(resource.RUSAGE_SELF).ru_maxrss")
        self.assertLess(int(made.text), 200_000)

    def death_is_reported_with_its_reason(self):
        for cell, how in (
            ("print('last'); import os; os._exit(7)", "exit:7"),
            ("import os; os.kill(os.getpid(), 9)", "signal:9"),
            ("import ctypes; ctypes.string_at(0)", "signal:11"),
        ):
            kernel = self.nursery.fork()
            self.addCleanup(kernel.end)
            made = kernel.run(cell)
            self.assertEqual(made.status, "died")
            self.assertEqual(self.ended(kernel), how)
            if how == "exit:7":
                self.assertEqual(made.out, "last\n")
        self.assertEqual(self.run_ok("1").text, "1")

    def too_much_memory_is_an_error(self):
        code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 31, 1 << 31))"
        self.run_ok(code)
        self.assertEqual(self.kernel.run("x = bytearray(1 << 32)").error["name"], "MemoryError")
        self.assertEqual(self.run_ok("1").text, "1")

    def a_kernel_ends_with_its_descriptor(self):
        self.run_ok("1")
        kernel = self.nursery.fork()
        kernel.run("import atexit, threading, time; threading.Thread(target=time.sleep, args=(100,)).start()")
        os.close(kernel.request)
        kernel.request = os.open("/dev/null", os.O_WRONLY)
        self.assertEqual(self.ended(kernel), "exit:0")
        kernel.pid = None
        kernel.end()


class Surroundings(Case):
    def folder_and_environment_are_the_contexts_own(self):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "mine.py"), "w") as file:
                file.write("value = 3")
            kernel = self.nursery.fork(folder, {"SOMA_T": "a b", "MPLCONFIGDIR": folder})
            self.addCleanup(kernel.end)
            made = kernel.run("import os, mine; [os.getcwd(), os.environ['SOMA_T'], mine.value]")
            self.assertEqual(made.text, repr([os.path.realpath(folder), "a b", 3]))
            kernel.run("os.mkdir('d'); os.chdir('d'); open('f', 'w').write('x')")
            self.assertTrue(os.path.exists(os.path.join(folder, "d", "f")))
            self.assertEqual(kernel.run("os.getcwd()[-2:]").text, "'/d'")
        kernel = self.nursery.fork("/nowhere/at/all")
        self.addCleanup(kernel.end)
        made = kernel.run("import os; os.getcwd()")
        self.assertIn("/nowhere/at/all", made.err)
        self.assertEqual(made.text, "'/'")

    def variables_of_one_cell_are_set_back(self):
        self.run_ok("import os; os.environ['B'] = 'old'")
        code = "os.environ['C'] = 'mine'; [os.environ['A'], os.environ['B']]"
        made = self.run_ok(code, env={"A": "1=2\nä", "B": "new"})
        self.assertEqual(made.text, repr(["1=2\nä", "new"]))
        made = self.run_ok("[os.environ.get(n) for n in 'ABC']")
        self.assertEqual(made.text, repr([None, "old", "mine"]))
        self.kernel.run("1/0", env={"A": "x"})
        self.assertEqual(self.run_ok("os.environ.get('A')").order, ["done"])

    def twenty_contexts_work_at_once(self):
        kernels = [self.nursery.fork() for _ in range(20)]
        for at, kernel in enumerate(kernels):
            self.addCleanup(kernel.end)
            kernel.start("import random, time\nx = %d\ntime.sleep(0.2)\n[x, random.random()]" % at)
        seen = set()
        for at, kernel in enumerate(kernels):
            x, drawn = json.loads(kernel.finish().text)
            self.assertEqual(x, at)
            seen.add(drawn)
        self.assertEqual(len(seen), 20)

    def input_is_asked_or_an_error(self):
        made = self.kernel.run("input('name? ')")
        self.assertEqual(made.error["name"], "StdinNotImplementedError")
        self.assertNotIn("soma", made.error["traceback"])
        self.assertEqual(self.run_ok("import sys; sys.stdin.read() + sys.stdin.readline()").text, "''")
        made = self.run_ok("print('p'); input('name? ')", flags="i", answers=[("input", "Zoë".encode())])
        self.assertEqual((made.text, made.asked), ("'Zoë'", [{"prompt": "name? ", "password": False}]))
        self.assertEqual(made.order[:2], ["stdout", "input"])
        made = self.run_ok("import getpass; getpass.getpass('pw')", flags="i", answers=[("input", b"s")])
        self.assertEqual((made.text, made.asked[0]["password"]), ("'s'", True))
        made = self.kernel.run("input()", flags="i", answers=[("refuse", b"gone")])
        self.assertEqual(made.error["value"], "gone")
        self.kernel.start("input()", flags="i")
        self.assertEqual(self.kernel.frame()[0][0], "input")
        self.kernel.interrupt()
        self.assertEqual(self.kernel.finish().status, "interrupted")
        self.assertEqual(self.run_ok("1").text, "1")

    def threads_and_forks_write_in_their_ways(self):
        code = "import threading\ndef f(n):\n    for i in range(200): print('%d' % n * 50)\n"
        code += "ts = [threading.Thread(target=f, args=(n,)) for n in range(5)]\n"
        made = self.run_ok(code + "for t in ts: t.start()\nfor t in ts: t.join()")
        self.assertEqual(len(made.out.replace("\n", "")), 5 * 200 * 50)
        code = "import os\nprint('before')\npid = os.fork()\nif pid == 0:\n    print('child')\n    os._exit(0)\n"
        made = self.run_ok(code + "os.waitpid(pid, 0); print('parent')")
        self.assertEqual(sorted(made.out.split()), ["before", "child", "parent"])
        made = self.run_ok("pid = os.fork()\nif pid: os.waitpid(pid, 0)\nprint('both')")
        self.assertEqual(made.out, "both\nboth\n")
        made = self.run_ok("import subprocess, sys\nsubprocess.run(['ls', '/proc/self/fd'], stdout=sys.stdout);")
        self.assertTrue(set(made.out.split()) <= {"0", "1", "2", "3"}, made.out)
        code = "import multiprocessing as m\nc = m.get_context('fork')\ndef g(): print('mp')\n"
        made = self.run_ok(code + "p = c.Process(target=g); p.start(); p.join(); p.exitcode")
        self.assertEqual((made.out, made.text), ("mp\n", "0"))

    def main_is_a_module_like_any_other(self):
        code = "import pickle, sys, dataclasses, typing\n@dataclasses.dataclass\nclass P:\n    x: int\n"
        code += "    y: typing.List[int] = dataclasses.field(default_factory=list)\n"
        made = self.run_ok(code + "pickle.loads(pickle.dumps(P(1)))")
        self.assertEqual(made.text, "P(x=1, y=[])")
        self.assertEqual(self.run_ok("sys.modules['__main__'].P is P, __name__").text, "(True, '__main__')")
        source = self.run_ok("import inspect\ndef q():\n    return 9\ninspect.getsource(q).strip()").text
        self.assertEqual(source, repr("def q():\n    return 9"))
        self.run_ok("from __future__ import annotations")
        self.assertEqual(self.run_ok("def r(a: nowhere): pass\nr.__annotations__['a']").text, "'nowhere'")

    def completions_know_the_names(self):
        self.run_ok("alpha_one = 'x'; alpha_two = 2")
        self.kernel.send("complete 9", b"x = alpha")
        found = json.loads(self.kernel.frame()[1])
        self.assertEqual((set(found["matches"]), found["start"], found["end"]), ({"alpha_one", "alpha_two"}, 4, 9))
        self.kernel.send("complete 15", b"alpha_one.start")
        found = json.loads(self.kernel.frame()[1])
        self.assertIn("startswith", " ".join(found["matches"]))

    def commands_of_notebooks_work(self):
        made = self.run_ok("!echo out; echo err >&2")
        self.assertEqual((made.out, made.err), ("out\n", "err\n"))
        self.run_ok("%cd /tmp")
        self.assertEqual(self.run_ok("import os; os.getcwd()").text, "'/tmp'")
        self.assertEqual(self.run_ok("y = !echo a\ny[0]").text, "'a'")
        self.assertEqual(self.kernel.run("%no_such_thing").status, "error")

    def a_changed_folder_of_modules_makes_the_nursery_stale(self):
        with tempfile.TemporaryDirectory() as folder:
            nursery = Nursery(INTERPRETER, dict(os.environ, PYTHONPATH=folder))
            self.addCleanup(nursery.end)
            nursery.packet("ready")
            self.assertIsNotNone(nursery.fork())
            with open(os.path.join(folder, "fresh.py"), "w"):
                pass
            self.assertIsNone(nursery.fork())

    def preloaded_modules_are_there_at_once(self):
        nursery = Nursery(INTERPRETER)
        self.addCleanup(nursery.end)
        nursery.preload("decimal", "no_such_module", "fractions")
        kernel = nursery.fork()
        self.assertEqual(kernel.run("import sys; 'fractions' in sys.modules").text, "True")


def cases():
    """Every method of these classes whose name is a fact."""
    for kind in (Cells, Surroundings, Shown):
        for name in vars(kind):
            if not name.startswith("_"):
                yield kind, name


if __name__ == "__main__":
    wanted = sys.argv[2:]
    suite = unittest.TestSuite()
    for kind, name in cases():
        if not wanted or any(word in name for word in wanted):
            suite.addTest(kind(name))
    signal.alarm(900)
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    sys.exit(not result.wasSuccessful())
