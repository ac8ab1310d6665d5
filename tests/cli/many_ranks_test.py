"""The start and the exchanges of 128 ranks on one machine: training of adapters on 80 layers, and a
server that is asked for /metrics. The model has the tensors of a Llama of 70B, each tiny.

    many_ranks_test.py WEFT ABACUS_FOLDER [UNITTEST ARGUMENT...]

Nightly only: it takes minutes and some GB of memory.
"""
import array
import http.client
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from nightly import nightly_only  # noqa: E402
from limits import limit  # noqa: E402

RANKS = 128
LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD, VOCAB = 80, 64, 96, 4, 2, 16, 576
PATIENCE = 1800


def shapes():
    yield "model.embed_tokens.weight", (VOCAB, HIDDEN)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", (HIDDEN,)
        yield at + "post_attention_layernorm.weight", (HIDDEN,)
        for name, rows in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield at + f"self_attn.{name}_proj.weight", (rows * HEAD, HIDDEN)
        yield at + "self_attn.o_proj.weight", (HIDDEN, HEADS * HEAD)
        yield at + "mlp.gate_proj.weight", (FFN, HIDDEN)
        yield at + "mlp.up_proj.weight", (FFN, HIDDEN)
        yield at + "mlp.down_proj.weight", (HIDDEN, FFN)
    yield "model.norm.weight", (HIDDEN,)


def write_model(folder, tokenizer):
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
              "intermediate_size": FFN, "num_hidden_layers": LAYERS,
              "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": HEAD,
              "vocab_size": VOCAB, "max_position_embeddings": 512, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": True,
              "eos_token_id": 0}
    (folder / "config.json").write_text(json.dumps(config))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((tokenizer / name).read_bytes())
    header, data = {}, bytearray()
    for name, shape in shapes():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        floats = array.array("f", [0.01] * count).tobytes()
        header[name] = {"dtype": "F32", "shape": shape,
                        "data_offsets": [len(data), len(data) + len(floats)]}
        data += floats
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


@nightly_only
class ManyRanks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="weft-many-")
        cls.model = pathlib.Path(cls.folder.name) / "llama80"
        cls.model.mkdir()
        write_model(cls.model, pathlib.Path(ABACUS))

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def weft(self, *words):
        ran = subprocess.run([WEFT, *map(str, words)], capture_output=True, text=True,
                             timeout=PATIENCE)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def test_training_starts_and_takes_a_step(self):
        out = self.weft("train", self.model, "--lora", "4", "--data",
                        "synthetic:random-tokens:16:256", "--seq-len", "16", "--micro-batch", "1",
                        "--steps", "1", "--no-output", "--local", RANKS, "--threads", "1",
                        "--device", "cpu", "--timeout-ms", int(60_000 * limit(1)), "--json")
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertTrue([line for line in lines if line.get("step") == 1 and "loss" in line], out)

    def test_a_server_survives_its_metrics(self):
        words = [WEFT, "serve", str(self.model), "--local", str(RANKS), "--tp", "2", "--pp",
                 str(RANKS // 2), "--threads", "1", "--device", "cpu", "--ctx", "512", "--port",
                 "0", "--json", "--timeout-ms", str(int(60_000 * limit(1)))]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            try:
                port = json.loads(server.stdout.readline())["port"]
                for _ in range(2):  # more all-reduces than a report has quantiles
                    answer = self.ask(port, "POST", "/v1/completions", json.dumps(
                        {"prompt": "what is 1 + 1", "max_tokens": 100, "temperature": 0,
                         "ignore_eos": True}))
                    self.assertEqual(json.loads(answer)["usage"]["completion_tokens"], 100)
                    self.assertIn(b"weft:", self.ask(port, "GET", "/metrics"))
            finally:
                server.terminate()
            self.assertEqual(server.wait(PATIENCE), 0)

    def ask(self, port, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.request(method, path, body)
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        text = answer.read()
        connection.close()
        return text


if __name__ == "__main__":
    WEFT, ABACUS = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
