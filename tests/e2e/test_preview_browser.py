# SPDX-License-Identifier: Apache-2.0
"""Previews of two sandboxes in one real browser: each page has an origin of its own, and no page reads what is
another's."""

import unittest

from browser import Browser
from previewkit import PAGE_SERVER, serve
from service import ServiceTest

class Pages(ServiceTest):
    # a name that is not this machine's, for the browser; and no domain
    CONFIG = "[server]\nallowed_hosts = 'brig.test'\n"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.browser = Browser()
        cls.sids = {}
        for who in ("A", "B"):
            cls.sids[who] = cls.d.create()["id"]
            serve(cls.d, cls.sids[who], PAGE_SERVER.replace("WHO", who), 8080)

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()
        super().tearDownClass()

    def made(self, who):
        return self.d.ask("POST", f"/v1/sandboxes/{self.sids[who]}/ports/8080/token", {}).json

    def origin(self, who):
        return f"http://8080-{self.sids[who]}.localhost:{self.d.port}"

    def open(self, who, where="path"):
        page = self.browser.page()
        made = self.made(who)
        page.go(f"http://127.0.0.1:{self.d.port}{made['path']}" if where == "path" else made["url"])
        return page

    def test_a_navigation_by_path_ends_at_the_previews_own_host_without_a_token(self):
        page = self.open("A")
        self.assertEqual(page.run("location.href"), self.origin("A") + "/")
        self.assertEqual(page.run("[document.title, window.loaded]"), ["A", "A"])
        self.assertEqual(page.run("document.referrer"), "")
        self.assertNotIn("brig_token", page.run("document.cookie"))
        # the cookie is enough
        self.assertEqual(page.go(self.origin("A") + "/again?x=1"), self.origin("A") + "/again?x=1")

    def test_what_brig_port_prints_is_the_host(self):
        page = self.open("B", "url")
        self.assertEqual(page.run("[location.href, document.title, window.loaded]"), [self.origin("B") + "/", "B", "B"])

    def test_a_page_cannot_read_another_preview(self):
        self.open("B")  # this browser may see B
        page = self.open("A")
        api = f"http://127.0.0.1:{self.d.port}"
        for base in (self.origin("B"), f"{api}/v1/sandboxes/{self.sids['B']}/proxy/8080",
                     f"http://localhost:{self.d.port}/v1/sandboxes/{self.sids['B']}/proxy/8080"):
            got = page.run(f"fetch('{base}/app.js', {{credentials: 'include'}}).then(r => r.text(), e => 'refused')")
            self.assertNotIn("secret of B", got, base)
            got = page.run(
                f"""new Promise(done => {{ const s = document.createElement('script'); s.src = '{base}/app.js';
                s.onload = s.onerror = () => done(window.data); document.head.append(s); }})""")
            self.assertEqual(got, "secret of A", base)
            got = page.run(f"""new Promise(done => {{ const f = document.createElement('iframe'); f.src = '{base}/';
                f.onload = () => {{ try {{ done(f.contentDocument ? f.contentDocument.body.textContent : 'closed') }} \
catch (e) {{ done('closed') }} }};
                document.body.append(f); }})""")
            self.assertEqual(got, "closed", base)

    def test_programs_get_their_own_cookies_only(self):
        for who in ("A", "B"):
            self.open(who)
        page = self.open("A")
        page.run("document.cookie = 'theme=dark; Path=/'")
        page.run(f"document.cookie = 'tossed=1; Path=/; Domain=localhost'")
        for who, own in (("A", {"sid=A", "wide=A", "theme=dark"}), ("B", {"sid=B", "wide=B"})):
            page.go(self.origin(who) + "/seen")
            line = next(x for x in page.run("document.body.textContent").splitlines() if x.startswith("Cookie: "))
            self.assertEqual(set(line.removeprefix("Cookie: ").split("; ")), own)

    def test_where_no_host_can_be_reached_the_page_has_no_origin(self):
        page, made = self.browser.page(), self.made("A")
        base = f"http://brig.test:{self.d.port}/v1/sandboxes/{self.sids['A']}/proxy/8080/"
        self.assertEqual(page.go(base + "?x=1&brig_token=" + made["token"]), base + "?x=1")
        self.assertEqual(page.run("[document.title, window.origin, window.data || '']"), ["A", "null", ""])
        for use in ("document.cookie", "localStorage.length", "navigator.serviceWorker.register('/sw.js')"):
            self.assertEqual(page.run(
                f"(async () => {{ try {{ await {use}; return 'allowed' }} catch (e) {{ return 'refused' }} }})()"),
                             "refused", use)
        page.go(f"http://brig.test:{self.d.port}{self.made('B')['path']}")  # this browser may see B there, too
        page.go(base)
        other = base.replace(self.sids["A"], self.sids["B"])
        self.assertEqual(
            page.run(f"fetch('{other}app.js', {{credentials: 'include'}}).then(r => r.text(), e => 'refused')"),
            "refused")
        got = page.run(f"""new Promise(done => {{ const s = document.createElement('script'); s.src = '{other}app.js';
            s.onload = s.onerror = () => done(window.data || 'nothing'); document.head.append(s); }})""")
        self.assertEqual(got, "nothing")


if __name__ == "__main__":
    unittest.main()
