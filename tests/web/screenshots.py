#!/usr/bin/env python3
"""Takes the pictures of docs/page.md from a running server.

    weft serve MODEL --local 2 --tp 2 -t 1 --port 8080 &
    tests/web/screenshots.py http://127.0.0.1:8080/ docs
"""
import json
import sys
import threading
import urllib.request

import chromium
from wait import until

QUESTIONS = ("List three fibres that are woven.",
             "Write a Python function that reverses a list.")
CLIENTS, ANSWERS = 4, 40


def load(url, answers, over):
    """Load for the dashboard: clients that repeat the same requests."""
    while not over.is_set():
        content = f"Story number {len(answers) // CLIENTS}, please."
        body = {"messages": [{"role": "user", "content": content}], "max_tokens": 100}
        data = json.dumps(body).encode()
        with urllib.request.urlopen(url + "v1/chat/completions", data, 60) as answer:
            answers.append(answer.read())


def chat(page, folder):
    for number, question in enumerate(QUESTIONS, 1):
        page.click("#entry")
        page.type(question)
        page.press("Enter")
        page.wait(f"document.querySelectorAll('.answer').length === {number} && "
                  "!document.querySelector('.streaming')", 60)
    page.screenshot(f"{folder}/page_chat.png")


def dashboard(page, url, folder):
    page.click("nav a[href='#dashboard']")
    answers, over = [], threading.Event()
    clients = [threading.Thread(target=load, args=(url, answers, over)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    until(lambda: len(answers) >= ANSWERS, f"{ANSWERS} answers")
    page.screenshot(f"{folder}/page_dashboard.png")
    over.set()
    for client in clients:
        client.join()


def main():
    url, folder = sys.argv[1:]
    with chromium.Chromium() as browser:
        page = browser.page(url, width=1100, height=780,
                            storage={"weft.settings": '{"temperature": 0}'})
        chat(page, folder)
        page.size(1100, 1000)
        dashboard(page, url, folder)
        for trouble in page.troubles:
            print(trouble)


if __name__ == "__main__":
    main()
