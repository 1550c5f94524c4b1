"""The kernel of Bash: `python3 tests/kernels/bash.py [BASH]`."""

import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import frames

INTERPRETER = ["bash"]
START = 'PS1= PS2= exec "$BASH" --noprofile --norc --noediting -i 6>&2 2>/dev/null'


class Bash(frames.KernelTest):
    language = "bash"

    @property
    def command(self):
        return [INTERPRETER[0], "--noprofile", "--norc", "-c", START]

    def out(self, kernel, code, **options):
        """Runs a cell that must succeed and returns what it wrote to 1."""
        mark = "--%d--" % kernel.number
        before = len(kernel.own_output(1, b"", 0))
        cell = kernel.run(code, **options)
        self.assertEqual(cell.status, "ok", (code, cell.frames, kernel.own_output(2, b"?", 0.1)))
        kernel.run("echo " + mark)
        return kernel.own_output(1, mark.encode())[before:].decode("utf-8", "replace").replace(mark + "\n", "")

    def test_state_stays(self):
        kernel = self.kernel()
        self.assertEqual(self.said["language"], "bash")
        kernel.run("x=1; declare -A map=([a]=b); f() { echo \"f $1\"; }; cd /usr; alias hello='echo hi'; set -o noglob; arr=(1 2 3)")
        self.assertEqual(self.out(kernel, "echo $x ${map[a]} $PWD ${#arr[@]}; f 2\nhello\necho *"), "1 b /usr 3\nf 2\nhi\n*\n")
        self.assertEqual(self.out(kernel, "cat <<'END'\na $x\n\tb\nEND"), "a $x\n\tb\n")
        self.assertEqual(self.out(kernel, "echo 'é 日本 \u2028 😀'; s=日本; echo ${#s}", env={"LC_ALL": "C.UTF-8"}), "é 日本 \u2028 😀\n2\n")
        self.assertEqual(self.out(kernel, "printf '\\xff\\x00' | od -An -tx1"), " ff 00\n")
        self.assertEqual(self.out(kernel, "cat; echo end"), "end\n")
        self.assertEqual(self.out(kernel, "echo 'back\\slash' \"tab\tq\""), "back\\slash tab\tq\n")
        self.assertEqual(kernel.own_output(2, b"?", 0.1), b"")

    def test_errors_end_nothing(self):
        kernel = self.kernel()
        for code, status in (("false", 1), ("(exit 7)", 7), ("nosuchcommand-x", 127), ("if ; fi", 2), ("echo \"a", 2), ("echo ${nope:?bad}", 1), ("set -u; echo $nope; set +u", 1), ("return 3", 2), ("exec nosuchcommand-x", 127), ("kill -TERM $BASHPID & wait $!", 143)):
            cell = kernel.run(code)
            self.assertEqual((cell.status, cell.error["name"]), ("error", "CommandFailed"), code)
            if status:
                self.assertIn("exit status", cell.error["value"], code)
        kernel.run("set +u")
        for code in ("break", "continue", "break 9", "exec 4>&-", "exec 3<&- 5<&-", "IFS=x", "set -x", "set +x", "shopt -s nocasematch extglob", "set -f", "read() { :; }; printf() { :; }; echo() { :; }; unset -f read printf echo", "exec </dev/null"):
            self.assertEqual(kernel.run(code).status, "ok", code)
        self.assertEqual(self.out(kernel, "echo alive"), "alive\n")
        # More often than the program has lines for it.
        for _ in range(150):
            self.assertEqual(kernel.run("break 9").status, "ok")
        self.assertEqual(kernel.run("echo a\0b").status, "error")
        self.assertEqual(self.out(kernel, "echo alive"), "alive\n")

    def test_interrupts(self):
        kernel = self.kernel()
        kernel.run("kept=yes; slow() { sleep 100; echo no; }; cd /usr")
        for code in ("sleep 100", "slow; echo no", "while :; do :; done", "while :; do sleep 100; done", "(while :; do :; done)", "sleep 100 | cat", "x=$(sleep 100)", "for i in 1 2 3; do sleep 100 & wait; done", "sh -c 'sleep 100'") * 2:
            with self.subTest(code):
                kernel.start(code)
                time.sleep(0.3)
                began = time.monotonic()
                kernel.interrupt()
                self.assertEqual(kernel.finish(patience=10).status, "interrupted")
                self.assertLess(time.monotonic() - began, 3)
                self.assertEqual(self.out(kernel, "echo $kept $PWD"), "yes /usr\n")
        kernel.run("sleep 100 & background=$!")
        kernel.start("sleep 50")
        time.sleep(0.3)
        kernel.interrupt()
        self.assertEqual(kernel.finish().status, "interrupted")
        self.assertEqual(self.out(kernel, "kill -0 $background && echo runs; kill $background"), "runs\n")

    def test_commands_do_not_see_the_pipes(self):
        kernel = self.kernel()
        # `ls` itself opens the folder as 3.
        self.assertEqual(self.out(kernel, "ls /proc/self/fd | grep -v '^[1-9]..$'"), "0\n1\n2\n3\n")

    def test_variables_of_a_cell(self):
        kernel = self.kernel(env=dict(os.environ, KEPT="before"))
        kernel.run("plain='not exported'")
        self.assertEqual(self.out(kernel, "echo $KEPT; sh -c 'echo $NEW $plain'", env={"KEPT": "now", "NEW": "a=b c", "plain": "p"}), "now\na=b c p\n")
        self.assertEqual(self.out(kernel, "echo $KEPT ${NEW-unset} $plain; sh -c 'echo $KEPT [$plain]'"), "before unset not exported\nbefore []\n")

    def test_displays(self):
        kernel = self.kernel()
        folder = self.folder()
        for name, content in (("a.png", b"\x89PNG\x00"), ("a.html", '<b a="1">\té\u2028\\</b>\x01'.encode()), ("a.json", b'{"k": [1]}')):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(content)
        kernel.run("cd " + folder)
        cell = kernel.run("display image/png a.png; display text/html a.html; (display application/json a.json)")
        self.assertEqual(cell.displays, [{"image/png": "iVBORwA="}, {"text/html": '<b a="1">\té\u2028\\</b>\x01'}, {"application/json": {"k": [1]}}])
        self.assertEqual(kernel.run("display image/png missing").status, "error")

    def test_completions(self):
        kernel = self.kernel()
        kernel.run("longname=1; longfunction() { :; }")
        self.assertEqual(kernel.complete("echo $longn"), {"matches": ["$longname"], "start": 5, "end": 11})
        self.assertEqual(kernel.complete("longf")["matches"], ["longfunction"])
        self.assertIn("/usr", kernel.complete("ls /us")["matches"])

    def test_big_output_and_code(self):
        kernel = self.kernel()
        kernel.start("head -c 100000000 /dev/zero")
        came = 0
        before = kernel.memory()
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
        self.assertLess(kernel.memory() - before, 16 << 20)
        kernel.own[kernel.out].clear()
        self.assertEqual(self.out(kernel, "x='%s'; echo ${#x}" % ("y" * 300000)), "300000\n")

    def test_death(self):
        kernel = self.kernel()
        kernel.start("exit 7")
        self.assertEqual(kernel.death(), 7)
        kernel = self.kernel()
        kernel.start("kill -KILL $$")
        self.assertEqual(kernel.death(), -signal.SIGKILL)
        kernel = self.kernel()
        os.close(kernel.requests)
        self.assertEqual(kernel.death(), 0)
        kernel.requests = os.open("/dev/null", os.O_WRONLY)

    def test_twenty_at_once(self):
        self.check_many("n=%d; echo kernel $n.", "kernel %d.")


if __name__ == "__main__":
    frames.main(INTERPRETER)
