// weft train --sample: a model in training gives the text of weft run with the same weights, in any
// layout; shown on the terminal, in --json and in TensorBoard.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainSample : public testing::Test {
  protected:
    void SetUp() override {
        WriteQuestions(data_, 24);
        Write(false);
    }
    void Write(bool tied) const {
        model::Hyper hyper = OddHyper();
        hyper.layers = 5;
        hyper.tied = tied;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    }
    Words Command(const Words& more) const {
        return Words{"train",   model_, "--data", data_, "--seq-len", "96",
                     "--dtype", "f32",  "-t",     "1",   "--lr",      "1e-3"} +
               more;
    }
    // Prompts and texts by step.
    using Samples = std::map<int64_t, std::vector<std::pair<std::string, std::string>>>;
    Samples SamplesOf(const Words& more) const {
        Samples samples;
        for (const json& line : LinesOf(RunTrain(Command(Words{"--json"} + more)))) {
            if (!line.contains("sample")) continue;
            const json& sample = line.at("sample");
            samples[line.at("step")].emplace_back(sample.at("prompt"), sample.at("text"));
        }
        return samples;
    }

    void ExpectTheSame(const std::vector<Words>& layouts) const {
        const Samples one = SamplesOf(prompts_ + Words{"--micro-batch", "4"});
        ASSERT_EQ(one.size(), 2u);
        for (const Words& layout : layouts) {
            SCOPED_TRACE(testing::PrintToString(layout));
            EXPECT_EQ(SamplesOf(prompts_ + layout), one);
        }
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
    const Words prompts_ = {
        "--sample", "it is aa\nwhich a\n", "--sample", "which",           "--steps",
        "4",        "--sample-every",      "2",        "--sample-tokens", "8"};
};

TEST_F(TrainSample, TheTextIsThatOfTheModelThatIsWritten) {
    const std::string out = dir_ / "out";
    const Samples samples = SamplesOf(
        prompts_ + Words{"--micro-batch", "4", "--output-dir", out, "--save-type", "F32"});
    ASSERT_EQ(samples.size(), 2u);
    ASSERT_TRUE(samples.contains(2) && samples.contains(4));
    EXPECT_NE(samples.at(2), samples.at(4)) << "nothing was learnt in between";
    for (const auto& [prompt, text] : samples.at(4)) {
        const Ran ran = RunWeft({"run", out + "/model.gguf", "-p", prompt, "-n", "8", "-t", "1",
                                 "--kv-dtype", "f32", "--json"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(json::parse(ran.out).at("text").get<std::string>(), text);
        EXPECT_FALSE(text.empty());
    }
}

TEST_F(TrainSample, AllLayoutsSayTheSame) {
    std::vector<Words> layouts = {
        {"--local", "3", "--micro-batch", "4", "--tp", "3", "--tensor-split", "3,2,2"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "3",
         "--overlap", "on"}};
    if (test::Nightly()) {
        layouts.push_back({"--local", "2", "--micro-batch", "4", "--tp", "2", "--sequence-parallel",
                           "on", "--zero", "1"});
        layouts.push_back({"--local", "2", "--micro-batch", "2", "--zero", "3"});
        layouts.push_back({"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"});
    }
    ExpectTheSame(layouts);
}

TEST_F(TrainSample, StagesInTurnsAndTiedEmbeddingsSayTheSame) {
    SKIP_TO_NIGHT_UNLESS(false);
    Write(true);
    ExpectTheSame({{"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2",
                    "--virtual-stages", "2"},
                   {"--local", "4", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2",
                    "--virtual-stages", "2", "--tp", "2"}});
}

TEST_F(TrainSample, AdaptersGenerateWhatTheyLearned) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words lora = prompts_ + Words{"--lora", "4", "--lora-alpha", "256", "--micro-batch", "4"};
    const std::string out = dir_ / "adapter";
    const Samples one = SamplesOf(lora + Words{"--output-dir", out});
    ASSERT_EQ(one.size(), 2u);
    EXPECT_NE(one.at(2), one.at(4));
    EXPECT_EQ(SamplesOf(lora + Words{"--local", "2", "--tp", "2"}), one);
    for (const auto& [prompt, text] : one.at(4)) {
        const Ran ran = RunWeft({"run", model_, "--lora", out, "-p", prompt, "-n", "8", "-t", "1",
                                 "--kv-dtype", "f32", "--json"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(json::parse(ran.out).at("text").get<std::string>(), text);
    }
}

// Training with samples equals training without, to the bit.
TEST_F(TrainSample, NothingIsLearntFromSamples) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto curve = [&](const Words& more) {
        return CurveOf(RunTrain(
            Command(Words{"--json", "--steps", "6", "--micro-batch", "2", "--local", "2"} + more)));
    };
    const auto without = curve({});
    ASSERT_EQ(without.size(), 12u);  // losses and norms
    EXPECT_EQ(curve({"--sample", "which", "--sample-every", "1", "--sample-tokens", "4"}), without);
}

// Sampled texts differ from the most likely one, and repeat in each run.
TEST_F(TrainSample, TextsMayBeDrawn) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words hot = {"--micro-batch", "4", "--sample-temperature", "3"};
    const Samples one = SamplesOf(prompts_ + hot);
    EXPECT_NE(one, SamplesOf(prompts_ + Words{"--micro-batch", "4"}));
    EXPECT_EQ(one, SamplesOf(prompts_ + hot));
    EXPECT_EQ(one, SamplesOf(prompts_ + Words{"--sample-temperature", "3", "--local", "2",
                                              "--micro-batch", "4", "--tp", "2"}));
}

// A round of many texts takes minutes. A stop ends it, on all ranks.
TEST_F(TrainSample, EndAtAStop) {
    std::ofstream prompts(dir_ / "prompts");
    for (int i = 0; i < 256; ++i) prompts << "What is " << i << " + 3?\n";
    prompts.close();
    for (const Words& ranks : {Words{}, Words{"--local", "2"}}) {
        const std::string out = dir_ / fmt::format("out{}", ranks.size());
        const Ran ran = RunWeft(Words{"train",
                                      TestData("/../../models/abacus/model.gguf"),
                                      "--data",
                                      data_,
                                      "--seq-len",
                                      "256",
                                      "-t",
                                      "1",
                                      "--json",
                                      "--steps",
                                      "100",
                                      "--sample-file",
                                      dir_ / "prompts",
                                      "--sample-every",
                                      "1",
                                      "--sample-tokens",
                                      "240",
                                      "--sample-temperature",
                                      "100",
                                      "--output-dir",
                                      out,
                                      "--time-limit",
                                      "3s"} +
                                ranks);
        EXPECT_EQ(ran.status, 75) << ran.err;
        EXPECT_EQ(JsonLines(ran.out).back().at("steps"), 1) << ran.err;
        EXPECT_TRUE(fs::exists(out + "/checkpoints/step-00000001/manifest.json"));
    }
}

// Without --sample-every: at each evaluation. Prompts from a file, on the terminal, in
// TensorBoard's file; plots lose no row.
TEST_F(TrainSample, AreReportedEverywhere) {
    std::ofstream(dir_ / "prompts") << "which b\n\n\"it is\\nwhich\"\n";
    const std::string out = dir_ / "out";
    const Words common = {"--sample-file",   dir_ / "prompts",
                          "--sample-tokens", "3",
                          "--steps",         "4",
                          "--test-split",    "0.2",
                          "--eval-every",    "2"};
    const Samples samples = SamplesOf(common);
    ASSERT_EQ(samples.size(), 2u);
    ASSERT_EQ(samples.at(2).size(), 2u);
    EXPECT_EQ(samples.at(4)[1].first, "it is\nwhich");

    const Ran ran = RunTrain(Command(common + Words{"--output-dir", out}));
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("\n  > which b|"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("\n  > it is\n    which|"), std::string::npos) << ran.err;
    std::string events;
    for (const auto& entry : fs::directory_iterator(out)) {
        if (!entry.path().filename().string().starts_with("events.out")) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        events.assign(std::istreambuf_iterator<char>(file), {});
    }
    EXPECT_NE(events.find("sample/0"), std::string::npos);
    EXPECT_NE(events.find("it is\nwhich" + samples.at(4)[1].second), std::string::npos);
}

TEST_F(TrainSample, ErrorsNameWhatIsWrong) {
    std::ofstream(dir_ / "bad") << "fine\n\"not closed\n";
    std::ofstream(dir_ / "none") << "\n";
    const struct {
        Words words;
        const char* expected;
    } cases[] = {{{"--sample", std::string(200, 'a')}, "--seq-len 96"},
                 {{"--sample", "a", "--sample-tokens", "0"}, "--sample-tokens 0"},
                 {{"--sample", "a", "--sample-every", "-1"}, "--sample-every -1"},
                 {{"--sample", "a", "--sample-temperature", "-1"}, "--sample-temperature -1"},
                 {{"--sample", "\xff"}, "not UTF-8"},
                 {{"--sample-file", dir_ / "bad"}, "line 2"},
                 {{"--sample-file", dir_ / "none"}, "one prompt per line"}};
    for (const auto& test : cases) {
        const Ran ran = RunTrain(Command(test.words));
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(test.expected), std::string::npos) << ran.err;
    }
    const Ran random = RunTrain({"train", model_, "--data", "synthetic:random-tokens:49:24",
                                 "--seq-len", "48", "--sample", "a"});
    EXPECT_EQ(random.status, 2);
    EXPECT_NE(random.err.find("no tokenizer"), std::string::npos) << random.err;
}

}  // namespace
}  // namespace weft::support
