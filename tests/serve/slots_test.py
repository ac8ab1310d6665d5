#!/usr/bin/env python3
"""llama-server's slots: texts saved under a name and restored after a restart, in several layouts;
other models, damaged files, hostile names, two keys, full disks."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

import serving

serving.few_layers = True

PAGE = 64
TEXT = " ".join(f"{i} bottles of beer on the wall, {i} bottles of beer." for i in range(60))
LAYOUTS = {"one": [], "tp": ["--local", "2", "--tp", "2"], "pp": ["--local", "2", "--pp", "2"]}


def complete(server, prompt=TEXT, slot=None, headers=None, **members):
    body = {"prompt": prompt, "n_predict": 8, "temperature": 0, **members}
    if slot is not None:
        body["id_slot"] = slot
    status, answer = server.json("POST", "/completion", body, headers)
    assert status == 200, answer
    return answer


def act(server, action, slot=0, name="talk.bin", headers=None):
    return server.json("POST", f"/slots/{slot}?action={action}", {"filename": name}, headers)


class Slots(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-slots-")
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "slots")
        self.place = folder.name

    def serve(self, *words, folder=None, **how):
        server = serving.Server(2048, "--slot-save-path", folder or self.folder, *words, **how)
        self.addCleanup(server.process.kill)
        return server

    def refused(self, answer, status, code, message):
        self.assertEqual(answer[0], status, answer)
        self.assertEqual(answer[1]["error"]["code"], code, answer)
        self.assertIn(message, answer[1]["error"]["message"])
        self.assertNotIn(self.place, answer[1]["error"]["message"])

    def test_a_text_is_restored_after_a_restart_and_elsewhere(self):
        for name in LAYOUTS:
            with self.subTest(layout=name):
                server = self.serve(*LAYOUTS[name])
                first = complete(server, slot=3)
                self.assertEqual(first["id_slot"], 3)
                tokens = first["tokens_evaluated"] + first["tokens_predicted"]
                status, saved = act(server, "save", 3)
                self.assertEqual(status, 200, saved)
                self.assertEqual((saved["id_slot"], saved["filename"]), (3, "talk.bin"))
                self.assertEqual(saved["n_saved"], tokens // PAGE * PAGE)
                self.assertGreater(saved["timings"]["save_ms"], 0)
                files = sorted(os.listdir(self.folder))
                ranks = 1 if name == "one" else 2
                self.assertEqual(files, ["talk.bin", "talk.bin.rank1"][:ranks])
                self.assertEqual(saved["n_written"], sum(
                    os.path.getsize(os.path.join(self.folder, file)) for file in files))
                server.close()
                other = os.path.join(self.place, "other")
                shutil.move(self.folder, other)

                server = self.serve(*LAYOUTS[name], folder=other)
                status, back = act(server, "restore", 1)
                self.assertEqual(status, 200, back)
                self.assertEqual(back["n_restored"], saved["n_saved"])
                self.assertEqual(back["n_read"], saved["n_written"])
                self.assertGreater(back["timings"]["restore_ms"], 0)
                slot = server.json("GET", "/slots")[1][1]
                self.assertEqual(slot["n_prompt_tokens"], tokens)
                again = complete(server)
                self.assertEqual(again["id_slot"], 1)  # its text begins like the prompt
                self.assertEqual(again["content"], first["content"])
                whole = (first["tokens_evaluated"] - 1) // PAGE * PAGE
                self.assertEqual(again["tokens_cached"], whole)
                self.assertEqual(act(server, "save", 1, "more.bin")[1]["n_saved"],
                                 saved["n_saved"])
                server.close()
                shutil.rmtree(other)

    def test_a_salted_text_stays_within_its_salt(self):
        server = self.serve()

        def cached(**more):
            body = {"prompt": TEXT, "n_predict": 1, **more}
            status, answer = server.json("POST", "/completion", body)
            self.assertEqual(status, 200, answer)
            return answer["tokens_cached"]
        for _ in range(2):
            cached(cache_salt="a", id_slot=0)
        self.assertEqual(act(server, "save", 0)[0], 200)
        self.assertEqual(cached(), 0)
        server.close()
        for salt, other in (("a", None), (None, "a")):
            server = self.serve()
            body = {"filename": "talk.bin", "cache_salt": salt}
            status, back = server.json("POST", "/slots/0?action=restore", body)
            self.assertEqual(status, 200, back)
            self.assertEqual(cached(cache_salt=other), 0)
            self.assertGreater(cached(cache_salt=salt), PAGE)
            if salt is None:
                body["cache_salt"] = 5
                self.refused(server.json("POST", "/slots/0?action=restore", body), 400,
                             "invalid_type", "cache_salt")
            server.close()

    def test_the_list_says_what_slots_hold(self):
        server = self.serve("--max-seqs", "2")
        status, slots = server.json("GET", "/slots")
        self.assertEqual(status, 200)
        self.assertEqual([slot["id"] for slot in slots], [0, 1])
        self.assertEqual(slots[0]["n_ctx"], 2048)
        self.assertEqual([slot["is_processing"] for slot in slots], [False, False])
        self.assertNotIn("n_prompt_tokens", slots[0])
        answer = complete(server)
        slot = server.json("GET", "/slots")[1][answer["id_slot"]]
        self.assertEqual(answer["id_slot"], 0)
        self.assertEqual(slot["n_prompt_tokens"], answer["tokens_evaluated"])
        self.assertEqual(slot["next_token"]["n_decoded"], answer["tokens_predicted"])
        self.assertEqual(complete(server, "Something else.")["id_slot"], 1)
        self.assertEqual(complete(server, TEXT + " And then?")["id_slot"], 0)
        chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2, "id_slot": 1}
        self.assertEqual(server.json("POST", "/v1/chat/completions", chat)[0], 200)
        slot = server.json("GET", "/slots")[1][1]
        self.assertEqual(slot["next_token"]["n_decoded"], 2)
        erased = act(server, "erase", 1)[1]
        self.assertEqual(erased, {"id_slot": 1, "n_erased": slot["n_prompt_tokens"] + 2})
        self.assertEqual(act(server, "erase", 1)[1]["n_erased"], 0)
        self.assertEqual(act(server, "save", 1, "empty")[1]["n_saved"], 0)
        self.assertEqual(act(server, "restore", 1, "empty")[1]["n_restored"], 0)
        self.refused(server.json("POST", "/completion", {"prompt": "a", "id_slot": 2}), 400,
                     "invalid_value", "id_slot")
        server.close()

    def test_without_a_folder_the_error_names_the_flag(self):
        server = serving.Server(2048)
        self.addCleanup(server.process.kill)
        for action in ("save", "restore", "erase"):
            status, answer = act(server, action)
            self.assertEqual(status, 501)
            self.assertEqual(answer["error"]["type"], "not_supported_error")
            self.assertIn("--slot-save-path", answer["error"]["message"])
        self.assertEqual(len(server.json("GET", "/slots")[1]), 32)
        server.close()

    def test_hostile_names_and_numbers(self):
        server = self.serve()
        complete(server, slot=0)
        for name in ("", ".", "..", "../talk", "a/b", "/etc/passwd", "a\\b", ".hidden", "a\nb",
                     "a\0b", "a" * 201, "talk.rank1", "talk.part", "*", 7, None):
            for action in ("save", "restore"):
                status, answer = act(server, action, 0, name)
                self.assertEqual(status, 400, (name, answer))
                self.assertEqual(answer["error"]["param"], "filename", (name, answer))
        self.assertEqual(os.listdir(self.folder), [])
        for slot in ("-1", "32", "x", "1e3", "99999999999999999999"):
            self.assertEqual(act(server, "save", slot)[0], 400, slot)
        self.assertEqual(act(server, "erase", "")[0], 404)
        self.assertEqual(act(server, "")[0], 400)
        self.assertEqual(act(server, "delete")[0], 400)
        self.assertEqual(server.json("POST", "/slots/0?action=save", "[")[0], 400)
        self.assertEqual(server.json("PUT", "/slots/0?action=save", {})[0], 405)
        self.assertEqual(server.json("POST", "/slots", {})[0], 405)
        self.assertEqual(server.json("POST", "/slots/0/1?action=save", {})[0], 404)
        outside = os.path.join(self.place, "outside")
        pathlib.Path(outside).write_text("kept")
        os.symlink(outside, os.path.join(self.folder, "link"))
        self.assertNotEqual(act(server, "restore", 0, "link")[0], 200)
        act(server, "save", 0, "link")
        self.assertEqual(pathlib.Path(outside).read_text(), "kept")
        server.close()

    def test_damaged_and_foreign_files_are_named(self):
        server = self.serve()
        complete(server, slot=0)
        self.assertEqual(act(server, "save")[0], 200)
        path = pathlib.Path(self.folder, "talk.bin")
        good = path.read_bytes()
        self.refused(act(server, "restore", 0, "none"), 400, "file_not_found", "No such file")
        foreign = [b"", b"GGUF", bytes(len(good))]
        damaged = [good[:-1], good + b"0", good[:200]]
        for at in (20, 120, 140, 160, len(good) // 2, len(good) - 1):
            damaged.append(good[:at] + bytes([good[at] ^ 1]) + good[at + 1:])
        for content in foreign + damaged:
            path.write_bytes(content)
            self.refused(act(server, "restore"), 400, "file_damaged",
                         "not a file" if content in foreign else "damaged")
        path.write_bytes(good)
        self.assertEqual(act(server, "restore")[0], 200)
        server.close()
        server = self.serve("--kv-dtype", "q8_0")
        self.refused(act(server, "restore"), 400, "file_of_another_job", "KV type")
        server.close()
        model = serving.whole_model() if serving.model() != serving.whole_model() else None
        if model is not None:
            server = self.serve(of=model)
            self.refused(act(server, "restore"), 400, "file_of_another_job", "another model")
            server.close()

    def test_files_of_several_ranks_belong_together(self):
        words = ["--local", "2", "--tp", "2"]
        server = self.serve(*words)
        complete(server, slot=0)
        self.assertEqual(act(server, "save")[0], 200)
        rank = pathlib.Path(self.folder, "talk.bin.rank1")
        good = rank.read_bytes()
        # Rank 0's file is not one of rank 1, although it is of the same save.
        shutil.copy(os.path.join(self.folder, "talk.bin"), os.path.join(self.folder, "x"))
        shutil.copy(os.path.join(self.folder, "talk.bin"), os.path.join(self.folder, "x.rank1"))
        self.refused(act(server, "restore", 0, "x"), 400, "file_of_another_job", "rank 1")
        complete(server, "Another text. " + TEXT, slot=0)
        self.assertEqual(act(server, "save")[0], 200)
        rank.write_bytes(good)
        self.refused(act(server, "restore"), 400, "file_of_another_job", "rank 1")
        rank.unlink()
        self.refused(act(server, "restore"), 400, "file_not_found", "rank 1")
        self.assertEqual(len(complete(server)["content"]) > 0, True)
        server.close()

    def test_saving_destroys_no_other_file_and_no_text(self):
        server = self.serve()
        complete(server, slot=0)
        self.assertEqual(act(server, "save")[0], 200)
        path = pathlib.Path(self.folder, "talk.bin")
        good = path.read_bytes()
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.refused(act(server, "save", 5), 400, "file_of_another_job", "is empty now")
        self.assertEqual(path.read_bytes(), good)
        for name, file in (("notes", "notes"), ("film", "film.part")):
            foreign = pathlib.Path(self.folder, file)
            foreign.write_bytes(b"not Weft's")
            self.refused(act(server, "save", 0, name), 400, "file_of_another_job", "another name")
            self.assertEqual(foreign.read_bytes(), b"not Weft's")
        # Files that were replaced keep no space.
        for _ in range(6):
            self.assertEqual(act(server, "save")[0], 200)
            self.assertEqual(act(server, "restore")[0], 200)
        open_files = [os.readlink(fd) for fd in
                      pathlib.Path(f"/proc/{server.process.pid}/fd").iterdir() if fd.is_symlink()]
        self.assertLessEqual(sum("talk.bin (deleted)" in name for name in open_files), 1)
        server.close()

    def test_a_key_has_slots_and_files_of_its_own(self):
        keys = {}
        path = os.path.join(self.place, "keys")
        with open(path, "w", encoding="utf-8") as file:
            for name in ("one", "two"):
                made = subprocess.run([serving.PROGRAM, "key", "new", name], check=True,
                                      capture_output=True, text=True)
                file.write(made.stdout)
                secret = next(word for word in made.stderr.split() if word.startswith("weft-"))
                keys[name] = {"Authorization": f"Bearer {secret}"}
        os.chmod(path, 0o600)
        words = ["--api-key-file", path]
        server = self.serve(*words)
        complete(server, slot=0, headers=keys["one"])
        self.assertGreater(act(server, "save", 0, headers=keys["one"])[1]["n_saved"], 0)
        self.assertEqual(act(server, "save")[0], 401)
        self.assertEqual(server.call("GET", "/slots")[0], 401)
        other = server.json("GET", "/slots", headers=keys["two"])[1]
        self.assertFalse(any("n_prompt_tokens" in slot for slot in other))
        self.assertEqual(act(server, "restore", 0, headers=keys["two"])[0], 400)
        self.assertEqual(act(server, "save", 0, headers=keys["two"])[1]["n_saved"], 0)
        server.close()
        server = self.serve(*words)
        whole = act(server, "restore", 0, headers=keys["one"])[1]["n_restored"]
        self.assertGreater(whole, 10 * PAGE)
        self.assertEqual(complete(server, headers=keys["two"])["tokens_cached"], 0)
        self.assertGreater(complete(server, headers=keys["one"])["tokens_cached"], 10 * PAGE)
        server.close()

    def test_a_full_disk_is_an_error_and_loses_nothing(self):
        os.mkdir(self.folder, 0o700)
        if os.geteuid() != 0 or subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", self.folder],
                capture_output=True, check=False).returncode != 0:
            self.skipTest("cannot mount a small file system here")
        self.addCleanup(subprocess.run, ["umount", "-l", self.folder], check=True)
        server = self.serve()
        complete(server, TEXT[:1500], slot=0)
        status, saved = act(server, "save")
        self.assertEqual(status, 200, saved)
        long = complete(server, slot=0)
        self.refused(act(server, "save"), 500, "internal_error", "the disk is too full")
        self.assertEqual(os.listdir(self.folder), ["talk.bin"])
        self.assertEqual(act(server, "restore", 1)[1]["n_restored"], saved["n_saved"])
        self.assertEqual(complete(server, slot=0)["content"], long["content"])
        server.close()

    def test_the_files_have_a_limit(self):
        server = self.serve()
        complete(server, slot=0)
        size = act(server, "save")[1]["n_written"]
        server.close()
        server = self.serve("--slot-save-size", str(size * 3 // 2))
        complete(server, slot=0)
        self.assertEqual(act(server, "save")[0], 200)  # it replaces the older one
        self.refused(act(server, "save", 0, "other"), 507, "storage_full", "--slot-save-size")
        self.assertEqual(os.listdir(self.folder), ["talk.bin"])
        server.close()

    def test_files_of_several_ranks_replace_older_ones(self):
        """Ranks write beside the older files, at different times."""
        for layout in ("tp", "pp"):
            with self.subTest(layout):
                server = self.serve(*LAYOUTS[layout])
                complete(server, slot=0)
                self.assertEqual(act(server, "save")[0], 200)
                size = sum(max(1 << 20, path.stat().st_size)
                           for path in pathlib.Path(self.folder).iterdir())
                server.close()
                server = self.serve(*LAYOUTS[layout], "--slot-save-size", str(size))
                complete(server, slot=0)
                for _ in range(5):
                    self.assertEqual(act(server, "save")[0], 200)
                self.refused(act(server, "save", 0, "other"), 507, "storage_full",
                             "--slot-save-size")
                self.assertEqual(sorted(os.listdir(self.folder)), ["talk.bin", "talk.bin.rank1"])
                server.close()
                shutil.rmtree(self.folder)

    def test_a_lost_page_is_computed_again_before_it_is_saved(self):
        server = self.serve("--kv-tokens", "2048")
        first = complete(server, slot=0)
        for other in ("Another", "Still another"):
            complete(server, f"{other} text. {TEXT}", slot=1)
        tokens = first["tokens_evaluated"] + first["tokens_predicted"]
        self.assertEqual(act(server, "save")[1]["n_saved"], tokens // PAGE * PAGE)
        server.close()

    def test_a_folder_that_others_write_is_refused(self):
        os.mkdir(self.folder)
        os.chmod(self.folder, 0o777)
        ended = subprocess.run(
            [serving.PROGRAM, "serve", serving.model(), "--port", "0", "--slot-save-path",
             self.folder], capture_output=True, text=True, timeout=serving.PATIENCE, check=False)
        self.assertNotEqual(ended.returncode, 0)
        self.assertIn("chmod 700", ended.stderr)


if __name__ == "__main__":
    serving.main()
