"""Makes the models, data and keys that the documents' commands name. The second machine
(`second:7000`) is a worker on this one.

Every model is models/abacus or made from it, except the model that ./quickstart downloads, if it is
present. HOME and all caches are in the test's own folder.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile

SMALL = "SmolLM2-135M-Instruct.Q4_1.gguf"
# Placeholders for names that the reader chooses.
STANDINS = {"MODEL": "model.gguf", "FILE": "qca.jsonl", "F": "qca.jsonl", "KEY": "weft.key",
            "D": "trained-{}"}  # another one each time
# Programs that need not be here, and what they are called where several go by the name.
PROGRAMS = {"curl": "curl", "mpirun": "mpirun.openmpi", "openssl": "openssl"}
QUESTIONS = [("What is 47 + 38?", "85"), ("Is 318 even or odd?", "even"),
             ("What comes after 399?", "400"), ("7 x 8 = ?", "56")]
# As in docs/train.md.
JUDGE = """import json, sys
for line in sys.stdin:
    text = json.loads(line)["completion"]
    print(json.dumps({"reward": -len(text) / 100}), flush=True)
"""
LAB = {"pool": "unified", "wire": "roce", "memory": "120 GiB, guessed: a test",
       "bandwidth": "215 GB/s, measured: a test", "compute": "59 TFLOP/s, data sheet: a test",
       "watts_busy": "120 W, data sheet: a test", "price": "2000 EUR, guessed: a test"}
DS_CONFIG = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1,
             "zero_optimization": {"stage": 1},
             "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Kit:
    def __init__(self, weft, root, packages):
        self.root = pathlib.Path(root).resolve()
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="weft-docs-"))
        self.home, self.count = self.scratch / "home", 0
        self.port, self.worker_port = free_port(), free_port()
        (self.home / ".cache/weft").mkdir(parents=True)
        (self.scratch / "bin").mkdir()
        (self.scratch / "bin/weft").symlink_to(pathlib.Path(weft).resolve())
        self.abacus = self.root / "models/abacus/model.gguf"
        small = os.environ.get("WEFT_MODEL") or os.path.expanduser("~/.cache/weft/" + SMALL)
        (self.home / ".cache/weft" / SMALL).symlink_to(
            small if os.path.exists(small) else self.abacus)
        self.packages = packages if packages and os.path.isdir(packages) else None
        # Commands use no network, and none of the caller's settings.
        kept = {name: os.environ[name] for name in ("LANG", "LC_ALL", "TMPDIR") if
                name in os.environ}
        self.environment = kept | {
            "HOME": str(self.home), "PATH": f"{self.scratch / 'bin'}:{os.environ['PATH']}",
            "HF_HUB_OFFLINE": "1", "PYTHONPATH": self.packages or "",
            # Open MPI: as root, and more ranks than cores.
            "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
            "OMPI_MCA_rmaps_base_oversubscribe": "1"}

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def weft(self, folder, *words):
        subprocess.run(["weft", *words], cwd=folder, env=self.environment, check=True, timeout=300,
                       capture_output=True, text=True)

    def next(self):
        self.count += 1
        return self.count

    def folder(self, text):
        """A new folder with the files that a block's text names."""
        folder = self.scratch / str(self.next())
        folder.mkdir()
        (folder / "models").symlink_to(self.root / "models")
        (folder / "bench").symlink_to(self.root / "bench")
        (folder / "build").mkdir()
        (folder / "build/weft").symlink_to(self.scratch / "bin/weft")
        for name in ("model.gguf", "big.gguf", "small.gguf", "model-f16.gguf", "model-q4.gguf"):
            (folder / name).symlink_to(self.abacus)
        self.write_data(folder)
        for adapter in re.findall(r"(?<==)adapters/(\w+)", text):
            self.weft(folder, "train", "model.gguf", "--data", "qca.jsonl", "--lora", "4",
                      "--steps", "1", "--output-dir", f"adapters/{adapter}")
        if re.search(r"Qwen3-8B-GGUF|qwen3:8b", text):
            self.hub_model("Qwen/Qwen3-8B-GGUF", "Qwen3-8B-Q4_K_M.gguf")
        for name in re.findall(r"~/models/([\w.-]+)", text):
            self.hugging_face_folder(self.home / "models" / name)
        return folder

    def write_data(self, folder):
        rows = [{"question": q, "answer": a} for q, a in QUESTIONS]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / "qca.jsonl").write_text(lines)
        (folder / "train.jsonl").write_text(lines)
        pairs = [{"prompt": q, "chosen": a, "rejected": "It is " + a} for q, a in QUESTIONS]
        (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
        prompts = [{"prompt": q, "answer": 85 + i} for i, (q, _) in enumerate(QUESTIONS)]
        (folder / "prompts.jsonl").write_text("".join(json.dumps(p) + "\n" for p in prompts))
        texts = [{"anchor": q, "positive": a} for q, a in QUESTIONS]
        (folder / "texts.jsonl").write_text("".join(json.dumps(t) + "\n" for t in texts))
        classes = [{"text": q, "label": i % 3} for i, (q, _) in enumerate(QUESTIONS)]
        (folder / "classes.jsonl").write_text("".join(json.dumps(c) + "\n" for c in classes))
        (folder / "judge.py").write_text(JUDGE)
        (folder / "article.txt").write_text("What is 47 + 38?")
        (folder / "ds.json").write_text(json.dumps(DS_CONFIG))
        (folder / "my").mkdir()
        shutil.copy(self.root / "models/abacus/config.json", folder / "my")
        (folder / "lab.json").write_text(json.dumps(LAB))
        (folder / "weft.key").write_text("a key of the documents' test\n")
        (folder / "weft.key").chmod(0o600)

    def hub_model(self, repository, name):
        """The repository in the Hub's cache folder, as if `name` had been downloaded; its content
        is Abacus."""
        folder = self.home / ".cache/huggingface/hub"
        folder /= "models--" + repository.replace("/", "--")
        commit, content = "c" * 40, hashlib.sha256(self.abacus.read_bytes()).hexdigest()
        for path in ("refs", "blobs", "snapshots/" + commit):
            (folder / path).mkdir(parents=True, exist_ok=True)
        (folder / "refs/main").write_text(commit)
        shutil.copy(self.abacus, folder / "blobs" / content)
        link = folder / "snapshots" / commit / name
        link.unlink(missing_ok=True)
        link.symlink_to(f"../../blobs/{content}")

    def hugging_face_folder(self, path):
        if path.exists():
            return
        work = self.scratch / "folder"
        work.mkdir()
        self.write_data(work)
        self.weft(work, "train", str(self.abacus), "--data", "qca.jsonl", "--steps", "1",
                  "--save-format", "hf", "--output-dir", "out")
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(work / "out/model", path)
        shutil.rmtree(work)

    def missing(self, line):
        """A third-party program that a command needs and this machine lacks, or None."""
        program = PROGRAMS.get(line.split()[0])
        return None if program is None or shutil.which(program) else program

    def local(self, line, language):
        """A command as it runs here, with placeholders and ports replaced."""
        line = line.replace("127.0.0.1:8080", f"127.0.0.1:{self.port}")
        if language == "python":
            return line
        line = re.sub(r"(?<![\w./:-])(?:%s)(?![\w./:-])" % "|".join(STANDINS),
                      lambda match: STANDINS[match[0]].format(self.next()), line)
        line = re.sub("^mpirun ", PROGRAMS["mpirun"] + " ", line.removesuffix("&").rstrip())
        line = re.sub(r"(?:0\.0\.0\.0|127\.0\.0\.1|second):7000",
                      f"127.0.0.1:{self.worker_port}", line)
        if re.match(r"(build/)?weft serve ", line) and "--port" not in line:
            line += f" --port {self.port}"
        return line
