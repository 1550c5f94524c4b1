"""What a Python kernel shows: forms of values, figures, tables."""
from case_python import CHART, DATA, Case, has


class Shown(Case):
    def objects_are_shown_in_all_their_forms(self):
        code = "class H:\n    def __repr__(self): return 'H()'\n    def _repr_html_(self): return '<b>'\n"
        code += "    def _repr_png_(self): return b'\\x89PNG'\n    def _repr_latex_(self): return '$x$'\n"
        code += "    def _repr_mimebundle_(self, include=None, exclude=None): return {'a/b': 1}\n"
        made = self.run_ok(code + "display(H())\nH()")
        wanted = {"text/plain": "H()", "text/html": "<b>", "image/png": "iVBORw==", "text/latex": "$x$", "a/b": 1}
        self.assertEqual(made.result["data"], wanted)
        self.assertEqual(made.displays[0]["data"], wanted)
        self.assertEqual(made.order, ["display", "result", "done"])
        made = self.run_ok("class B:\n    def __repr__(self): return 'B'\n    def _repr_html_(self): 1/0\nB()")
        self.assertEqual(made.text, "B")
        self.assertEqual(self.run_ok("class G:\n    def __getattr__(self, n): return lambda *a, **k: None\nint").text, "int" if self.ipython else "<class 'int'>")

    def ipython_objects_are_shown(self):
        if not self.ipython:
            self.skipTest("no IPython")
        code = "from IPython.display import *\ndisplay(HTML('<b>'), Markdown('#'), SVG('<svg/>'), Latex('x'), "
        code += "Javascript('1'), JSON({'a': 1}), Math('y'))\nh = display('a', display_id=True)\nh.update('b')\n"
        made = self.run_ok(code + "clear_output()\nImage(b'\\x89PNG', format='png')")
        forms = [sorted(shown["data"]) for shown in made.displays]
        for at, form in enumerate(["text/html", "text/markdown", "image/svg+xml", "text/latex",
                                   "application/javascript", "application/json", "text/latex"]):
            self.assertIn(form, forms[at])
        self.assertTrue(made.displays[-1]["update"])
        self.assertEqual(made.displays[-1]["transient"], made.displays[-2]["transient"])
        self.assertIn("clear", made.order)
        self.assertIn("image/png", made.result["data"])
        self.assertEqual(self.run_ok("%%capture c\nprint('x')\ndisplay(1)").order, ["done"])

    def figures_are_shown_and_closed(self):
        if not has("matplotlib"):
            self.skipTest("no matplotlib")
        made = self.run_ok("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4]); plt.title('T');")
        self.assertEqual(len(made.displays), 1)
        self.assertIn("matplotlib.pyplot", made.modules)
        data = made.displays[0]["data"]
        self.assertTrue(data["image/png"].startswith("iVBOR"))
        self.assertNotIn("image/svg+xml", data)
        self.assertEqual((data[CHART]["type"], data[CHART]["title"]), ("line", "T"))
        self.assertEqual(data[CHART]["elements"][0]["points"], [[1, 3], [2, 4]])
        self.assertEqual(self.run_ok("plt.get_fignums()").text, "[]")
        made = self.run_ok("for i in range(2): plt.figure(); plt.bar(['a', 'b'], [1, i])\nplt.show()\nprint('after')")
        self.assertEqual(made.order, ["display", "display", "stdout", "done"])
        self.assertEqual(made.displays[0]["data"][CHART]["elements"][1], {"label": "b", "group": "Group 0", "value": 0})
        made = self.run_ok("fig, ax = plt.subplots(); ax.pie([1, 3], labels=['x', 'y']); fig")
        self.assertEqual((made.order, made.result["data"][CHART]["type"]), (["result", "done"], "pie"))
        made = self.run_ok("f, a = plt.subplots(1, 2); a[0].scatter([1], [2]); a[1].boxplot([[1, 2, 3, 4, 30]]);")
        chart = made.displays[0]["data"][CHART]
        self.assertEqual([chart["type"]] + [one["type"] for one in chart["elements"]], ["superchart", "scatter", "box_and_whisker"])
        box = chart["elements"][1]["elements"][0]
        self.assertEqual((box["min"], box["first_quartile"], box["median"], box["outliers"]), (1, 2, 3, [30]))
        made = self.run_ok("plt.imshow([[1, 2]]);", env={"SOMA_FIGURE_FORMATS": "png,svg"})
        self.assertEqual(made.displays[0]["data"][CHART]["type"], "unknown")
        self.assertIn("image/svg+xml", made.displays[0]["data"])

    def tables_are_shown_as_data(self):
        if not has("pandas"):
            self.skipTest("no pandas")
        code = "import pandas as pd\npd.DataFrame({'a': [1, 2], 't': pd.to_datetime(['2020-01-02', None]), "
        made = self.run_ok(code + "'f': [1.5, float('nan')]})")
        data = made.result["data"]
        self.assertEqual(data[DATA], {"a": [1, 2], "t": ["2020-01-02T00:00:00", None], "f": [1.5, None]})
        self.assertIn("<table", data["text/html"])
        made = self.run_ok("pd.DataFrame({'n': range(20000)})")
        self.assertEqual(len(made.result["data"][DATA]["n"]), 10000)

    def plotly_needs_nothing_from_elsewhere(self):
        if not has("plotly"):
            self.skipTest("no plotly")
        code = "import plotly.graph_objects as go\nf = go.Figure(go.Scatter(x=[1, 2], y=[3, float('nan')]))\n"
        made = self.run_ok(code + "f.show()\nf")
        for data in (made.displays[0]["data"], made.result["data"]):
            self.assertGreater(len(data["text/html"]), 1 << 20)
            self.assertEqual(data["application/vnd.plotly.v1+json"]["data"][0]["type"], "scatter")

    def pictures_of_pil_are_shown(self):
        if not has("PIL"):
            self.skipTest("no PIL")
        made = self.run_ok("from PIL import Image\ni = Image.new('RGB', (2, 2))\ni.show()\ni")
        self.assertIn("image/png", made.result["data"])
        self.assertIn("image/png", made.displays[0]["data"])
