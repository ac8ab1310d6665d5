"""Test cases with a page in headless Chromium and a server whose answers each test defines."""
import unittest

import chromium
from fake_server import FakeServer

DONE = "document.querySelector('.answer:last-child .stats')?.textContent.includes('token') && " \
    "document.querySelector('#stop').hidden"


def setUpModule():
    Case.browser = chromium.Chromium()


def tearDownModule():
    Case.browser.__exit__()


class Case(unittest.TestCase):
    browser = None  # one for all tests; each test has its own page with a fresh profile

    def setUp(self):
        self.server = FakeServer()
        self.page = self.browser.page(self.server.url)

    def tearDown(self):
        troubles = self.page.troubles
        self.page.close()
        self.server.stop()
        self.assertEqual(troubles, [])

    def say(self, text, wait=True):
        self.page.click("#entry")
        self.page.type(text)
        self.page.press("Enter")
        if wait:
            self.page.wait(DONE)

    def answer_text(self):
        return self.page.text(".answer:last-child .markdown")

    def roles(self, request):
        return [(message["role"], message["content"]) for message in request["messages"]]


class SharedPage(Case):
    """Tests of one page: opening one takes 1.5 s of a core."""

    @classmethod
    def setUpClass(cls):
        cls.server = FakeServer()
        cls.page = cls.browser.page(cls.server.url)

    @classmethod
    def tearDownClass(cls):
        cls.page.close()
        cls.server.stop()

    def setUp(self):
        self.server.reset()

    def tearDown(self):
        troubles = list(self.page.troubles)
        self.page.troubles.clear()
        self.assertEqual(troubles, [])
