"""The explorer's page in a headless Chromium, for explorer.py: its numbers, and what a person does with it."""

import json
import os
import shutil
import subprocess
import time
import urllib.parse

# Text whose colour is too near to what is behind it (WCAG 2: a contrast of 4.5), as "text: contrast".
PALE = """(() => {
  const numbers = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (c) => { const [r, g, b] = c.slice(0, 3).map((x) => x / 255).map((x) => x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = numbers(getComputedStyle(e).backgroundColor); if (c.length < 4 || c[3] > 0) return c; }
    return [255, 255, 255]; };
  const pale = [];
  for (const e of document.querySelectorAll("body *")) {
    const text = [...e.childNodes].filter((n) => n.nodeType === 3).map((n) => n.data.trim()).join("");
    if (!text || !e.offsetParent || e.closest(".stale, :disabled, script, svg, option")) continue;
    const pair = [light(numbers(getComputedStyle(e).color)), light(behind(e))].sort((a, b) => b - a), contrast = (pair[0] + 0.05) / (pair[1] + 0.05);
    if (contrast < 4.5) pale.push(`${text.slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return pale;
})()"""


class Browser:
    """A headless Chromium, by its debugging pipe."""

    def __init__(self, chromium, page, folder):
        there, self.out = os.pipe()
        self.inward, back = os.pipe()

        def on_3_and_4():
            first, second = os.dup(there), os.dup(back)
            os.dup2(first, 3)
            os.dup2(second, 4)

        options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile", "--remote-debugging-pipe"]
        self.process = subprocess.Popen([chromium, *options, "about:blank"], preexec_fn=on_3_and_4, close_fds=False,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        os.close(there)
        os.close(back)
        self.page, self.rest, self.count, self.session = page, b"", 0, None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]

    def call(self, method, **parameters):
        self.count += 1
        message = {"id": self.count, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                self.rest += os.read(self.inward, 1 << 16)
            text, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(text)
            if answer.get("id") == self.count:
                assert "error" not in answer, answer
                return answer["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait(self, condition, seconds=120):
        """Until an expression of the page is true; its value."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.value(condition):
                return value
            time.sleep(0.05)
        raise AssertionError(f"{condition} doesn't become true; the page says {self.value('document.body.innerText')[:2000]}")

    def open(self, address):
        """The page with an address behind #, when all is computed, or refused: "done" or "problem"."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=f"{self.page.as_uri()}#{address}")
        return self.settled()

    def open_with(self, **fields):
        return self.open(urllib.parse.urlencode(fields))

    def settled(self):
        return self.wait('document.body && ["done", "problem"].find((s) => s === document.body.dataset.state)')

    def type_into(self, field, text):
        """As a person does: all of a field is replaced, and the planner asked."""
        self.value(f"""(() => {{ const e = document.getElementById("{field}"); e.focus(); e.select && e.select();
                      document.body.dataset.state = ""; }})()""")
        self.call("Input.insertText", text=text)
        return self.settled()

    def press(self, key, code):
        text = "\r" if key == "Enter" else ""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key, windowsVirtualKeyCode=code)

    def focus(self):
        return self.value('(document.activeElement.id || document.activeElement.textContent || document.activeElement.tagName).slice(0, 60)')

    def numbers(self):
        """Those that the page shows, by their names."""
        return self.value("Object.fromEntries([...document.querySelectorAll('[data-name]')].map((e) => [e.dataset.name, e.dataset.value]))")

    def close(self):
        self.process.kill()
        self.process.wait()


def check_numbers(browser, good, compare):
    for setting, plan in good:
        assert browser.open_with(model=setting.deck, machine=setting.machine, ranks=setting.ranks, more="\n".join(setting.settings),
                                 imbalance=setting.imbalance, **{"as": setting.program}) == "done", setting  # fmt: skip
        shown = browser.numbers()
        got = {k: float(shown[k]) for k in ("step_seconds", "low", "high", "mfu", "hfu")}
        wanted = {k: float(plan[k]) for k in got}
        got.update({n: int(shown["memory " + n]) for n in plan["memory"]}, peak_bytes=int(shown["peak_bytes"]))
        wanted.update(plan["memory"], peak_bytes=plan["peak_bytes"])
        got.update({n: float(shown["seconds " + n]) for n in plan["seconds"]})
        wanted.update({n: float(v) for n, v in plan["seconds"].items()})
        differences = compare(wanted, got)
        assert not differences, f"page of {setting}: {differences[:10]}"


def check_many_ranks(browser):
    """1,024 ranks: memory and bytes stand there before anything else is computed; the times are for a machine without load."""
    for deck in ("llama3_405b_1024gpu", "deepseek_v3_1024gpu", "kimi_k2_1024gpu"):
        began = time.monotonic()
        assert browser.open_with(model=deck, machine="h100_8") == "done", deck
        seconds = time.monotonic() - began
        times = []
        for tokens in (2048, 4096) * 3:
            browser.type_into("key_train_sequence_tokens", str(tokens))
            times.append(float(browser.value("document.body.dataset.factsMilliseconds")))
        timeline = float(browser.value("document.body.dataset.timelineMilliseconds")) / 1000
        print(f"explorer: {deck}: memory and bytes within {min(times):.0f} to {max(times):.0f} ms, step and timeline within {timeline:.1f} s, "
              f"the first time all within {seconds:.1f} s")
        assert min(times) < 1000, times


def check_search(browser, question, best):
    """The table fills while the search runs; at its end it is the program's. Then one that is stopped."""
    browser.open_with(model="7b_8gpu_tp4", machine=question["machine"], ranks=question["ranks"])
    browser.value('document.getElementById("best").value = "3"; document.getElementById("limit").value = "1000"')
    rows = "[...document.querySelectorAll('#found [data-name=found]')].map((e) => Number(e.dataset.value))"
    running = "document.getElementById('search').disabled"
    browser.value('document.getElementById("search").click()')
    browser.wait(f"{running} && {rows}.length > 0 && Number(document.getElementById('progress').value) > 0")
    assert "so far" in browser.value("document.querySelector('#found caption').textContent")
    browser.wait(f"!{running}", 300)
    assert browser.value(rows) == [b["step_seconds"] for b in best]
    browser.value('document.getElementById("search").click()')
    browser.wait(f"{running} && {rows}.length > 0")
    browser.value('document.getElementById("stop").click()')
    assert browser.value(f"!{running} && {rows}.length > 0 && document.getElementById('search_end').textContent.startsWith('stopped after')")
    browser.value('document.querySelector("#found button").click()')
    assert browser.settled() == "done" and browser.value("document.getElementById('key_mesh_tp').value")


def check_wrong_input(browser):
    state = browser.open("model=nonsense&machine=moon&key_train_recompute=often&ranks=8&%E0%A4%A=1&colour=blue")
    note = browser.value("document.getElementById('address_note').textContent")
    assert state == "done" and all(w in note for w in ("model = nonsense", "machine = moon", "key_train_recompute = often", "colour")), note
    problem = "document.getElementById('problem').textContent"
    assert browser.type_into("ranks", "eight") == "problem" and "--ranks" in browser.value(problem)
    assert browser.type_into("ranks", "8") == "done"
    # The nearest legal values are buttons, which win over the other settings.
    assert browser.type_into("more", "mesh.tp=3") == "problem", "tp 3 is legal"
    assert browser.wait("document.querySelectorAll('#problem button').length")
    browser.value("document.querySelector('#problem button').click()")
    assert "mesh.tp=3" not in browser.value("document.getElementById('more').value")
    twice = "document.getElementById('more_note').hidden ? '' : document.getElementById('more_note').textContent"
    browser.type_into("more", "mesh.pp=1\nmesh.cp=1\nmesh.pp = 2")
    assert browser.value(twice).endswith("the last value counts: mesh.pp"), browser.value(twice)
    browser.type_into("more", "")
    assert browser.value(twice) == ""
    assert browser.type_into("more", "no.such=1") == "problem" and "no.such" in browser.value(problem)
    assert browser.open_with(model="config:", config="hello") == "problem" and "config.json" in browser.value(problem)
    assert browser.open_with(model="size:", size="3 apples") == "problem" and "from 1B to 1T" in browser.value(problem)
    # More than the module has memory for: it says so, and goes on.
    assert browser.open_with(model="7b_8gpu_tp4", more="model.layers=100000000", machine="h100_8") == "problem", "100 M layers"
    assert browser.type_into("more", "") == "done"


def check_keyboard(browser):
    """Tab reaches every control, in order, and focus is never lost."""
    browser.open_with(model="7b_8gpu_tp4", machine="h100_8", key_mesh_tp=3)
    wanted = browser.value("""[...document.querySelectorAll("a, input, select, textarea, button, [tabindex='0']")]
        .filter((e) => e.offsetParent && !e.disabled && !e.closest("table")).map((e) => e.id || e.textContent.slice(0, 60))""")
    browser.value("document.activeElement.blur(); getSelection().removeAllRanges()")
    reached = []
    for _ in range(len(wanted) + 40):
        browser.press("Tab", 9)
        reached.append(browser.focus())
    missing = [w for w in wanted if w and w not in reached]
    assert not missing, f"the keyboard doesn't reach {missing}"
    browser.value("document.querySelector('#problem button').focus(); document.body.dataset.state = ''")
    browser.press("Enter", 13)
    assert browser.settled() and browser.focus() != "BODY"
    browser.open_with(model="7b_8gpu_tp4", machine="h100_8")
    browser.value("document.querySelector('#changes button').focus(); document.body.dataset.state = ''")
    browser.press("Enter", 13)
    assert browser.settled() == "done"
    assert browser.value("document.activeElement.closest('#changes, #fits') !== null"), browser.focus()


def check_looks(browser):
    """360 pixels wide, light and dark: nothing beyond the edge, all text legible."""
    for width in (360, 1200):
        for scheme in ("light", "dark"):
            browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=width < 500)
            browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
            for more in ("", "mesh.tp=3"):
                browser.open_with(model="deepseek_v3_256gpu", machine="h100_8", more=more)
                assert browser.value("document.scrollingElement.scrollWidth") <= width, (width, scheme, more)
                pale = browser.value(PALE)
                assert not pale, (width, scheme, pale)
    browser.call("Emulation.clearDeviceMetricsOverride")


def check_page(page, folder, good, question, best, compare):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if not chromium:
        return print("LEFT OUT: the explorer's page: Chromium is missing; jobscripts/setup.sh --web installs it")
    browser = Browser(chromium, page, folder)
    try:
        check_numbers(browser, good, compare)
        check_many_ranks(browser)
        check_wrong_input(browser)
        check_keyboard(browser)
        check_looks(browser)
        check_search(browser, question, best)
    finally:
        browser.close()
    return None
