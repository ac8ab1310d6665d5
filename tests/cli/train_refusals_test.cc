// A job that would train something other than requested is refused by name: dropout, adapters of
// other kinds. Equivalent jobs are accepted: windows. Also words from other programs.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/golden_models.h"
#include "support/hf_quantize.h"
#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "support/train_golden.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

class TrainRefusals : public testing::Test {
  protected:
    static constexpr const char* kData = "synthetic:random-tokens:25:8";
    Ran Train(const std::string& model, const Words& more) const {
        return RunTrain(Words{"train", model, "--data", kData, "--json", "-t", "1", "--lr", "1e-2",
                              "--dtype", "f32"} +
                        more);
    }
    static void ExpectRefused(const Ran& ran, const std::vector<std::string>& said) {
        EXPECT_NE(ran.status, 0);
        for (const std::string& word : said) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err << "\nlacks " << word;
        }
    }
    std::string Windowed(int window) const {
        const std::string path = dir_ / fmt::format("window{}.gguf", window);
        TinyFile file{.hyper = OddHyper(), .dtype = DType::kF32};
        if (window > 0) file.numbers["attention.sliding_window"] = window;
        WriteTinyGguf(path, file);
        return path;
    }

    test::TempDir dir_;
};

// The reference model must read the data's tokens.
TEST_F(TrainRefusals, AReferenceWithOtherTokens) {
    const std::string model = dir_ / "model.gguf", other = dir_ / "other.gguf";
    const std::string data = dir_ / "data.jsonl";
    TinyFile file{.hyper = TrainHyper(), .dtype = DType::kF32};
    WriteTinyGguf(model, file);
    file.tokenizer = tokenizer::TinyBytePair({"h e", "l l", "he ll", "t h", "t o"});
    WriteTinyGguf(other, file);
    std::ofstream(data) << R"({"prompt": "a", "chosen": "b", "rejected": "c"})"
                        << "\n";
    const Words both = {"train",     model, "--data", data, "--ref-model", other, "--steps", "1",
                        "--seq-len", "16",  "-t",     "1",  "--no-output"};
    for (const Words& loss :
         {Words{"--loss", "dpo"}, Words{"--loss", "grpo", "--beta", "0.1", "--group", "2",
                                        "--micro-batch", "2", "--reward-regex", "a"}}) {
        ExpectRefused(RunWeft(both + loss), {"--ref-model", "the same tokenizer"});
    }
}

// A window as long as the sequences gives the bits of no window. A shorter one is trained:
// recomputation gives the same bits, other ranks the same curve. The trained file keeps its window.
TEST_F(TrainRefusals, WindowsAreTrained) {
    const Words steps = {"--seq-len", "24", "--steps", "3", "--micro-batch", "2"};
    const auto plain = CurveOf(Train(Windowed(0), steps));
    ASSERT_EQ(plain.size(), 6u);
    EXPECT_EQ(CurveOf(Train(Windowed(24), steps)), plain);
    EXPECT_EQ(CurveOf(Train(Windowed(400), steps + Words{"--recompute", "full"})), plain);
    for (const int window : test::Some(std::vector{1, 5, 23}, 3, 1)) {
        const auto curve = CurveOf(Train(Windowed(window), steps));
        ASSERT_EQ(curve.size(), 6u) << window;
        EXPECT_NE(curve, plain) << window;
        EXPECT_EQ(CurveOf(Train(Windowed(window), steps + Words{"--recompute", "full"})), curve);
        const auto ranks = CurveOf(Train(Windowed(window), steps + Words{"--tp", "2"}));
        ASSERT_EQ(ranks.size(), curve.size()) << window;
        for (const size_t i : {0, 1}) {  // before the first update: other float32 sums
            EXPECT_FALSE(!(std::abs(ranks[i] - curve[i]) <= 2e-6 * std::abs(curve[i]))) << window;
        }
    }
    const std::string out = dir_ / "out";
    ASSERT_EQ(Train(Windowed(5), steps + Words{"--output-dir", out}).status, 0);
    const Ran shown = RunWeft({"inspect", out + "/model.gguf", "--json"});
    EXPECT_NE(shown.out.find("sliding_window"), std::string::npos) << shown.out;
}

// LongRoPE: a job whose sequences are longer than the original context of 16 tokens trains with the
// long factors, as `weft run --ctx` serves; a shorter one trains with the short factors.
TEST_F(TrainRefusals, LongRopeFollowsTheSequenceLength) {
    const auto phi = [&](float near, float far) {
        const std::string path = dir_ / fmt::format("phi{}-{}.gguf", near, far);
        TinyFile file{.hyper = OddHyper("phi3"), .dtype = DType::kF32};
        file.vectors = {{"rope_factors_short.weight", std::vector<float>(16, near)},
                        {"rope_factors_long.weight", std::vector<float>(16, far)}};
        file.numbers = golden::LongRope(16);
        WriteTinyGguf(path, file);
        return path;
    };
    for (const bool beyond : {false, true}) {
        const Words steps = {"--steps", "2", "--seq-len", beyond ? "24" : "16"};
        const auto curve = CurveOf(Train(phi(1, 8), steps));
        ASSERT_EQ(curve.size(), 4u);
        EXPECT_EQ(CurveOf(Train(phi(1, 1), steps)) == curve, !beyond);
        EXPECT_EQ(CurveOf(Train(phi(8, 8), steps)) == curve, beyond);
    }
}

// Training refuses the positions that `weft run --ctx` refuses. The default length of a sequence is
// the model's context where that is shorter than 1024.
TEST_F(TrainRefusals, SequencesBeyondTheContext) {
    const std::string data = "synthetic:random-tokens:41:8";
    TinyFile file{.hyper = OddHyper(), .dtype = DType::kF32};
    file.hyper.context = 32;
    for (const char* scaling : {"", "dynamic"}) {
        const std::string model = dir_ / fmt::format("short{}.gguf", scaling);
        if (*scaling != 0) {
            file.strings["rope.scaling.type"] = scaling;
            file.numbers["rope.scaling.factor"] = 4;
        }
        WriteTinyGguf(model, file);
        const Words train = {"train", model, "--data", data, "--steps", "1", "--json", "-t", "1"};
        const Words inspect = {"train", "data", "inspect", model, "--data", data, "--json"};
        const Words estimate = {"train", "estimate", model, "--machines", "rtx-4090", "--json"};
        for (const Words& command : {Training(train), inspect, estimate}) {
            const Ran ran = RunWeft(command + Words{"--seq-len", "33"});
            EXPECT_EQ(ran.status, 2) << command[1];
            ExpectRefused(ran, {"--seq-len 33", "32 tokens", "Ask for 32 or less"});
            EXPECT_EQ(RunWeft(command + Words{"--seq-len", "32"}).status, 0) << command[1];
        }
        EXPECT_EQ(LinesOf(RunTrain(train)).front().at("tokens"), 32);
        EXPECT_EQ(RunWeft(inspect).Json().at("sequence"), 32);
        EXPECT_EQ(RunWeft(estimate).Json().at("sequence"), 32);
    }
}

// A layout alone starts its ranks on this host, as for `weft run`. A different --local is refused.
TEST_F(TrainRefusals, LayoutFixesTheNumberOfRanks) {
    const std::string model = Windowed(0);
    const struct {
        Words layout;
        size_t ranks;
    } layouts[] = {{{}, 1},
                   {{"--tp", "2"}, 2},
                   {{"--pp", "2"}, 2},
                   {{"--dp", "3"}, 3},
                   {{"--tp", "2", "--dp", "2"}, 4},
                   {{"--tp", "2", "--local", "4"}, 4}};
    for (const auto& [layout, ranks] : layouts) {
        const auto lines = LinesOf(
            Train(model, layout + Words{"--steps", "1", "--seq-len", "24", "--micro-batch", "1"}));
        ASSERT_FALSE(lines.empty());
        EXPECT_EQ(lines.back().at("peak_rss_bytes").size(), ranks);
    }
    for (const Words& layout : {Words{"--pp", "2"}, Words{"--tp", "3"}}) {
        const std::string said =
            layout[0] + " " + layout[1] + " needs " + layout[1] + " or a multiple";
        const Words local = layout + Words{"--local", "1"};
        ExpectRefused(Train(model, local + Words{"--steps", "1"}),
                      {"--local 1 starts 1 rank, but " + said, "Remove --local"});
        ExpectRefused(RunWeft(Words{"run", model, "-p", "x", "-n", "1"} + local), {said});
        ExpectRefused(RunWeft(Words{"serve", model, "--port", "0"} + local), {said});
        ExpectRefused(RunWeft(Words{"logits", model, "--tokens", "1,2"} + local), {said});
    }
}

// An adapter has one format, and training makes no importance matrix.
TEST_F(TrainRefusals, ResultsThatTrainingDoesNotWrite) {
    const std::string model = Windowed(0);
    const Words out = {"--output-dir", dir_ / "out", "--steps", "1", "--seq-len", "24"};
    for (const Words& form : {Words{"--save-type", "Q4_0"}, Words{"--save-format", "hf"}}) {
        ExpectRefused(Train(model, out + form + Words{"--lora", "4"}),
                      {form[0] + " " + form[1] + " with --lora", "weft merge"});
    }
    const Ran ran = Train(model, out + Words{"--save-type", "IQ2_XXS"});
    ExpectRefused(ran, {"importance matrix", "--save-type F16", "weft quantize"});
    EXPECT_EQ(ran.out.find("\"step\""), std::string::npos) << ran.out;
    EXPECT_EQ(Train(model, out + Words{"--lora", "4", "--save-type", "F32"}).status, 0);
}

// Records above 16 MiB are reported as too long, not as missing, by training and inspection.
TEST_F(TrainRefusals, RecordsThatAreAllTooLong) {
    const std::string path = dir_ / "long.jsonl", model = Windowed(0);
    const nlohmann::json record = {{"text", std::string(17 << 20, 'a')}};
    WriteText(path, record.dump() + "\n");
    const Words inspect = {"train", "data", "inspect", model, "--data", path};
    const Words train = {"train", model, "--data", path, "--steps", "1", "-t", "1", "--no-output"};
    for (const Words& words : {inspect, train}) {
        ExpectRefused(RunWeft(words), {"record 1 (byte 0)", "at most 16777215", "--skip-bad"});
        ExpectRefused(RunWeft(words + Words{"--skip-bad"}),
                      {"no samples in the training part", "1 of 16777216 bytes and more"});
    }
}

// Paths travel to other ranks, and into adapter_config.json, as JSON.
TEST_F(TrainRefusals, PathsThatAreNotUtf8) {
    const std::string odd = dir_ / "caf\xe9", model = Windowed(0);
    std::filesystem::create_directories(odd);
    std::filesystem::copy_file(model, odd + "/tiny.gguf");
    const std::string data = odd + "/data.jsonl";
    WriteQuestions(data, 8);
    const Words rest = {"--seq-len", "24", "--steps", "1", "-t", "1"};
    const Words synthetic = {"--data", kData};
    const struct {
        Words words;
        const char* said;
    } cases[] = {
        {Words{model, "--no-output", "--data", data}, "--data"},
        {synthetic + Words{model, "--output-dir", odd}, "--output-dir"},
        {synthetic + Words{odd + "/tiny.gguf", "--no-output"}, "the model"},
        {synthetic + Words{model, "--no-output", "--lora-from", odd}, "--lora-from"},
        {synthetic + Words{model, "--output-dir", dir_ / "out", "--resume", odd}, "--resume"}};
    for (const auto& [words, said] : cases) {
        const Ran ran = RunWeft(Words{"train"} + words + rest);
        EXPECT_EQ(ran.status, 2) << ran.err;
        ExpectRefused(ran, {said, "is not UTF-8"});
    }
    // Paths include the working folder's name.
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(odd);
    const Ran inside = RunWeft(Words{"train", model, "--output-dir", "out"} + synthetic + rest);
    std::filesystem::current_path(before);
    EXPECT_EQ(inside.status, 2) << inside.err;
    ExpectRefused(inside, {"--output-dir", "is not UTF-8"});
}

TEST_F(TrainRefusals, DropoutOfAConfig) {
    const auto folder = [&](const std::string& key, const nlohmann::json& value) {
        const std::string path = dir_ / key;
        std::filesystem::create_directories(path);
        TrainGolden::WriteFolder(path);
        std::ifstream in(path + "/config.json");
        nlohmann::json config = nlohmann::json::parse(in);
        config[key] = value;
        WriteText(path + "/config.json", config.dump());
        return path;
    };
    const Words step = {"--seq-len", "16", "--steps", "1"};
    for (const char* key : {"attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop",
                            "attn_pdrop", "attn_dropout_prob", "dropout"}) {
        ExpectRefused(Train(folder(key, 0.1), step), {key, "0.1", "without dropout"});
        ExpectRefused(Train(folder(key, 0.1), step + Words{"--lora", "2"}), {key});
    }
    EXPECT_EQ(Train(folder("attention_dropout", 0.0), step).status, 0);
    // A user who sets it explicitly may train without dropout.
    const Ran refused = Train(folder("attention_dropout", 0.1), step);
    EXPECT_NE(refused.err.find("--dropout 0"), std::string::npos) << refused.err;
    const Ran without = Train(folder("attention_dropout", 0.1), step + Words{"--dropout", "0"});
    EXPECT_EQ(without.status, 0) << without.err;
    const Ran with = Train(folder("attention_dropout", 0.0), step + Words{"--dropout", "0.1"});
    EXPECT_EQ(with.status, 2) << with.err;
    EXPECT_EQ(Train(folder("classifier_dropout", 0.1), step).status, 0);
    // It affects only training.
    const auto logits = [&](double share) {
        const std::string path = folder("resid_pdrop", share);
        WriteText(path + "/tokenizer.json", SmallTokenizer());
        return RunWeft({"logits", path, "--tokens", "3,4,5", "-t", "1"});
    };
    const Ran with_dropout = logits(0.1);
    EXPECT_EQ(with_dropout.status, 0) << with_dropout.err;
    EXPECT_EQ(with_dropout.err.find("dropout"), std::string::npos) << with_dropout.err;
    EXPECT_EQ(with_dropout.out, logits(0.0).out);
}

TEST_F(TrainRefusals, AdaptersOfOtherKinds) {
    const std::string model = Windowed(0);
    const auto adapter = [&](const char* name,
                             const std::map<std::string, nlohmann::json>& config) {
        WriteTinyAdapter(dir_ / name, model, {.config = config});
        return dir_ / name;
    };
    const std::string merged = dir_ / "merged.gguf";
    const auto merge = [&](const std::string& folder) {
        return RunWeft({"merge", model, "--lora", folder, "-o", merged, "--force"});
    };
    for (const char* began : {"pissa", "pissa_niter_16", "olora", "corda", "lora_ga", "loftq"}) {
        const std::string folder = adapter(began, {{"init_lora_weights", began}});
        ExpectRefused(merge(folder), {"init_lora_weights", began});
        ExpectRefused(RunWeft({"logits", model, "--tokens", "3,4", "--lora", folder}),
                      {"init_lora_weights"});
        ExpectRefused(Train(model, {"--steps", "1", "--lora-from", folder}), {"init_lora_weights"});
    }
    ExpectRefused(merge(adapter("twice", {{"layer_replication", {{0, 2}, {1, 3}}}})),
                  {"layer_replication"});
    ExpectRefused(merge(adapter("blocks", {{"use_bdlora", {{"nblocks", 2}}}})), {"use_bdlora"});
    ExpectRefused(merge(adapter("arrow", {{"arrow_config", {{"top_k", 2}}}})), {"arrow_config"});
    ExpectRefused(merge(adapter("vera", {{"peft_type", "VERA"}})), {"VERA", "merge"});
    EXPECT_EQ(merge(adapter("converted", {{"init_lora_weights", true}})).status, 0);
}

// Equivalent adapters are accepted: tensor names show which modules a pattern means.
TEST_F(TrainRefusals, EqualAdaptersInOtherSpellings) {
    const std::string model = Windowed(0), merged = dir_ / "merged.gguf";
    const auto logits = [&](const char* name, const std::string& targets,
                            const std::map<std::string, nlohmann::json>& config) {
        WriteTinyAdapter(dir_ / name, model, {.targets = targets, .config = config});
        const Ran ran =
            RunWeft({"logits", model, "--tokens", "3,4", "--lora", dir_ / name, "-t", "1"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.out;
    };
    const std::string plain = logits("plain", "q_proj,v_proj", {});
    ASSERT_FALSE(plain.empty());
    EXPECT_EQ(logits("pattern", "q_proj,v_proj", {{"target_modules", ".*(q|v)_proj"}}), plain);
    EXPECT_EQ(logits("without", "q_proj,v_proj",
                     {{"target_modules", {"q_proj", "k_proj", "v_proj"}},
                      {"exclude_modules", {"k_proj"}}}),
              plain);
    EXPECT_EQ(logits("head", "q_proj,v_proj", {{"exclude_modules", {"lm_head"}}}), plain);
    EXPECT_EQ(logits("lower", "q_proj,v_proj", {{"peft_type", "lora"}, {"r", 8.0}}), plain);
    nlohmann::json layers;
    for (int64_t i = 0; i < OddHyper().layers; ++i) layers.push_back(i);
    EXPECT_EQ(logits("layers", "q_proj,v_proj", {{"layers_to_transform", layers}}), plain);
}

// Dropout does not matter without training; in training Weft reports that it has none.
TEST_F(TrainRefusals, DropoutOfAnAdapter) {
    const std::string model = Windowed(0), folder = dir_ / "dropped";
    WriteTinyAdapter(folder, model, {.config = {{"lora_dropout", 0.05}}});
    EXPECT_EQ(RunWeft({"logits", model, "--tokens", "3,4", "--lora", folder, "-t", "1"}).status, 0);
    const Words on = {"--seq-len", "24", "--steps", "1", "--lora-from", folder};
    ExpectRefused(Train(model, on), {"lora_dropout", "0.05", "--lora-dropout 0"});
    const Ran without = Train(model, on + Words{"--lora-dropout", "0"});
    EXPECT_EQ(without.status, 0) << without.err;
    const Ran with = Train(model, on + Words{"--lora-dropout", "0.1"});
    EXPECT_EQ(with.status, 2);
    ExpectRefused(with, {"--lora-dropout", "without dropout"});
}

TEST_F(TrainRefusals, AFileOfAnAdapterIsNoModel) {
    const std::string path = dir_ / "adapter.gguf";
    TinyFile file{.hyper = OddHyper(), .dtype = DType::kF32};
    file.strings["adapter.type"] = "lora";
    WriteTinyGguf(path, file);
    // (These files have the key after the architecture's name; the folder's words count.)
    ExpectRefused(RunWeft({"logits", Windowed(0), "--tokens", "3,4", "--lora", path}),
                  {"adapter.gguf", "folder", "GGUF"});
}

// ---- Words of other programs --------------------------------------------------------------------

TEST_F(TrainRefusals, UnderscoresOfFlagsAreDashes) {
    const std::string model = Windowed(0), out = dir_ / "out";
    const Ran ran =
        RunWeft({"train", model, "--data", kData, "--seq_len", "24", "--steps=1", "--micro_batch=2",
                 "--output_dir", out, "--save_type=F16", "--json", "--batch_size_per_device", "2"});
    EXPECT_EQ(ran.status, 2) << "twice the same flag";
    const Ran train = RunWeft({"train", model, "--data", kData, "--seq_len", "24", "--steps=1",
                               "--micro_batch=2", "--output_dir", out, "--save_type=F16"});
    EXPECT_EQ(train.status, 0) << train.err;
    EXPECT_TRUE(std::filesystem::exists(out + "/model.gguf"));
    const Ran logits = RunWeft({"logits", model, "--tokens", "3,4", "--no_such_flag"});
    EXPECT_EQ(logits.status, 2);
    ExpectRefused(logits, {"--no_such_flag"});
    const Ran run =
        RunWeft({"run", model, "-p", "--output_dir", "-n", "2", "--ignore_eos", "-t", "1"});
    EXPECT_EQ(run.status, 0) << run.err;
}

TEST_F(TrainRefusals, ABareNameOfTheHubIsHinted) {
    const auto before = std::filesystem::current_path();
    std::filesystem::current_path(dir_.path());
    for (const Words& command : {Words{"train", "Qwen/Qwen3-8B", "--data", kData, "--no-output"},
                                 {"run", "Qwen/Qwen3-8B", "-p", "a"},
                                 {"serve", "Qwen/Qwen3-8B"},
                                 {"inspect", "Qwen/Qwen3-8B"},
                                 {"logits", "Qwen/Qwen3-8B", "--tokens", "3"},
                                 {"tokenize", "Qwen/Qwen3-8B", "--text", "a"},
                                 {"quantize", "Qwen/Qwen3-8B", "x.gguf", "Q8_0"}}) {
        ExpectRefused(RunWeft(command), {"hf:Qwen/Qwen3-8B"});
    }
    ExpectRefused(RunWeft({"inspect", "unsloth/Qwen3-8B-GGUF:Q4_K_M"}),
                  {"hf:unsloth/Qwen3-8B-GGUF:Q4_K_M"});
    for (const char* path : {"./Qwen/x", "/Qwen/x", "models/x.gguf", "x.gguf"}) {
        const Ran ran = RunWeft({"inspect", path});
        EXPECT_NE(ran.status, 0);
        EXPECT_EQ(ran.err.find("hf:"), std::string::npos) << ran.err;
    }
    std::filesystem::current_path(before);
}

}  // namespace
}  // namespace weft::support
