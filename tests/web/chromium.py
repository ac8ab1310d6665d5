"""A headless Chromium, driven over its DevTools protocol through a pipe (no port, no package).

    with Chromium() as browser:
        page = browser.page("http://127.0.0.1:8080/", width=1200, height=800)
        page.click("#send")                    # as a mouse does
        page.type("Hello"); page.press("Enter")
        page.wait("document.title === 'x'")    # until an expression is true
        page.screenshot("x.png")

Every wait has a deadline. Exceptions of scripts and violations of the page's policy are collected
in page.troubles.
"""
import base64
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from limits import NIGHTLY, limit, timeout_ms  # noqa: E402, F401
from wait import until  # noqa: E402

WAIT_S = 10  # on a machine that is not slow
KEYS = {"Enter": (13, "\r"), "Escape": (27, ""), "Tab": (9, "")}

# True: the element is the same and at the same place in two frames; window.placeOfTheMouse is then
# its center.
STANDS_STILL = """(async () => {
  const look = () => {
    const element = document.querySelector(%s);
    element?.scrollIntoView({block: "nearest"});
    const box = element?.getBoundingClientRect();
    return {element, x: box?.x + box?.width / 2, y: box?.y + box?.height / 2};
  };
  const before = look();
  await new Promise((next) => requestAnimationFrame(() => requestAnimationFrame(next)));
  const now = look();
  window.placeOfTheMouse = [now.x, now.y];
  return now.element && now.element === before.element && now.x === before.x && now.y === before.y;
})()"""


def program():
    """The path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))),
                None)


class Chromium:
    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="weft-chromium-")
        to_child, self.commands = os.pipe()
        self.answers, from_child = os.pipe()
        # The browser reads descriptor 3 and writes 4; free these numbers first.
        high = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 20) for fd in (to_child, from_child)]
        os.close(to_child)
        os.close(from_child)

        def in_child():
            os.dup2(high[0], 3)
            os.dup2(high[1], 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
             "--disable-background-networking", "--disable-component-update", "--disable-sync",
             "--disable-extensions", "--force-color-profile=srgb", "--renderer-process-limit=1",
             f"--user-data-dir={self.profile.name}", "about:blank"],
            preexec_fn=in_child, pass_fds=(3, 4), start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for fd in high:
            os.close(fd)
        self.rest = b""
        self.number = 0
        self.replies = {}
        self.pages = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait(WAIT_S)
        os.close(self.commands)
        os.close(self.answers)
        until(self.is_clean, "the end of child processes, which may still write")

    def is_clean(self):
        try:
            self.profile.cleanup()
        except OSError:
            return False
        return True

    def call(self, method, session=None, **parameters):
        self.number += 1
        number = self.number
        message = {"id": number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + limit(6 * WAIT_S)
        while number not in self.replies:
            self.read(deadline)
        reply = self.replies.pop(number)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        return reply["result"]

    def read(self, deadline):
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self.answers], [], [], left)[0]:
            raise TimeoutError("Chromium does not answer")
        piece = os.read(self.answers, 1 << 16)
        if not piece:
            raise RuntimeError("Chromium has ended")
        *messages, self.rest = (self.rest + piece).split(b"\0")
        for text in messages:
            message = json.loads(text)
            if "id" in message:
                self.replies[message["id"]] = message
            elif message.get("sessionId") in self.pages:
                self.pages[message["sessionId"]].event(message)

    def page(self, url, width=1100, height=800, dark=False, storage=(), beside=None):
        """A new tab in a fresh browser profile; `storage`: its localStorage. `beside`: a page whose
        profile it shares."""
        context = beside.context if beside else \
            self.call("Target.createBrowserContext")["browserContextId"]
        # In its own window: a background tab is not drawn.
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context,
                           newWindow=True)
        session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, session["sessionId"], context)
        self.pages[page.session] = page
        page.open(url, width, height, dark, dict(storage))
        return page


class Page:
    def __init__(self, browser, session, context):
        self.browser, self.session, self.context = browser, session, context
        self.troubles = []

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def event(self, message):
        if message["method"] == "Runtime.exceptionThrown":
            details = message["params"]["exceptionDetails"]
            self.troubles.append(details.get("exception", {}).get("description", details["text"]))
        elif message["method"] == "Log.entryAdded":
            entry = message["params"]["entry"]
            if entry["source"] == "security" or "Content Security Policy" in entry["text"]:
                self.troubles.append(entry["text"])

    def open(self, url, width, height, dark, storage):
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.call("Emulation.setEmulatedMedia", features=[
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        if storage:
            script = "".join(f"localStorage[{json.dumps(k)}] ??= {json.dumps(v)};"
                             for k, v in storage.items())
            self.call("Page.addScriptToEvaluateOnNewDocument", source=script)
        self.go(url)

    def size(self, width, height, scale=1):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=scale, mobile=width < 500)

    def go(self, url):
        self.call("Page.navigate", url=url)
        self.ready(url)

    def reload(self):
        self.eval("window.beforeReload = true")
        self.call("Page.reload")
        self.ready(None)

    def ready(self, url):
        # Scripts write the header's text.
        self.wait("!window.beforeReload && location.href !== 'about:blank' && "
                  "document.readyState === 'complete' && "
                  "(!document.querySelector('#server') || "
                  "document.querySelector('#server').textContent !== '')")

    def close(self):
        self.browser.call("Target.disposeBrowserContext", browserContextId=self.context)
        del self.browser.pages[self.session]

    def eval(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in result:
            details = result["exceptionDetails"]
            raise RuntimeError(details.get("exception", {}).get("description", details["text"]))
        return result["result"].get("value")

    def wait(self, expression, seconds=WAIT_S):
        """Waits until the expression is true."""
        troubles = [""]

        def holds():
            try:
                return self.eval(f"Promise.resolve({expression}).then(Boolean)")
            except RuntimeError as error:  # between two documents no script can run
                troubles[0] = f" ({error})"
                return False
        until(holds, lambda: expression + troubles[0], limit(seconds))

    def text(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)})?.innerText ?? null")

    def texts(self, selector):
        return self.eval(f"[...document.querySelectorAll({json.dumps(selector)})]"
                         ".map((element) => element.innerText)")

    def shown(self, selector):
        return self.eval(f"document.querySelector({json.dumps(selector)})"
                         "?.checkVisibility({visibilityProperty: true}) ?? false")

    def click(self, selector):
        """Clicks the middle of the first visible element, once it stands still: during layout the
        mouse could hit another element."""
        self.wait(f"document.querySelector({json.dumps(selector)})?.checkVisibility()")
        self.wait(STANDS_STILL % json.dumps(selector))
        place = self.eval("window.placeOfTheMouse")
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1],
                      button="left", clickCount=1)

    def type(self, text):
        self.call("Input.insertText", text=text)

    def press(self, key, shift=False):
        code, text = KEYS[key]
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code,
                  "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
