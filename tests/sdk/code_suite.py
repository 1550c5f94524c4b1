"""What users of E2B's code interpreter do, through its official SDK, against our daemon.

Reads E2B_API_URL, E2B_SANDBOX_URL and E2B_API_KEY as the SDK does; both addresses are the
daemon's own, which finds the sandbox by headers. Run it with the SDK's interpreter.

With the word `unnamed` no template is named, so that the SDK asks for its own, which has to be
built; then charts and tables are looked at too.
"""

import asyncio
import sys
import time

UNNAMED = sys.argv[1:] == ["unnamed"]
TEMPLATE = {} if UNNAMED else {"template": "base"}


def values(sandbox):
    done = sandbox.run_code("x = 20\nx + 1")
    assert (done.text, done.error, done.logs.stdout) == ("21", None, []), done
    assert sandbox.run_code("x += 1; x").text == "21"
    assert sandbox.run_code("'a word'").text == "a word"
    done = sandbox.run_code("None")
    assert done.text is None and done.results == [], done
    line = "a\u2028b\u0085c\u00e4\U0001f600"
    done = sandbox.run_code(f"print({line!r}); {line!r}")
    assert "".join(done.logs.stdout) == line + "\n", done
    done = sandbox.run_code("import asyncio\nasync def f():\n    return 6 * 7\nawait f()")
    assert done.text == "42", done


def errors(sandbox):
    done = sandbox.run_code("def f():\n    return 1 / 0\nf()")
    assert done.error.name == "ZeroDivisionError", done
    assert done.error.value == "division by zero"
    assert "return 1 / 0" in done.error.traceback, done.error.traceback
    assert "\x1b" not in done.error.traceback
    assert sandbox.run_code("if").error.name == "SyntaxError"
    assert sandbox.run_code("1 + 1").text == "2"


def streaming(sandbox):
    heard, failed, shown = [], [], []
    begun = time.time()

    def hear(message):
        heard.append((message.error, message.line, time.time() - begun))

    sandbox.run_code(
        "import sys, time\nprint('one')\ntime.sleep(1)\nprint('two', file=sys.stderr)\n3",
        on_stdout=hear,
        on_stderr=hear,
        on_error=failed.append,
        on_result=shown.append,
    )
    assert [message[:2] for message in heard] == [(False, "one\n"), (True, "two\n")], heard
    assert heard[1][2] - heard[0][2] > 0.8, "it came at once and not as it happened"
    assert failed == [] and [result.text for result in shown] == ["3"]


def contexts(sandbox):
    one = sandbox.create_code_context()
    two = sandbox.create_code_context(cwd="/tmp", language="python")
    sandbox.run_code("a = 1", context=one)
    assert sandbox.run_code("a", context=two).error.name == "NameError"
    assert sandbox.run_code("import os; os.getcwd()", context=two).text == "/tmp"
    assert sandbox.run_code("a", context=one).text == "1"
    ids = [context.id for context in sandbox.list_code_contexts()]
    assert ids[-2:] == [one.id, two.id], ids
    sandbox.restart_code_context(one)
    assert sandbox.run_code("a", context=one).error.name == "NameError"
    sandbox.remove_code_context(two)
    assert two.id not in [context.id for context in sandbox.list_code_contexts()]


def languages(sandbox):
    assert sandbox.run_code("const a = 6; a * 7", language="js").text == "42"
    assert sandbox.run_code("a", language="javascript").text == "6"
    done = sandbox.run_code("throw new TypeError('no')", language="js")
    assert (done.error.name, done.error.value) == ("TypeError", "no"), done
    assert "".join(sandbox.run_code("echo $((6*7))", language="bash").logs.stdout) == "42\n"
    done = sandbox.run_code("x <- 6; x * 7", language="r")
    assert "42" in (done.text or ""), done


def variables(sandbox):
    code = "import os; os.environ.get('A')"
    assert sandbox.run_code(code, envs={"A": "b"}).text == "b"
    assert sandbox.run_code(code).text is None


def timeouts(sandbox):
    from e2b import TimeoutException

    context = sandbox.create_code_context()
    sandbox.run_code("kept = 5", context=context)
    try:
        sandbox.run_code("import time; time.sleep(60)", context=context, timeout=1)
        raise AssertionError("no timeout")
    except TimeoutException:
        pass
    # Its client went away, so the cell was interrupted and the state is there.
    begun = time.time()
    assert sandbox.run_code("kept", context=context).text == "5"
    assert time.time() - begun < 10


def death(sandbox):
    context = sandbox.create_code_context()
    done = sandbox.run_code("import os; os._exit(3)", context=context)
    assert done.error is not None and "3" in done.error.value, done
    done = sandbox.run_code("1 + 1", context=context)
    assert done.text == "2" and done.logs.stderr, done


def charts(sandbox):
    from e2b_code_interpreter.charts import ChartType

    done = sandbox.run_code(
        "import matplotlib.pyplot as plt\n"
        "plt.bar(['a', 'b'], [1, 2])\nplt.title('two')\nplt.xlabel('which')\nplt.show()"
    )
    assert done.error is None, done.error
    (result,) = done.results
    assert result.png.startswith("iVBOR"), result
    assert result.chart.type == ChartType.BAR, result.chart
    assert (result.chart.title, result.chart.x_label) == ("two", "which")
    assert [(bar.label, bar.value) for bar in result.chart.elements] == [("a", 1), ("b", 2)]


def tables(sandbox):
    done = sandbox.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [3, 4]})")
    assert done.error is None, done.error
    (result,) = done.results
    assert "<table" in result.html and "a" in result.text, result
    assert result.data == {"a": [1, 2], "b": [3, 4]}, result.data
    done = sandbox.run_code("%precision 3\n!echo from a shell")
    assert done.error is None and "from a shell" in "".join(done.logs.stdout), done


async def apart():
    from e2b_code_interpreter import AsyncSandbox

    sandbox = await AsyncSandbox.create(**TEMPLATE)
    try:
        done = await sandbox.run_code("print('hi'); 1")
        assert (done.text, done.logs.stdout) == ("1", ["hi\n"]), done
    finally:
        await sandbox.kill()


def main():
    from e2b_code_interpreter import Sandbox

    sandbox = Sandbox.create(**TEMPLATE)
    parts = [values, errors, streaming, contexts, languages, variables, timeouts, death]
    if UNNAMED:
        parts += [charts, tables]
    try:
        for part in parts:
            part(sandbox)
            print(part.__name__, "held", flush=True)
    finally:
        sandbox.kill()
    asyncio.run(apart())
    print("apart held")


main()
