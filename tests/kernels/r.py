"""The kernel of R: `python3 tests/kernels/r.py [R]`."""

import base64
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import frames

INTERPRETER = ["R"]
START = 'local({ program <- file("stdin"); code <- parse(program, encoding = "UTF-8"); close(program); eval(code, new.env(parent = baseenv())) })'


def has_package(name):
    return subprocess.run([INTERPRETER[0], "--no-echo", "--vanilla", "-e", "if (!requireNamespace('%s', quietly = TRUE)) quit(status = 1)" % name], capture_output=True, check=False).returncode == 0


class R(frames.KernelTest):
    language = "r"

    @property
    def command(self):
        return [INTERPRETER[0], "--no-echo", "--no-restore", "--no-save", "--no-readline", "-e", START]

    def out(self, kernel, code, **options):
        mark = "--%d--" % kernel.number
        before = len(kernel.own_output(1, b"", 0))
        cell = kernel.run(code, **options)
        self.assertEqual(cell.status, "ok", (code, cell.frames, kernel.own_output(2, b"?", 0.1)))
        kernel.run("cat('%s')" % mark)
        return kernel.own_output(1, mark.encode())[before:].decode("utf-8", "replace").replace(mark, "")

    def test_state_and_values(self):
        kernel = self.kernel()
        self.assertEqual(self.said["language"], "r")
        self.assertEqual(kernel.run("1+1").text, "[1] 2")
        self.assertIsNone(kernel.run("x <- 5; f <- function(a) a * 2").text)
        self.assertEqual(kernel.run("f(x)").text, "[1] 10")
        self.assertIsNone(kernel.run("invisible(3)").text)
        self.assertIsNone(kernel.run("").text)
        self.assertEqual(self.out(kernel, "1\n2\n3"), "[1] 1\n[1] 2\n")
        self.assertEqual(kernel.run("'é 日本 \u2028 😀'; nchar('é日本😀')").text, "[1] 4")
        self.assertEqual(self.out(kernel, "cat('é\u2028日本\\n')"), "é\u2028日本\n")
        self.assertEqual(kernel.run("setwd('/usr'); getwd()").text, '[1] "/usr"')
        self.assertEqual(kernel.run("getwd()").text, '[1] "/usr"')
        self.assertIn("<td>", kernel.run("data.frame(a = 1:3, b = c('<x>', 'y', 'z'))").result["text/html"])
        self.assertIsNone(kernel.run("5", "s").text)
        self.assertEqual(kernel.run("ls()").text, '[1] "f" "x"')

    def test_errors_and_warnings(self):
        kernel = self.kernel()
        cell = kernel.run("g <- function() stop('boo \"q\"')\ng()")
        self.assertEqual((cell.status, cell.error["name"], cell.error["value"]), ("error", "Error", 'boo "q"'))
        self.assertIn("g()", cell.error["traceback"])
        self.assertNotIn("tryCatch", cell.error["traceback"])
        cell = kernel.run("a <- \n 1 +* 2")
        self.assertEqual(cell.error["name"], "ParseError")
        self.assertIn("2:5", cell.error["value"])
        self.assertEqual(kernel.run("stop(structure(class = c('mine', 'error', 'condition'), list(message = 'm', call = NULL)))").error["name"], "mine")
        kernel.run("warning('careful'); message('note')")
        said = kernel.own_output(2, b"note")
        self.assertIn(b"careful", said)
        self.assertEqual(kernel.run("f <- function() f(); f()").status, "error")
        self.assertEqual(kernel.run("sink(tempfile()); 1").status, "ok")
        self.assertEqual(kernel.run("2").text, "[1] 2")
        self.assertEqual(kernel.run(b"a\0b").status, "error")

    def test_plots(self):
        kernel = self.kernel()
        cell = kernel.run("plot(1:3); lines(3:1); hist(c(1, 2, 2))")
        self.assertEqual(len(cell.displays), 2)
        for shown in cell.displays:
            self.assertTrue(base64.b64decode(shown["image/png"]).startswith(b"\x89PNG"))
        self.assertEqual(kernel.run("1").displays, [])
        self.assertEqual(len(kernel.run("barplot(1:3); stop('x')").displays), 1)
        self.assertEqual(kernel.run("display(html = '<b>')").displays, [{"text/html": "<b>"}])

    def test_ggplot(self):
        if not has_package("ggplot2"):
            self.skipTest("R has no package ggplot2 here")
        cell = self.kernel().run("library(ggplot2); ggplot(data.frame(x = 1:3), aes(x, x)) + geom_point()")
        self.assertEqual((cell.status, len(cell.displays)), ("ok", 1))

    def test_widgets_are_one_page(self):
        if not has_package("htmlwidgets"):
            self.skipTest("R has no package htmlwidgets here")
        page = self.kernel().run("htmlwidgets::createWidget('mine', list(x = 1), package = 'htmlwidgets')").result["text/html"]
        self.assertIn("window.HTMLWidgets = ", page)
        self.assertNotIn("<script src=", page)

    def test_interrupts(self):
        kernel = self.kernel()
        kernel.run("kept <- 'kept'")
        for code in ("Sys.sleep(100)", "repeat {}", "while (TRUE) x <- 1", "system('sleep 100')", "tryCatch(repeat {}, error = function(e) 1)", "repeat Sys.sleep(0.01)") * 2:
            with self.subTest(code):
                kernel.start(code)
                time.sleep(0.4)
                kernel.interrupt()
                self.assertEqual(kernel.finish(patience=10).status, "interrupted")
                self.assertEqual(kernel.run("kept").text, '[1] "kept"')
        kernel.interrupt()
        time.sleep(0.3)
        self.assertEqual(kernel.run("kept").text, '[1] "kept"')

    def test_input(self):
        kernel = self.kernel()
        cell = kernel.run("readline('name? ')", "i", answer=("input", "é".encode()))
        self.assertEqual(cell.text, '[1] "é"')
        self.assertEqual(json.loads(cell.all("input")[0]), {"prompt": "name? ", "password": False})
        self.assertIn("nobody", kernel.run("readline('x')").error["value"])
        self.assertEqual(kernel.run("readline('x')", "i", answer=("refuse", b"not here")).error["value"], "not here")
        kernel.start("readline('x')", "i")
        kernel.until("input", b"{")
        kernel.interrupt()
        self.assertEqual(kernel.finish(patience=10).status, "interrupted")
        self.assertEqual(kernel.run("length(readLines(file('stdin')))").text, "[1] 0")

    def test_variables_and_children(self):
        kernel = self.kernel(env=dict(os.environ, KEPT="before"))
        self.assertEqual(kernel.run("c(Sys.getenv('KEPT'), system('echo $NEW', intern = TRUE))", env={"KEPT": "now", "NEW": "a=b"}).text, '[1] "now" "a=b"')
        self.assertEqual(kernel.run("c(Sys.getenv('KEPT'), Sys.getenv('NEW', 'unset'))").text, '[1] "before" "unset" ')
        self.assertEqual(kernel.run("setdiff(system('ls /proc/self/fd', intern = TRUE), as.character(c(0:3, 10, 100:999)))").text, "character(0)")

    def test_completions(self):
        kernel = self.kernel()
        kernel.run("longname <- list(alpha = 1)")
        self.assertEqual(kernel.complete("1 + longn"), {"matches": ["longname"], "start": 4, "end": 9})
        self.assertEqual(kernel.complete("longname$al")["matches"], ["longname$alpha"])

    def test_big_output(self):
        kernel = self.kernel()
        kernel.run("line <- paste(rep('x', 999), collapse = '')")
        before = kernel.memory()
        kernel.start("for (i in 1:100000) cat(line, '\\n', sep = '')")
        came = 0
        while True:
            came += len(kernel.own[kernel.out])
            kernel.own[kernel.out].clear()
            try:
                words, _ = kernel.frame(0.01)
                break
            except TimeoutError:
                pass
        came += len(kernel.own_output(1, b"", 0))
        self.assertEqual((words[:2], came), (["done", "ok"], 100000000))
        self.assertLess(kernel.memory() - before, 64 << 20)

    def test_death(self):
        kernel = self.kernel()
        kernel.start("quit(status = 7)")
        self.assertEqual(kernel.death(), 7)
        kernel = self.kernel()
        kernel.start("tools::pskill(Sys.getpid(), 9)")
        self.assertEqual(kernel.death(), -signal.SIGKILL)
        kernel = self.kernel()
        os.close(kernel.requests)
        self.assertEqual(kernel.death(), 0)
        kernel.requests = os.open("/dev/null", os.O_WRONLY)

    def test_twenty_at_once(self):
        self.check_many("n <- %d; cat('kernel', n, '.')", "kernel %d .")


if __name__ == "__main__":
    frames.main(INTERPRETER)
