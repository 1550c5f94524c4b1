"""The kernel of Node: `python3 tests/kernels/node.py [NODE]`."""

import json
import os
import pathlib
import signal
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import frames

INTERPRETER = ["node"]
FLAGS = ["--no-warnings", "--no-force-async-hooks-checks", "-e", 'eval(require("fs").readFileSync(0, "utf8"))']


class Node(frames.KernelTest):
    language = "node"

    @property
    def command(self):
        return [INTERPRETER[0]] + FLAGS

    def version(self):
        return tuple(int(part) for part in self.said["version"].split(".")[:2])

    def values(self, kernel, *pairs):
        for code, expected in pairs:
            cell = kernel.run(code)
            self.assertEqual((cell.text, cell.status), (expected, "ok"), (code, cell.frames))

    def test_declarations_stay_and_may_be_made_again(self):
        kernel = self.kernel()
        self.assertEqual(self.said["language"], "javascript")
        self.values(
            kernel,
            ("1+1", "2"),
            ("const a = 1; let b = 2; class C { m() { return 3 } }; function f() { return 4 }; var g = 5", None),
            ("a + b + new C().m() + f() + g", "15"),
            ("const a = 10; let b = 20; class C { m() { return 30 } }", None),
            ("a + b + new C().m()", "60"),
            ("const {x, ...rest} = {x: 1, y: 2, z: 3}; rest", "{ y: 2, z: 3 }"),
            ("const late = await new Promise(r => setTimeout(r, 5, 'late')); late", "'late'"),
            ("late", "'late'"),
            ("{ const inner = 1 }; typeof inner", "'undefined'"),
            ("undefined", None),
            ("null", "null"),
        )
        self.assertEqual(kernel.run("throw new Error('x'); const a = 5").status, "error")
        self.values(kernel, ("const a = 6; a", "6"))

    def test_imports(self):
        folder = self.folder()
        with open(os.path.join(folder, "own.mjs"), "w") as file:
            file.write("export default 'the default'; export const one = 1; export let two = 2; export {two as 'a b'}; globalThis.loaded = (globalThis.loaded ?? 0) + 1")
        with open(os.path.join(folder, "old.cjs"), "w") as file:
            file.write("module.exports = {here: __dirname}")
        with open(os.path.join(folder, "data.json"), "w") as file:
            file.write('{"k": 1}')
        os.makedirs(os.path.join(folder, "node_modules", "bare"))
        with open(os.path.join(folder, "node_modules", "bare", "package.json"), "w") as file:
            file.write('{"name": "bare", "exports": {"import": "./i.mjs", "require": "./r.cjs"}}')
        with open(os.path.join(folder, "node_modules", "bare", "i.mjs"), "w") as file:
            file.write("export const how = 'import'")
        with open(os.path.join(folder, "node_modules", "bare", "r.cjs"), "w") as file:
            file.write("exports.how = 'require'")
        kernel = self.kernel()
        self.values(
            kernel,
            ("process.chdir(%s)" % json.dumps(folder), None),
            ("import own, {one, two as zwei, 'a b' as ab} from './own.mjs'\n[own, one, zwei, ab]", "[ 'the default', 1, 2, 2 ]"),
            ("[own, one]", "[ 'the default', 1 ]"),
            ("import * as all from './own.mjs'; all.one", "1"),
            ("import './own.mjs'\nloaded", "1"),
            ("import only, * as whole from\n  './own.mjs' // import x from 'y'\n;[only, whole.two]", "[ 'the default', 2 ]"),
            ("import {\n  one as eins, // the first\n  two,\n} from \"./own.mjs\"\neins + two", "3"),
            ("import fs, {readFileSync} from 'node:fs'; fs.readFileSync === readFileSync", "true"),
            ("import {how} from 'bare'; [how, require('bare').how, (await import('bare')).how]", "[ 'import', 'require', 'import' ]"),
            ("require('./old.cjs').here === process.cwd()", "true"),
            ("(await import('./own.mjs')).one", "1"),
            ("const text = \"import x from 'y'\"; const t = `import z from '${'import q from \"w\"'}' ${await import('./own.mjs').then(m => m.one)}`; t", "`import z from 'import q from \"w\"' 1`"),
            ("const re = /import('x')\\/[/]/; re.source.length", "16"),
            ("({import: 4}).import", "4"),
            ("typeof import.meta.url", "'string'"),
            ("4 / 2 / 1; // import './nothing.mjs'", "2"),
        )
        attributes = "assert" if self.version() < (18, 20) else "with"
        self.values(kernel, ("import data from './data.json' %s {type: 'json'}; data.k" % attributes, "1") if self.version() >= (18, 20) else ("1", "1"))
        cell = kernel.run("import {nothing} from './own.mjs'")
        self.assertEqual(cell.error["name"], "SyntaxError")
        self.assertIn("nothing", cell.error["value"])
        cell = kernel.run("import x from 'no-such-package'")
        self.assertIn("no-such-package", cell.error["value"])

    def test_the_last_value_is_awaited_and_shown(self):
        kernel = self.kernel()
        self.values(
            kernel,
            ("Promise.resolve(7)", "7"),
            ("({then(r) { r('thenable') }})", "'thenable'"),
            ("'text'", "'text'"),
            ("12345678901234567890n", "12345678901234567890n"),
            ("const c = {}; c.self = c; c", "<ref *1> { self: [Circular *1] }"),
            ("({get bad() { throw new Error('no') }})", "{ bad: [Getter] }"),
            ("new Proxy({}, {get() { throw new Error('trap') }, ownKeys() { throw new Error('trap') }}); 1", "1"),
            ("'\u2028\u2029 é 日本 😀'.length", "10"),
            ("-0", "-0"),
            ("NaN", "NaN"),
            ("Symbol('s')", "Symbol(s)"),
            ("[1, 2, 3].map(x => x * 2)", "[ 2, 4, 6 ]"),
        )
        for code in ("new Proxy({}, {get() { throw new Error('trap') }})", "({[Symbol.for('nodejs.util.inspect.custom')]() { throw new Error('x') }})", "Object.create(null)", "({get then() { throw new Error('no then') }})", "({get _toHtml() { throw 1 }})"):
            self.assertIn(kernel.run(code).status, ("ok", "error"), code)
        self.values(kernel, ("1", "1"))

    def test_errors(self):
        kernel = self.kernel()
        cell = kernel.run("function g() {\n  throw new TypeError('boo')\n}\ng()")
        self.assertEqual((cell.error["name"], cell.error["value"]), ("TypeError", "boo"))
        self.assertIn("at g (<cell-1>:2:9)", cell.error["traceback"])
        self.assertIn("<cell-1>:4:1", cell.error["traceback"])
        for word in ("soma", "inspector", "[eval]", "Socket"):
            self.assertNotIn(word, cell.error["traceback"])
        self.assertEqual(kernel.run("throw 'text'").error["value"], "text")
        self.assertEqual(kernel.run("throw null").error["value"], "null")
        self.assertEqual(kernel.run("throw undefined").error["value"], "undefined")
        self.assertEqual(kernel.run("throw {get message() { throw 1 }, toString() { throw 2 }}").status, "error")
        cell = kernel.run("let a = 1\nlet b = ;\n")
        self.assertEqual(cell.error["name"], "SyntaxError")
        self.assertIn("<cell-6>:2\nlet b = ;\n        ^", cell.error["traceback"])
        cell = kernel.run("await Promise.reject(new RangeError('later'))")
        self.assertEqual(cell.error["name"], "RangeError")
        self.assertEqual(kernel.run("Promise.reject(new Error('last'))").error["value"], "last")
        self.assertIn("Maximum call stack", kernel.run("(function f() { f() })()").error["value"])
        cell = kernel.run("throw new Error('outer', {cause: new Error('inner')})")
        self.assertIn("inner", cell.error["traceback"])
        self.assertEqual(kernel.run("1").text, "1")

    def test_output_is_apart_and_in_order(self):
        kernel = self.kernel()
        cell = kernel.run("console.log('a', {b: 1}); console.error('c'); process.stdout.write('d\\n'); process.stderr.write(Buffer.from('e')); console.log('f')")
        self.assertEqual([(words[0], payload) for words, payload in cell.frames], [("stdout", b"a { b: 1 }\n"), ("stderr", b"c\n"), ("stdout", b"d\n"), ("stderr", b"e"), ("stdout", b"f\n")])
        kernel.start("console.log('now'); const until = Date.now() + 700; while (Date.now() < until); console.log('then')")
        began = time.monotonic()
        kernel.until("stdout", b"now")
        self.assertLess(time.monotonic() - began, 0.6)
        kernel.finish()
        self.assertEqual(kernel.run("for (let i = 0; i < 5000; i++) console.log(i)").stdout, "".join("%d\n" % i for i in range(5000)))
        self.assertEqual(kernel.run("console.log('\\ud800x\u2028')").stdout, "\ufffdx\u2028\n")
        self.assertEqual(kernel.run("console.table([{a: 1}]); console.group('g'); console.log('in'); console.groupEnd(); console.log('out')").stdout.splitlines()[-3:], ["g", "  in", "out"])
        cell = kernel.run("process.stdout.write('x', () => console.log('written')); process.stdout.end(); await new Promise(r => setTimeout(r, 10)); console.log('still')")
        self.assertIn("still", cell.stdout)
        self.assertIn("written", cell.stdout)
        kernel.run("require('child_process').execSync('echo child; echo bad >&2', {stdio: 'inherit'})")
        self.assertEqual(kernel.own_output(1, b"child\n"), b"child\n")
        self.assertEqual(kernel.own_output(2, b"bad\n"), b"bad\n")
        self.assertEqual(kernel.run("process.stdout.write(Buffer.from([0, 255, 10]))").all("stdout"), [b"\x00\xff\n"])

    def test_children_do_not_see_the_pipes(self):
        kernel = self.kernel()
        cell = kernel.run("require('child_process').execSync('ls /proc/self/fd', {stdio: ['inherit', 'pipe', 'inherit']}).toString().split('\\n').filter(x => x > 2 && x < 6).length")
        # `ls` itself opens the folder as 3.
        self.assertEqual(cell.text, "1", cell.frames)
        self.assertEqual(kernel.run("require('fs').readFileSync(0).length").text, "0")

    def test_big_output_grows_nothing(self):
        kernel = self.kernel()
        kernel.run("const line = 'x'.repeat(999)")
        kernel.run("console.log(1)")
        speed = self.check_flat_memory(kernel, "for (let i = 0; i < 100000; i++) console.log(line)", 100000000)
        print("node: %.0f MB/s with console.log" % (speed / 1e6), file=sys.stderr)
        speed = self.check_flat_memory(kernel, "for (let i = 0; i < 100; i++) void process.stdout.write('y'.repeat(1000000))", 100000000)
        print("node: %.0f MB/s with large writes" % (speed / 1e6), file=sys.stderr)

    def test_interrupts_end_whatever_runs_and_keep_the_state(self):
        kernel = self.kernel()
        kernel.run("const kept = 'kept'")
        for code in (
            "console.log('started'); for (;;);",
            "console.log('started'); await 1; for (;;);",
            "await new Promise(r => setTimeout(r, 10)); console.log('started'); for (;;);",
            "console.log('started'); await new Promise(() => {})",
            "console.log('started'); new Promise(r => setTimeout(r, 100000))",
            "console.log('started'); for (;;) await null",
            "console.log('started'); for (;;) await new Promise(r => setTimeout(r, 1))",
            "console.log('started'); try { for (;;); } catch {} finally { for (;;); }",
            "console.log('started'); /(a+)+b/.test('a'.repeat(50))",
            "console.log('started'); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)",
            "setTimeout(() => { console.log('started'); for (;;); }, 5); await new Promise(r => setTimeout(r, 60000))",
            "console.log('started'); process.nextTick(() => { for (;;); }); await new Promise(r => setTimeout(r, 60000))",
            "console.log('started'); require('child_process').execSync('sleep 100')",
            "console.log('started'); await new Promise((_, no) => require('child_process').exec('sleep 100', no))",
            "console.log('started'); for (;;) process.stdout.write('');",
        ):
            with self.subTest(code):
                self.check_interrupt(kernel, code, pause=0.3 if "sleep" in code else 0)
                for _ in range(3):
                    self.assertEqual(kernel.run("await new Promise(r => setTimeout(r, 1)); kept").text, "'kept'")

    def test_the_first_cell_can_be_interrupted(self):
        self.check_interrupt(self.kernel(), "console.log('started'); for (;;);")
        self.check_interrupt(self.kernel(), "console.log('started'); await null; while (true);")

    def test_an_interrupt_without_a_cell_does_nothing(self):
        kernel = self.kernel()
        kernel.run("var n = 0; setTimeout(() => {}, 1)")
        for _ in range(10):
            kernel.interrupt()
            time.sleep(0.2)
            self.assertEqual(kernel.run("++n, await null, n").status, "ok")

    def test_garbage_does_not_end_a_waiting_cell(self):
        kernel = self.kernel()
        kernel.run("require('v8').setFlagsFromString('--expose-gc'); const collect = require('vm').runInNewContext('gc')")
        kernel.start("setTimeout(() => { collect(); collect(); setTimeout(() => { collect(); console.log('collected') }, 10) }, 10); await new Promise(() => {})")
        kernel.until("stdout", b"collected")
        kernel.interrupt()
        self.assertEqual(kernel.finish().status, "interrupted")
        self.assertEqual(kernel.run("1").text, "1")

    def test_background_errors_are_told_and_end_nothing(self):
        kernel = self.kernel()
        kernel.run("setTimeout(() => { throw new Error('thrown later') }, 5); 1")
        self.assertIn("thrown later", kernel.until("stderr", b"thrown later").stderr)
        kernel.run("void Promise.reject(new Error('rejected later')); setTimeout(() => Promise.reject('plain'), 20); 1")
        cell = kernel.until("stderr", b"plain")
        self.assertNotIn("soma", cell.stderr)
        self.assertEqual(kernel.run("1").text, "1")

    def test_input(self):
        kernel = self.kernel()
        cell = kernel.run("await input('name? ')", "i", answer=("input", "é\u2028".encode()))
        self.assertEqual(cell.text, "'é\\u2028'" if "u2028" in cell.text else "'é\u2028'")
        self.assertEqual(json.loads(cell.all("input")[0]), {"prompt": "name? ", "password": False})
        self.assertEqual(kernel.run("prompt('x') + '!'", "i", answer=("input", b"sync")).text, "'sync!'")
        self.assertIn("nobody", kernel.run("await input('x')").error["value"])
        self.assertEqual(kernel.run("prompt('x')", "i", answer=("refuse", b"no one is there")).error["value"], "no one is there")
        kernel.start("prompt('x')", "i")
        kernel.until("input", b"{")
        kernel.interrupt()
        self.assertEqual(kernel.finish().status, "interrupted")
        kernel.start("await input('x')", "i")
        kernel.until("input", b"{")
        kernel.interrupt()
        self.assertEqual(kernel.finish().status, "interrupted")
        self.assertEqual(kernel.run("1").text, "1")

    def test_variables_of_a_cell(self):
        kernel = self.kernel(env=dict(os.environ, KEPT="before"))
        self.assertEqual(kernel.run("[process.env.KEPT, process.env.NEW, require('child_process').execSync('echo $NEW').toString()]", env={"KEPT": "now", "NEW": "a=b\nc"}).text, "[ 'now', 'a=b\\nc', 'a=b c\\n' ]")
        self.assertEqual(kernel.run("[process.env.KEPT, process.env.NEW]").text, "[ 'before', undefined ]")

    def test_displays(self):
        kernel = self.kernel()
        cell = kernel.run("display('<b>x</b>'); display({html: 'h', text: 't'}); display({image: Buffer.from('png'), mimeType: 'image/png'}); display({svg: '<svg/>'}); display({type: 'application/pdf', data: Buffer.from('p')}); display({markdown: '# m'}); display({json: {a: [1n]}}); display({audio: 'AAAA', mimeType: 'audio/ogg'}); display(5); display.latex('x')")
        self.assertEqual(
            cell.displays,
            [{"text/html": "<b>x</b>"}, {"text/html": "h", "text/plain": "t"}, {"image/png": "cG5n"}, {"image/svg+xml": "<svg/>"}, {"application/pdf": "cA=="}, {"text/markdown": "# m"}, {"application/json": {"a": ["1"]}}, {"audio/ogg": "AAAA"}, {"text/plain": "5"}, {"text/latex": "x"}],
        )
        self.assertEqual(kernel.run("({_toHtml() { return '<i>' }, a: 1})").result["text/html"], "<i>")
        self.assertEqual(kernel.run("({async toHtml() { return '<i>' }})").result["text/html"], "<i>")
        self.assertEqual(kernel.run("({[Symbol.for('Jupyter.display')]: () => ({'text/html': 'j'})})").result["text/html"], "j")
        self.assertEqual(kernel.run("display({_toPng: () => Buffer.from('p')})").displays[0]["image/png"], "cA==")
        cell = kernel.run("const handle = display({html: '1'}, {id: 'one'}); handle.update({html: '2'})")
        self.assertEqual(json.loads(cell.all("display")[1]), {"data": {"text/html": "2"}, "metadata": {}, "transient": {"display_id": "one"}, "update": True})
        self.assertEqual(kernel.run("display({html: '\\ud800 \\\\ud800'})").displays, [{"text/html": "\ufffd \\ud800"}])
        self.assertEqual(kernel.run("const loop = {}; loop.l = loop; display({json: loop})").status, "error")
        self.assertEqual(len(kernel.run("console.clear()").all("clear")), 1)

    def test_completions(self):
        kernel = self.kernel()
        kernel.run("const longName = {alpha: 1, beta: {gamma: 2}}; let touched = 0; const sly = {get trap() { touched++; return {x: 1} }}; function touch() { touched++; return {} }")
        self.assertEqual(kernel.complete("longN"), {"matches": ["longName"], "start": 0, "end": 5})
        self.assertEqual(kernel.complete("1 + longName.al"), {"matches": ["alpha"], "start": 13, "end": 15})
        self.assertEqual(kernel.complete("longName.beta.g")["matches"], ["gamma"])
        self.assertEqual(kernel.complete("'😀'; longName.b rest", 15)["matches"], ["beta"])
        self.assertIn("toUpperCase", kernel.complete("'x'.to")["matches"])
        self.assertEqual(kernel.complete("sly.trap.")["matches"], [])
        kernel.complete("touch().a")
        kernel.complete("while(1){}.")
        self.assertIn("console", kernel.complete("")["matches"])
        self.assertEqual(kernel.run("touched").text, "0")

    def test_typescript(self):
        kernel = self.kernel()
        if self.version() < (22, 13):
            self.assertIn("22.13", kernel.run("const n: number = 1; n", "t").error["value"])
            return
        self.assertEqual(kernel.run("interface A { b: number }\nconst n: number = 41; import type {X} from 'x'; import {readFileSync} from 'fs'; const a = {b: n + 1} satisfies A; a.b as number", "t").text, "42")
        self.assertEqual(kernel.run("await Promise.resolve<number>(n)", "t").text, "41")
        self.assertIn("<cell-3>:3:", kernel.run("type T = {\n a: string }\nthrow new Error('x' as string)", "t").error["traceback"])
        self.assertEqual(kernel.run("let x: = 1", "t").status, "error")
        cell = kernel.run("enum E { A = 5 }; E.A", "t")
        self.assertTrue(cell.text == "5" or "enum" in cell.error["value"], cell.frames)

    def test_death(self):
        kernel = self.kernel()
        kernel.start("console.log('last'); process.exit(7)")
        self.assertIn("last", kernel.until("stdout", b"last").stdout)
        self.assertEqual(kernel.death(), 7)
        self.assertNotIn(b"debugger", kernel.own_output(2, b"?", 0.2))
        kernel = self.kernel()
        kernel.start("process.kill(process.pid, 'SIGKILL')")
        self.assertEqual(kernel.death(), -signal.SIGKILL)
        kernel = frames.Kernel("node", [INTERPRETER[0], "--max-old-space-size=64"] + FLAGS)
        self.addCleanup(kernel.close)
        kernel.ready()
        kernel.start("const all = []; for (;;) all.push(new Array(10000).fill(all.length))")
        self.assertEqual(kernel.death(), -signal.SIGABRT)
        kernel = self.kernel()
        os.close(kernel.requests)
        self.assertEqual(kernel.death(), 0)
        kernel.requests = os.open("/dev/null", os.O_WRONLY)

    def test_silent_cells_show_no_value(self):
        cell = self.kernel().run("console.log(1); 5", "s")
        self.assertEqual((cell.text, cell.stdout, cell.status), (None, "1\n", "ok"))

    def test_large_code_and_value(self):
        kernel = self.kernel()
        code = "'" + "x" * 10000000 + "'"
        self.assertEqual(kernel.run(code).text, code)

    def test_twenty_at_once(self):
        self.check_many("const n = %d; console.log('kernel ' + n)", "kernel %d")


if __name__ == "__main__":
    frames.main(INTERPRETER)
