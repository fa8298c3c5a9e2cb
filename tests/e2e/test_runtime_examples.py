# SPDX-License-Identifier: Apache-2.0
"""The tools of examples/ do what their comments say."""

import os
import unittest

from runtimekit import ROOT, run


def source(name):
    return (ROOT / "examples" / name).read_text(encoding="utf-8")


class Examples(unittest.TestCase):
    def test_weather(self):
        answer = run(source("weather.py"), name="weather", args={"city": "Oslo", "month": "1"})
        self.assertEqual(answer["result"], {"city": "Oslo", "month": 1, "mean_celsius": -2, "advice": "a coat"},
                         answer.stderr)
        self.assertEqual(answer.stdout, "looked up Oslo, month 1\n")
        self.assertEqual(run(source("weather.py"), args={"city": "Oslo"}).get("status"), "ok")
        answer = run(source("weather.py"), name="weather", args={"city": "Atlantis"})
        self.assertEqual(answer.error,
                         "ValueError: no weather for 'Atlantis', only for Cairo, Lima, Oslo, Quito, Tokyo")
        schema = run(source("weather.py"), kind="schema")["result"]
        self.assertEqual(schema,
                         {"name": "weather", "description": "The weather to expect in a city.",
                          "parameters": {"type": "object", "properties": {
                              "city": {"type": "string", "description": "name of the city"},
                              "month": {"type": "integer", "description": "1 to 12; without it the present one"}},
                                         "required": ["city"]}})

    def test_remember(self):
        state = {"memory": {"blocks": [{"label": "human", "value": "likes tea"}]}}
        answer = run(source("remember.py"), args={"fact": "lives in Oslo"}, agent_state=state)
        self.assertEqual((answer["result"], answer["agent_state"]["memory"]["blocks"][0]["value"]),
                         ("2 facts by now", "likes tea\nlives in Oslo"))
        self.assertEqual(run(source("remember.py"), args={"fact": "likes tea"}, agent_state=state)["result"],
                         "I knew that")
        self.assertEqual(run(source("remember.py"), kind="schema")["result"]["parameters"]["required"], ["fact"])

    @unittest.skipUnless(os.path.exists("/usr/bin/node"), "no /usr/bin/node")
    def test_words(self):
        answer = run(source("words.js"), "javascript", name="words", args={"text": "to be or not to be", "most": 2})
        self.assertEqual(answer["result"], {"to": 2, "be": 2}, answer.stderr)

    def test_count(self):
        answer = run(source("count.sh"), "bash", args={"text": "one two\nthree"})
        self.assertEqual(answer["result"], {"lines": 1, "words": 3, "bytes": 13}, answer.stderr)


if __name__ == "__main__":
    unittest.main()
