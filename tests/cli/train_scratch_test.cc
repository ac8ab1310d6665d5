// weft train --from-scratch: the same curve on any ranks, checkpoints, results that run, and errors
// with a next step.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class ScratchCli : public testing::Test {
  protected:
    void SetUp() override {
        fs::create_directory(folder_);
        const std::string abacus = TestData("/../../models/abacus");
        for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) {
            fs::copy_file(abacus + "/" + name, folder_ + "/" + name);
        }
        WriteConfig("llama");
        std::ofstream data(data_);
        for (int i = 0; i < 40; ++i) {
            data << json{{"question", fmt::format("What is {} + 1?", i)},
                         {"answer", fmt::format("{}", i + 1)}}
                 << "\n";
        }
    }
    void WriteConfig(const std::string& family) const {
        const json config = {{"model_type", family},
                             {"hidden_size", 48},
                             {"intermediate_size", 96},
                             {"num_hidden_layers", 3},
                             {"num_attention_heads", 6},
                             {"num_key_value_heads", 6},
                             {"head_dim", 8},
                             {"vocab_size", 576},
                             {"rms_norm_eps", 1e-5},
                             {"max_position_embeddings", 128},
                             {"initializer_range", 0.1},
                             {"tie_word_embeddings", true}};
        std::ofstream(folder_ + "/config.json") << config;
    }
    Ran Train(const Words& more) const {
        return RunTrain(Words{"train", folder_, "--data", data_, "--prompt-type", "5", "--seq-len",
                              "32", "--json", "--lr", "1e-2", "--dtype", "f32", "-t", "1"} +
                        more);
    }
    // Losses and norms of a successful run.
    std::vector<double> Curve(const Words& more) const {
        return CurveOf(Train(Words{"--from-scratch"} + more));
    }

    test::TempDir dir_;
    std::string folder_ = dir_ / "new", data_ = dir_ / "data.jsonl";
};

// Sums over ranks and micro-batches have other orders: a relative error of 2^-24 for each of some
// hundred terms, and twice that after an update.
TEST_F(ScratchCli, TheCurveIsTheSameOnAnyRanks) {
    const Words steps = {"--steps", "4"};
    const Words layouts[] = {
        {"--local", "2", "--micro-batch", "2", "--zero", "3"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2"},
        {"--local", "3", "--micro-batch", "4", "--tp", "3"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2"}};
    size_t turn = 0;
    for (const char* family : {"llama", "qwen2", "qwen3"}) {
        WriteConfig(family);
        const auto one = Curve(steps + Words{"--micro-batch", "4"});
        ASSERT_EQ(one.size(), 8u);
        EXPECT_LT(one[6], one[0]);
        for (const Words& layout : test::Some(layouts, 3, turn++)) {
            SCOPED_TRACE(family + testing::PrintToString(layout));
            const auto other = Curve(steps + layout);
            ASSERT_EQ(other.size(), one.size());
            for (size_t i = 0; i < one.size(); ++i) {
                EXPECT_TRUE(std::abs(other[i] / one[i] - 1) <= 2e-5)
                    << "step " << i / 2 << ": " << other[i] << ", expected " << one[i];
            }
        }
    }
    EXPECT_NE(Curve({"--steps", "1", "--seed", "8"})[0], Curve({"--steps", "1"})[0]);
}

TEST_F(ScratchCli, GoesOnFromACheckpointAndRuns) {
    const std::string whole = dir_ / "whole", parts = dir_ / "parts";
    const auto all = Curve({"--steps", "6", "--output-dir", whole});
    ASSERT_EQ(all.size(), 12u);
    const Words words = {"--output-dir", parts, "--save-every", "3"};
    ASSERT_EQ(Curve(words + Words{"--steps", "3"}).size(), 6u);
    const auto rest = Curve(words + Words{"--steps", "6", "--resume", "auto"});
    EXPECT_EQ(rest, std::vector<double>(all.begin() + 6, all.end()));

    const std::string gguf = whole + "/model.gguf", hf = dir_ / "hf";
    const auto more =
        Curve({"--steps", "6", "--save-format", "hf", "--output-dir", hf, "--resume", parts});
    EXPECT_TRUE(more.empty());
    const Words ask = {"-p", "What is 3 + 1?", "--chat", "-n", "4", "-t", "1", "--json"};
    const Ran one = RunWeft(Words{"run", gguf} + ask),
              other = RunWeft(Words{"run", hf + "/model"} + ask);
    ASSERT_EQ(one.status, 0) << one.err;
    ASSERT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(one.Json().at("tokens"), other.Json().at("tokens"));

    // Another seed means another order of the data, which must then be given as new data; the model
    // is still that of the first seed.
    const Words seed = {"--from-scratch", "--seed", "5", "--resume", "auto"};
    const Ran ran = Train(words + seed + Words{"--steps", "8"});
    EXPECT_NE(ran.status, 0);
    for (const char* last : {"8", "9"}) {
        const Ran anew = Train(words + seed + Words{"--steps", last, "--new-data"});
        EXPECT_EQ(anew.status, 0) << anew.err;
        EXPECT_NE(anew.out.find(fmt::format("\"step\":{},", last)), std::string::npos) << anew.out;
    }
}

// A model without a tokenizer: trained on ids, with checkpoints and results in both formats.
TEST_F(ScratchCli, WithoutATokenizerTokenIdsAreLearnt) {
    fs::remove(folder_ + "/tokenizer.json");
    fs::remove(folder_ + "/tokenizer_config.json");
    const auto write = [&](const json& last) {
        std::ofstream data(data_);
        for (int i = 0; i < 30; ++i) {
            data << json{{"input_ids", {i, i + 1, i + 2, 575}},
                         {"labels", {-100, i + 1, i + 2, 575}}}
                 << "\n";
        }
        data << last << "\n";
    };
    write({{"tokens", {1, 2, 3}}});
    const std::string whole = dir_ / "whole", parts = dir_ / "parts";
    const auto all = Curve({"--steps", "4", "--output-dir", whole});
    ASSERT_EQ(all.size(), 8u);
    const Words words = {"--output-dir", parts, "--save-every", "2"};
    ASSERT_EQ(Curve(words + Words{"--steps", "2"}).size(), 4u);
    const Words again = {"--steps", "4", "--resume", "auto", "--save-format", "hf"};
    EXPECT_EQ(Curve(words + again), std::vector<double>(all.begin() + 4, all.end()));
    // The result can be trained further in either format; a message says that it has no tokenizer.
    for (const std::string& model : {whole + "/model.gguf", parts + "/model"}) {
        const Ran more = RunTrain({"train", model, "--data", data_, "--seq-len", "32", "--json",
                                   "--steps", "1", "--lr", "1e-3", "--dtype", "f32", "-t", "1"});
        EXPECT_EQ(more.status, 0) << more.err;
        const Ran run = RunWeft({"run", model, "-p", "a", "-n", "1"});
        EXPECT_NE(run.status, 0);
        EXPECT_NE(run.err.find("no tokenizer"), std::string::npos) << run.err;
    }
    const auto refused = [&](const json& last, const Words& expected) {
        write(last);
        const Ran ran = Train({"--from-scratch", "--steps", "20"});
        EXPECT_NE(ran.status, 0);
        for (const std::string& word : expected) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << word << ": " << ran.err;
        }
    };
    refused({{"text", "words"}}, {"line 31", "no tokenizer", "tokenizer.json", "input_ids"});
    refused({{"input_ids", {1, 576}}}, {"line 31", "token 576", "rows 0 to 575"});
}

// The abacus has 576 tokens: 24 of an embedding's 600 rows match no text.
TEST_F(ScratchCli, RowsBeyondTheTokenizerAreLearnt) {
    json config = json::parse(std::ifstream(folder_ + "/config.json"));
    config["vocab_size"] = 600;
    std::ofstream(folder_ + "/config.json") << config;
    std::ofstream(data_) << R"({"input_ids": [1, 2, 599, 599]})"
                         << "\n";
    EXPECT_EQ(Curve({"--steps", "2"}).size(), 4u);
    std::ofstream(data_) << R"({"input_ids": [1, 2, 600]})"
                         << "\n";
    const Ran ran = Train({"--from-scratch", "--steps", "1"});
    EXPECT_NE(ran.err.find("token 600"), std::string::npos) << ran.err;
}

TEST_F(ScratchCli, AScheduleMayBeLongerThanTheRun) {
    const auto whole = Curve({"--steps", "4", "--schedule", "cosine"});
    const auto begun = Curve({"--steps", "3", "--schedule", "cosine", "--schedule-steps", "4"});
    ASSERT_EQ(whole.size(), 8u);
    EXPECT_EQ(begun, std::vector<double>(whole.begin(), whole.begin() + 6));
    EXPECT_NE(begun, Curve({"--steps", "3", "--schedule", "cosine"}));
}

TEST_F(ScratchCli, NamesInvalidFlags) {
    const auto said = [&](const Words& words, const char* expected) {
        const Ran ran = Train(Words{"--steps", "1"} + words);
        EXPECT_NE(ran.status, 0);
        EXPECT_NE((ran.err + ran.out).find(expected), std::string::npos) << ran.err << ran.out;
    };
    said({}, "--from-scratch");
    said({"--from-scratch", "--lora", "4"}, "--lora with --from-scratch");
    said({"--optimizer", "muon", "--lora", "4"}, "--optimizer muon with --lora");
    fs::remove(folder_ + "/tokenizer.json");
    said({"--from-scratch"}, "no tokenizer");
    fs::remove(folder_ + "/config.json");
    said({"--from-scratch"}, "config.json");
    folder_ = data_;
    said({"--from-scratch"}, "expected a folder with config.json");
}

}  // namespace
}  // namespace weft::support
