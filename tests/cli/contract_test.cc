// JSON fields, exit statuses and refusals of commands, on which other programs rely.
#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

// Memory of a rank beyond weights and KV cache. A sanitizer's own memory does not count.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr uint64_t kBeyond = 2048ull << 20;
#else
constexpr uint64_t kBeyond = 120ull << 20;
#endif

using nlohmann::json;

std::set<std::string> Keys(const json& object) {
    std::set<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.insert(key);
    return keys;
}

class Contract : public testing::Test {
  protected:
    void SetUp() override {
        model_ = dir_ / "tiny.gguf";
        WriteTinyGguf(model_, {.hyper = OddHyper(), .dtype = DType::kQ8_0});
    }
    // Exits with this status and one line on standard error that contains all `words`.
    void ExpectRefused(const Words& arguments, int status, const Words& words) {
        SCOPED_TRACE(testing::PrintToString(arguments));
        const Ran ran = RunWeft(arguments);
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_EQ(ran.err.rfind("weft: error: ", 0), 0u) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
        for (const std::string& word : words) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << word << ": " << ran.err;
        }
    }

    test::TempDir dir_;
    std::string model_;
};

TEST_F(Contract, Run) {
    for (const Words& layout : {Words{}, Words{"--tp", "2"}, Words{"--pp", "2"}}) {
        const Ran ran = RunWeft(Words{"run", model_, "-p", "hello there", "-n", "12",
                                      "--ignore-eos", "-t", "1", "--json"} +
                                layout);
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.out, '\n'), 1);
        const json j = ran.Json();
        EXPECT_EQ(Keys(j), (std::set<std::string>{"text", "tokens", "prompt_tokens",
                                                  "prefill_tok_s", "decode_tok_s", "load_s",
                                                  "ranks", "all_reduce", "sampling", "seed"}));
        EXPECT_EQ(j["tokens"].size(), 12u);
        EXPECT_GT(j["prompt_tokens"], 3);
        EXPECT_GT(j["prefill_tok_s"], 0.0);
        EXPECT_GT(j["decode_tok_s"], 0.0);
        EXPECT_GT(j["load_s"], 0.0);
        ASSERT_EQ(j["ranks"].size(), layout.empty() ? 1u : 2u);
        for (size_t rank = 0; rank < j["ranks"].size(); ++rank) {
            const json& r = j["ranks"][rank];
            EXPECT_EQ(Keys(r), (std::set<std::string>{"rank", "host", "device", "hardware",
                                                      "rss_bytes", "weight_bytes", "kv_bytes",
                                                      "read_bytes", "received_bytes", "load_s"}));
            EXPECT_EQ(r["device"], "cpu");
            EXPECT_EQ(r["rank"], rank);
            const uint64_t weights = r["weight_bytes"], kv = r["kv_bytes"];
            EXPECT_GT(weights, 100'000u);
            EXPECT_GT(kv, 0u);
            EXPECT_LE(r["rss_bytes"].get<uint64_t>(), weights + kv + kBeyond);
            EXPECT_LE(r["read_bytes"].get<double>(), 1.05 * static_cast<double>(weights));
        }
        const bool tensor = layout == Words{"--tp", "2"};
        const json& cost = j["all_reduce"];
        std::set<std::string> keys = {"per_token", "p50_us", "p99_us"};
        if (tensor) keys.insert({"wire", "prompt_wire"});
        EXPECT_EQ(Keys(cost), keys);
        EXPECT_EQ(cost["per_token"], tensor ? 7 : 0);  // two per layer, and the embedding
        EXPECT_EQ(cost["p50_us"] > 0.0, tensor);
        EXPECT_GE(cost["p99_us"], cost["p50_us"]);
    }
}

TEST_F(Contract, RunStreamsTheTextOfItsJson) {
    const Words command = {"run", model_, "-p", "hello", "-n", "20", "--ignore-eos"};
    const Ran plain = RunWeft(command);
    ASSERT_EQ(plain.status, 0) << plain.err;
    EXPECT_EQ(plain.out,
              RunWeft(command + Words{"--json"}).Json()["text"].get<std::string>() + "\n");
    for (const char* word : {"prefill", "decode", "tok/s", "load", "rank 0"}) {
        EXPECT_NE(plain.err.find(word), std::string::npos) << word;
    }
}

TEST_F(Contract, RunTakesPromptsFromFiles) {
    std::ofstream(dir_ / "prompt.txt") << "hello there\n";
    const Words rest = {"-n", "5", "--json"};
    const json from_file = RunWeft(Words{"run", model_, "-f", dir_ / "prompt.txt"} + rest).Json();
    const json from_word = RunWeft(Words{"run", model_, "-p", "hello there"} + rest).Json();
    EXPECT_EQ(from_file["tokens"], from_word["tokens"]);
    EXPECT_EQ(from_file["prompt_tokens"], from_word["prompt_tokens"]);
}

TEST_F(Contract, RunInChatForm) {
    const json plain = RunWeft({"run", model_, "-p", "hi", "-n", "1", "--json"}).Json();
    const json chat = RunWeft({"run", model_, "-p", "hi", "-n", "1", "--chat", "--json"}).Json();
    // <|im_start|> user \n hi <|im_end|> \n <|im_start|> assistant \n, one token per byte
    EXPECT_EQ(plain["prompt_tokens"], 2);
    EXPECT_GT(chat["prompt_tokens"], 15);
}

TEST_F(Contract, RunSamplesBySeed) {
    const auto tokens = [&](const char* seed) {
        return RunWeft({"run",  model_,    "-p",           "a",
                        "-n",   "16",      "--ignore-eos", "--temp",
                        "1.5",  "--top-k", "100",          "--top-p",
                        "0.99", "--min-p", "0.001",        "--repeat-penalty",
                        "1.1",  "--seed",  seed,           "--json"})
            .Json()["tokens"];
    };
    const json one = tokens("1");
    EXPECT_EQ(one, tokens("1"));
    EXPECT_NE(one, tokens("2"));
}

TEST_F(Contract, RunStopsAtTexts) {
    const Words command = {"run", model_, "-p", "hello", "-n", "40", "--ignore-eos", "--json"};
    const std::string whole = RunWeft(command).Json()["text"];
    ASSERT_GT(whole.size(), 8u);
    // Finds text that is UTF-8 by itself: a run of ASCII.
    size_t at = 2;
    while (at < whole.size() && static_cast<signed char>(whole[at]) <= 0) ++at;
    ASSERT_LT(at, whole.size());
    const std::string stop = whole.substr(at, 1);
    const std::string cut =
        RunWeft(command + Words{"--stop", "no such text", "--stop", stop}).Json()["text"];
    EXPECT_EQ(cut, whole.substr(0, whole.find(stop)));
}

TEST_F(Contract, Bench) {
    const Words command = {"bench", model_, "-p", "16,8", "-n",   "4",
                           "-t",    "1",    "-r", "2",    "--tp", "1,2"};
    const json rows = RunWeft(command + Words{"-o", "json"}).Json();
    ASSERT_EQ(rows.size(), 6u);
    for (size_t i = 0; i < rows.size(); ++i) {
        const json& row = rows[i];
        for (const char* key :
             {"model_filename", "model_type", "model_size", "model_n_params", "n_threads",
              "backends",       "cpu_info",   "n_batch",    "n_ubatch",       "type_k",
              "type_v",         "n_prompt",   "n_gen",      "n_depth",        "test_time",
              "avg_ns",         "stddev_ns",  "avg_ts",     "stddev_ts",      "samples_ns",
              "samples_ts",     "tp",         "pp",         "transport"}) {
            EXPECT_TRUE(row.contains(key)) << key;
        }
        EXPECT_EQ(row["tp"], i < 3 ? 1 : 2);
        EXPECT_EQ(row["transport"], i < 3 ? "none" : "shm");
        EXPECT_EQ(row["n_prompt"], i % 3 == 0 ? 16 : i % 3 == 1 ? 8 : 0);
        EXPECT_EQ(row["n_gen"], i % 3 == 2 ? 4 : 0);
        EXPECT_EQ(row["samples_ns"].size(), 2u);
        const double mean = row["avg_ts"], nanoseconds = row["avg_ns"];
        EXPECT_GT(mean, 0);
        EXPECT_NEAR((row["samples_ts"][0].get<double>() + row["samples_ts"][1].get<double>()) / 2,
                    mean, 1e-6 * mean);
        EXPECT_GT(nanoseconds, 0);
    }
    EXPECT_EQ(RunWeft(command + Words{"--json"}).Json().size(), 6u);
    const Ran lines = RunWeft(command + Words{"-o", "jsonl"});
    EXPECT_EQ(std::ranges::count(lines.out, '\n'), 6);
    const Ran table = RunWeft(command + Words{"-o", "md"});
    EXPECT_NE(table.out.find(" pp16 |"), std::string::npos) << table.out;
    const Ran csv = RunWeft(command + Words{"-o", "csv"});
    EXPECT_EQ(std::ranges::count(csv.out, '\n'), 7);
    EXPECT_EQ(csv.out.rfind("build_commit,", 0), 0u);
}

// As `weft plan` predicts for the same machines, model and context.
TEST_F(Contract, BenchPredicts) {
    const Words bench = {"bench", model_, "-p", "16", "-n",   "4",
                         "-t",    "1",    "-r", "1",  "--tp", "1,2"};
    const Words command = bench + Words{"--json"};
    const json plain = RunWeft(command).Json();
    EXPECT_FALSE(plain[0].contains("predicted_ts"));
    const Words machines = {"--machines", "2xraspberry-pi-5,1gbe"};
    const json rows = RunWeft(command + machines).Json();
    ASSERT_EQ(rows.size(), 4u);
    const json planned =
        RunWeft(Words{"plan", model_, "--context", "2", "--json"} + machines).Json();
    for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_GT(rows[i]["predicted_ts"], 0.0);
        EXPECT_EQ(rows[i]["predicted_for"], machines[1]);
        if (rows[i]["n_gen"] == 0) continue;
        const std::string layout = i < 2 ? "tp1" : "tp2";
        const auto& layouts = planned["layouts"];
        const auto same = std::find_if(layouts.begin(), layouts.end(),
                                       [&](const json& l) { return l["layout"] == layout; });
        ASSERT_NE(same, layouts.end());
        EXPECT_DOUBLE_EQ(rows[i]["predicted_ts"].get<double>(), (*same)["tok_s"].get<double>());
    }
    // Machines with fewer ranks than the layout give no prediction.
    const json few = RunWeft(command + Words{"--machines", "raspberry-pi-5"}).Json();
    EXPECT_GT(few[0]["predicted_ts"], 0.0);
    EXPECT_TRUE(few[3]["predicted_ts"].is_null());
    const Ran table = RunWeft(bench + machines);
    EXPECT_NE(table.out.find(" predicted |"), std::string::npos) << table.out;
    ExpectRefused(command + Words{"--machines", "2xraspberry-pie"}, 2, {"raspberry-pi-5"});
}

TEST_F(Contract, LogitsAsJsonAndAsFile) {
    const Words command = {"logits", model_, "--tokens", "1,2,3", "--json"};
    const json last = RunWeft(command).Json();
    EXPECT_EQ(last["tokens"], json({1, 2, 3}));
    EXPECT_EQ(last["shape"], json({1, 267}));
    ASSERT_EQ(last["logits"].size(), 1u);
    EXPECT_EQ(last["logits"][0].size(), 267u);
    EXPECT_EQ(last["top"].size(), 10u);
    EXPECT_EQ(last["top"][0]["logit"],
              *std::max_element(last["logits"][0].begin(), last["logits"][0].end()));
    const json all = RunWeft(command + Words{"--all", "--npy", dir_ / "all.npy"}).Json();
    EXPECT_EQ(all["shape"], json({3, 267}));
    const Matrix matrix = ReadNpy(dir_ / "all.npy");
    ASSERT_EQ(matrix.rows, 3u);
    ASSERT_EQ(matrix.cols, 267u);
    for (size_t i = 0; i < 267; ++i) {
        EXPECT_EQ(matrix.Row(2)[i], last["logits"][0][i].get<float>());
    }
}

TEST_F(Contract, Tokenize) {
    const json j = RunWeft({"tokenize", model_, "--text", "the<|im_end|>", "--json"}).Json();
    EXPECT_EQ(j["pieces"], json({"t", "he", "<|im_end|>"}));
    EXPECT_EQ(j["tokens"].size(), 3u);
    const json plain =
        RunWeft({"tokenize", model_, "--text", "the<|im_end|>", "--no-special", "--json"}).Json();
    EXPECT_EQ(plain["tokens"].size(), 12u);
    std::ofstream(dir_ / "text.txt") << "hello";
    const json file =
        RunWeft({"tokenize", model_, "--file", dir_ / "text.txt", "--no-bos", "--json"}).Json();
    EXPECT_EQ(file["pieces"], json({"hell", "o"}));
}

// llama.cpp's ggml-vocab-*.gguf: metadata and no tensors.
TEST_F(Contract, AVocabularyAlone) {
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    writer.U32("llama.context_length", 128);
    WriteVocabulary(writer, 300);
    const std::string words = dir_ / "words.gguf";
    ASSERT_TRUE(WriteFile(words, writer.File()).ok());
    const json j = RunWeft({"tokenize", words, "--text", "the<|im_end|>", "--json"}).Json();
    EXPECT_EQ(j["pieces"], json({"t", "he", "<|im_end|>"}));
    EXPECT_EQ(RunWeft({"inspect", words, "--json"}).Json()["tensors"], json::array());
    std::ofstream(dir_ / "data.jsonl") << R"({"text": "the hello"})"
                                       << "\n";
    const json data =
        RunWeft({"train", "data", "inspect", words, "--data", dir_ / "data.jsonl", "--json"})
            .Json();
    EXPECT_EQ(data["train"]["usable"], 1);
    const Words text = {"-p", "a", "-n", "1"};
    ExpectRefused(Words{"run", words} + text, 1, {words, "without weights", "weft tokenize"});
    ExpectRefused({"serve", words, "--port", "0"}, 1, {words, "without weights"});
    ExpectRefused({"bench", words}, 1, {words, "without weights"});
    ExpectRefused({"quantize", words, dir_ / "out.gguf", "Q8_0"}, 1, {words, "without weights"});
    ExpectRefused({"train", words, "--data", dir_ / "data.jsonl", "--steps", "1", "--no-output"}, 1,
                  {words, "without weights"});
}

// Embeddings are padded: ids from the tokenizer's size up to the number of rows are valid and stand
// for no text.
TEST_F(Contract, RowsBeyondTheTokenizer) {
    const std::string padded = dir_ / "padded.gguf";
    WriteTinyGguf(padded, {.hyper = OddHyper(), .dtype = DType::kQ8_0, .vocabulary = 262});
    const Ran ran = RunWeft({"run", padded, "-p", "hello", "-n", "400", "--ignore-eos", "-t", "1",
                             "--temp", "50", "--seed", "3", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto tokens = ran.Json()["tokens"].get<std::vector<int>>();
    EXPECT_EQ(tokens.size(), 400u);
    // (At this temperature each of 267 rows is equally likely.)
    EXPECT_GT(*std::ranges::max_element(tokens), 263);
}

TEST_F(Contract, Perplexity) {
    std::ofstream text(dir_ / "text.txt");
    for (int i = 0; i < 60; ++i) text << "the hello number " << i * i << " is here. ";
    text.close();
    const Words command = {"perplexity", model_, dir_ / "text.txt", "--ctx", "128", "--json"};
    const json one = RunWeft(command).Json();
    // A random model predicts nothing: its perplexity is close to the vocabulary's size.
    EXPECT_GT(one["perplexity"], 50.0);
    EXPECT_LT(one["perplexity"], 3000.0);
    const double value = one["perplexity"];
    EXPECT_NEAR(RunWeft(command + Words{"--tp", "2"}).Json()["perplexity"], value, value * 0.005);
    EXPECT_NEAR(RunWeft(command + Words{"--prefill-chunk", "48"}).Json()["perplexity"], value,
                value * 0.005);
}

TEST_F(Contract, Inspect) {
    const json j = RunWeft({"inspect", model_, "--json"}).Json();
    EXPECT_EQ(j["tensors"].size(), 3u + 3u * 9u);
    EXPECT_EQ(j["tensors"][0]["name"], "token_embd.weight");
    EXPECT_EQ(j["tensors"][0]["type"], "Q8_0");
    EXPECT_EQ(j["tensors"][0]["shape"], json({256, 267}));
    EXPECT_EQ(j["metadata"][0]["key"], "general.architecture");
    const json program =
        RunWeft({"inspect", model_, "--program", "--tp", "2", "--json"}).Json()["program"];
    EXPECT_NE(program["text"].get<std::string>().find("all_reduce"), std::string::npos);
    EXPECT_GT(program["cost"]["decode"]["flops"], 1000);
    EXPECT_GT(program["cost"]["prefill"]["wire_bytes"], program["cost"]["decode"]["wire_bytes"]);
}

TEST_F(Contract, TraceOfSeveralRanks) {
    const std::string file = dir_ / "trace.json";
    const Ran ran = RunWeft(
        {"run", model_, "-p", "hello", "-n", "4", "--ignore-eos", "--tp", "2", "--trace", file});
    ASSERT_EQ(ran.status, 0) << ran.err;
    std::ifstream stream(file);
    const json trace = json::parse(stream, nullptr, false);
    ASSERT_FALSE(trace.is_discarded());
    std::set<int> ranks, tracks;
    for (const json& event : trace["traceEvents"]) {
        if (event["ph"] != "X") continue;
        ranks.insert(event["pid"].get<int>());
        tracks.insert(event["tid"].get<int>());
        EXPECT_GT(event["dur"], 0.0);
    }
    EXPECT_EQ(ranks, (std::set<int>{0, 1}));
    EXPECT_EQ(tracks, (std::set<int>{0, 1, 2}));
}

TEST_F(Contract, Version) {
    const json j = RunWeft({"--version", "--json"}).Json();
    for (const char* key : {"version", "compiler", "cpu", "kernels", "transports"}) {
        EXPECT_TRUE(j.contains(key)) << key;
    }
    EXPECT_EQ(RunWeft({"--version"}).out.rfind("weft ", 0), 0u);
}

TEST_F(Contract, HelpHasExamples) {
    for (const char* command : {"run", "bench", "logits", "tokenize", "perplexity", "inspect",
                                "models", "pull", "worker", "key", "plan"}) {
        const Ran ran = RunWeft({command, "--help"});
        EXPECT_EQ(ran.status, 0) << command;
        EXPECT_NE(ran.out.find("Examples:"), std::string::npos) << command;
        EXPECT_NE(RunWeft({"--help"}).out.find(std::string("  ") + command), std::string::npos);
    }
}

// An unset variable must not turn keys or encryption off, nor use the next word as a value.
TEST_F(Contract, EmptyPathsAreErrors) {
    for (const std::string flag :
         {"--api-key-file", "--tls-cert", "--tls-key", "--slot-save-path", "--cache-dir"}) {
        for (const Words& words : {Words{flag, ""}, Words{flag + "="}}) {
            const Ran ran = RunWeft(Words{"serve", "none.gguf"} + words + Words{"--port", "1"});
            EXPECT_EQ(ran.status, 2) << flag << ": " << ran.err;
            EXPECT_NE(ran.err.find(flag + ": the path is empty"), std::string::npos) << ran.err;
        }
    }
}

// The tables in docs/models.md equal the program's output.
TEST_F(Contract, ModelsAreDocumented) {
    std::ifstream file(support::TestData("/../../docs/models.md"));
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    const Ran ran = RunWeft({"models"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(ran.out.size(), 500u);
    EXPECT_NE(page.find(ran.out), std::string::npos) << "docs/models.md lacks this:\n" << ran.out;
    for (const json& family : RunWeft({"models", "--json"}).Json()) {
        EXPECT_NE(page.find(family["architecture"].get<std::string>()), std::string::npos);
    }
}

// A word selects architectures and models by name; unsupported ones are listed with what they need.
TEST_F(Contract, ModelsByName) {
    const Ran qwen = RunWeft({"models", "Qwen3.5"});
    EXPECT_EQ(qwen.status, 0) << qwen.err;
    for (const char* words : {"qwen35: Qwen 3.5", "qwen35moe: ", "qwen3.5-9b ", " 8.95 B ",
                              "weft run qwen3.5:9b\n", "qwen3.5-397b-a17b"}) {
        EXPECT_NE(qwen.out.find(words), std::string::npos) << words << " in " << qwen.out;
    }
    EXPECT_EQ(qwen.out.find("qwen3-8b"), std::string::npos) << qwen.out;
    const Ran kimi = RunWeft({"models", "kimi_k3"});
    EXPECT_NE(kimi.out.find("does not run yet; it needs gates by column"), std::string::npos);
    for (const json& each : RunWeft({"models", "kimi_k3", "--json"}).Json()) {
        EXPECT_EQ(each["runs"], false);
        EXPECT_EQ(each["needs"], "gates by column, blocks of residuals");
    }
    const Ran spaced = RunWeft({"models", "qwen 3.8"});
    EXPECT_NE(spaced.out.find("Qwen3.8-27B"), std::string::npos) << spaced.out;
    EXPECT_EQ(spaced.out.find("qwen3-8b"), std::string::npos) << spaced.out;
    EXPECT_EQ(RunWeft({"models", "deepseek-v4.1"}).out, RunWeft({"models", "DeepSeek V4.1"}).out);
    // Repositories of the Hub, and all of an owner.
    EXPECT_EQ(RunWeft({"models", "Qwen/"}).out, RunWeft({"models", "qwen"}).out);
    const Ran plain = RunWeft({"models", "qwen3.8-27b"});
    EXPECT_NE(plain.out.find("qwen3.8-27b "), std::string::npos) << plain.out;
    EXPECT_EQ(RunWeft({"models", "Qwen/Qwen3.8-27B"}).out, plain.out);
    const Ran typed = RunWeft({"models", "hf:unsloth/Qwen3-30B-A3B-Instruct-2507-GGUF:Q4_K_M"});
    EXPECT_NE(typed.out.find("qwen3-30b-a3b-2507 "), std::string::npos) << typed.err;
    const Ran refused = RunWeft({"models", "deepseek-ai/DeepSeek-V4.1", "--json"});
    EXPECT_EQ(refused.Json().at(0)["runs"], false) << refused.out;
    bool named = false;
    for (const json& each : RunWeft({"models", "qwen35", "--json"}).Json()) {
        for (const json& name : each["names"]) {
            named = named || name.value("short_name", "") == "qwen3.5:27b";
        }
    }
    EXPECT_TRUE(named);
    ExpectRefused({"models", "nosuchmodel"}, 1, {"nosuchmodel", "weft models"});
}

TEST_F(Contract, BadUsage) {
    ExpectRefused({}, 2, {"--help"});
    ExpectRefused({"dance"}, 2, {"dance"});
    ExpectRefused({"run"}, 2, {"MODEL"});
    ExpectRefused({"run", model_}, 2, {"-p"});
    ExpectRefused({"run", model_, "-p", "a", "-f", "b"}, 2, {"-p", "-f"});
    ExpectRefused({"run", model_, "-p", "a", "--bogus"}, 2, {"--bogus"});
    ExpectRefused({"run", model_, "-p", "a", "--temp", "-1"}, 2, {"temp", "-1"});
    ExpectRefused({"run", model_, "-p", "a", "--kv-dtype", "q2"}, 2, {"q2", "f16"});
    ExpectRefused({"run", model_, "-p", "a", "--transport", "pigeon"}, 2, {"pigeon", "shm"});
    ExpectRefused({"run", model_, "-p", "a", "--hosts", "h:1"}, 2, {"key"});
    ExpectRefused({"run", model_, "-p", "hello there", "--ctx", "3"}, 2, {"--ctx"});
    ExpectRefused({"logits", model_, "--tokens", "1,999"}, 2, {"999", "266"});
    ExpectRefused({"bench", model_, "-o", "xml"}, 2, {"xml", "jsonl"});
    ExpectRefused({"bench", "synthetic:gpt-9"}, 2, {"gpt-9", "smollm2-135m"});
    ExpectRefused({"worker"}, 2, {"--listen", "--key-file"});
}

TEST_F(Contract, ErrorsAsJson) {
    const Ran ran = RunWeft({"run", "no-such-file.gguf", "-p", "a", "--json"});
    EXPECT_EQ(ran.status, 1);
    const json j = ran.Json();
    EXPECT_EQ(j["exit_status"], 1);
    EXPECT_NE(j["error"].get<std::string>().find("no-such-file.gguf"), std::string::npos);
    EXPECT_NE(ran.err.find("no-such-file.gguf"), std::string::npos);
    EXPECT_EQ(RunWeft({"run", "--json"}).Json()["exit_status"], 2);
}

// An error after a part of the result leaves one JSON document.
TEST_F(Contract, ErrorsAmidJson) {
    const Words bench = {"bench", model_, "-p", "4", "-n",         "0",
                         "-r",    "1",    "-t", "1", "--no-warmup"};
    // (The model has 3 layers.)
    const Ran ran = RunWeft(bench + Words{"--pp", "1,4", "--json"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    const json rows = ran.Json();
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0]["n_prompt"], 4);
    EXPECT_EQ(rows[1]["exit_status"], 1);
    EXPECT_EQ(RunWeft(bench + Words{"--pp", "1,4", "-o", "json"}).Json().size(), 1u);
    EXPECT_EQ(RunWeft(bench + Words{"--pp", "4", "--json"}).Json()["exit_status"], 1);
    EXPECT_EQ(RunWeft(bench + Words{"--pp", "4", "-o", "json"}).Json(), json::array());
    ExpectRefused(bench + Words{"--json", "-o", "csv"}, 2, {"--json", "-o csv"});
    ExpectRefused(bench + Words{"--pp", "1,2", "--trace", dir_ / "trace.json"}, 2, {"--trace"});
}

TEST_F(Contract, ErrorsAsJsonLogs) {
    for (const Words& words :
         {Words{"serve", "no-such-file.gguf"}, Words{"serve", model_, "--kv-dtype", "q2"}}) {
        const Ran ran = RunWeft(words + Words{"--log-format", "json"});
        const json line = json::parse(ran.err);
        EXPECT_EQ(line["level"], "error");
        EXPECT_FALSE(line["message"].get<std::string>().starts_with("weft: ")) << ran.err;
    }
}

// Requests that can't work are refused before any weight is read.
TEST_F(Contract, RefusedBeforeLoading) {
    const std::string other = dir_ / "other.gguf";
    WriteTinyGguf(other, {.hyper = OddHyper(), .architecture = "rwkv7"});
    ExpectRefused({"run", other, "-p", "a"}, 1, {"rwkv7", "llama", "qwen2", "qwen3", other});
    ExpectRefused({"run", model_, "-p", "a", "--tp", "2", "--local", "3"}, 2, {"3"});
    ExpectRefused({"run", model_, "-p", "a", "--pp", "4"}, 1, {"4", "3"});
    ExpectRefused({"run", model_, "-p", "a", "--tp", "2", "--tensor-split", "1,2,3,4"}, 2, {"4"});
    const std::string endless = dir_ / "endless.gguf";
    model::Hyper hyper = OddHyper();
    hyper.context = 1 << 30;
    WriteTinyGguf(endless, {.hyper = hyper});
    ExpectRefused({"run", endless, "-p", "a", "--ctx", "1073741824", "--tp", "2"}, 1,
                  {"memory", "rank 0", "rank 1", "MiB", "--ctx"});
}

// A server's context is a whole number of pages of 64 tokens, but never more than the model's.
TEST_F(Contract, AServersContextEndsWithTheModels) {
    const std::string model = dir_ / "thousand.gguf";
    model::Hyper hyper = OddHyper();
    hyper.context = 1000;
    WriteTinyGguf(model, {.hyper = hyper});
    for (const auto& [asked, context] :
         {std::pair{0, 1000}, std::pair{1000, 1000}, std::pair{990, 1000}, std::pair{100, 128}}) {
        Words command = {"serve", model, "--port", "0", "-t", "1", "--json"};
        if (asked > 0) command = command + Words{"--ctx", std::to_string(asked)};
        Weft server(command);
        test::Prints(server, "\n");
        ::kill(server.pid(), SIGTERM);
        const Ran ran = server.Wait(kPatienceMs);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.Json().value("ctx", 0), context) << asked;
    }
}

// Every command with --ctx has the same bound and message.
TEST_F(Contract, RefusesAContextBeyondTheModels) {
    const std::string text = dir_ / "text.txt", yarn = dir_ / "yarn.gguf";
    std::ofstream(text) << std::string(4000, 'a');
    WriteTinyGguf(yarn, {.hyper = OddHyper("qwen3"),
                         .numbers = {{"rope.scaling.factor", 3}},
                         .strings = {{"rope.scaling.type", "yarn"}}});
    for (const auto& [model, most] : {std::pair{model_, 512}, std::pair{yarn, 3 * 512}}) {
        const std::vector<Words> commands = {{"run", model, "-p", "a", "-n", "1"},
                                             {"bench", model, "-p", "1", "-n", "1", "-r", "1"},
                                             {"perplexity", model, text},
                                             {"logits", model, "--tokens", "1"},
                                             {"serve", model, "--port", "0"}};
        for (const Words& command : commands) {
            for (const int ctx : test::Some(std::vector{most + 1, 10'000'000}, 2)) {
                const std::string asked = fmt::format("--ctx {}", ctx);
                ExpectRefused(command + Words{"--ctx", std::to_string(ctx)}, 2,
                              {asked + ": the model's trained context",
                               fmt::format("is {} tokens. Ask for {} or less", most, most)});
            }
            if (command[0] == "serve") continue;  // it would start to serve
            const Ran all = RunWeft(command + Words{"--ctx", std::to_string(most)});
            EXPECT_EQ(all.status, 0) << command[0] << ": " << all.err;
        }
    }
    // A prompt's length has the same bound, with or without --ctx.
    ExpectRefused({"run", model_, "--raw", "-p", std::string(600, 'x')}, 2,
                  {"trained context of 512 tokens", "Shorten the prompt"});
}

TEST_F(Contract, RefusesQuantizationsItLacks) {
    // Changes the type of the first matrix to Q8_1 (9), which Weft's table lacks.
    std::ifstream in(model_, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::string name = "token_embd.weight";
    const size_t at = bytes.find(name) + name.size() + 4 + 2 * 8;
    ASSERT_LT(at, bytes.size());
    bytes[at] = 9;
    std::ofstream(dir_ / "q8_1.gguf", std::ios::binary) << bytes;
    ExpectRefused({"run", dir_ / "q8_1.gguf", "-p", "a"}, 1,
                  {"token_embd.weight", "Q4_K", dir_ / "q8_1.gguf"});
}

TEST_F(Contract, InterruptEndsAllRanksAndKeepsTheText) {
    for (const char* tp : {"1", "3"}) {
        Weft weft({"run", model_, "-p", "hello", "-n", "400", "--ignore-eos", "--tp", tp, "-t", "1",
                   "--verify"});
        test::Until([&] { return weft.Out().size() >= 5; });
        ::kill(weft.pid(), SIGINT);
        const Ran ran = weft.Wait(10'000);
        EXPECT_EQ(ran.status, 130) << ran.err;
        EXPECT_EQ(ran.err, "weft: stopped by the user\n");
        EXPECT_GE(ran.out.size(), 5u);
    }
}

}  // namespace
}  // namespace weft::support
