// A real model, SmolLM2-135M-Instruct Q4_1, where ./test or ./quickstart has brought it: perplexity
// against llama.cpp's, and the same greedy text in every layout.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

std::string ModelPath() {
    if (const char* given = std::getenv("WEFT_MODEL"); given != nullptr && *given != 0) {
        return given;
    }
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const char* home = std::getenv("HOME");
    const std::string folder = cache != nullptr  ? cache
                               : home != nullptr ? std::string(home) + "/.cache"
                                                 : ".";
    return folder + "/weft/SmolLM2-135M-Instruct.Q4_1.gguf";
}

class SmolLm2 : public testing::Test {
  protected:
    void SetUp() override {
        if (!std::filesystem::exists(model_)) {
            GTEST_SKIP() << "NOT TESTED: " << model_ << " is not here; ./quickstart brings it";
        }
    }
    // The logits after `tokens`.
    std::vector<float> Logits(const std::vector<int>& tokens, const Words& layout) {
        const std::string npy = dir_ / "logits.npy";
        const Ran ran = RunWeft(Words{"logits", model_, "--tokens",
                                      fmt::format("{}", fmt::join(tokens, ",")), "--npy", npy} +
                                layout);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ReadNpy(npy).data;
    }

    const std::string model_ = ModelPath();
    test::TempDir dir_;
};

// llama.cpp (0.3.36 of llama-cpp-python, build 0c1e570; AVX-512 VNNI) on the same file and text:
//     llama-perplexity -m SmolLM2-135M-Instruct.Q4_1.gguf -f tests/data/prose.txt -c 512
//     Final estimate: PPL = 19.8140 +/- 2.27523
TEST_F(SmolLm2, PerplexityIsLlamaCpps) {
    constexpr double kLlamaCpp = 19.8140;
    for (const Words& layout : {Words{}, Words{"--tp", "2"}}) {
        const Ran ran = RunWeft(
            Words{"perplexity", model_, support::TestData("/prose.txt"), "--ctx", "512", "--json"} +
            layout);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const auto json = ran.Json();
        EXPECT_EQ(json["chunks"], 2);
        EXPECT_NEAR(json["perplexity"].get<double>(), kLlamaCpp, 0.005 * kLlamaCpp);
        EXPECT_NEAR(json["error"].get<double>(), 2.27523, 0.03 * 2.27523);
    }
}

// Two layouts may part where the best two logits are nearer than what rounding moves them.
TEST_F(SmolLm2, GreedyTextIsTheSameInEveryLayout) {
#if defined(__SANITIZE_THREAD__)
    constexpr size_t kTokens = 20;
#else
    constexpr size_t kTokens = 200;
#endif
    const std::string prompt = "The history of the lighthouse begins";
    const Words command = {"run", model_, "-p",           prompt,  "-n", std::to_string(kTokens),
                           "-t",  "1",    "--ignore-eos", "--json"};
    const auto one = RunWeft(command).Json()["tokens"].get<std::vector<int>>();
    ASSERT_EQ(one.size(), kTokens);
    const auto prompt_tokens = RunWeft({"tokenize", model_, "--text", prompt, "--json"})
                                   .Json()["tokens"]
                                   .get<std::vector<int>>();
    for (const Words& layout :
         {Words{"--tp", "2"}, Words{"--tp", "3", "--transport", "tcp"}, Words{"--pp", "2"},
          Words{"--tp", "2", "--pp", "2"}, Words{"--tp", "2", "--split", "2,1"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const Ran ran = RunWeft(command + layout);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const auto many = ran.Json()["tokens"].get<std::vector<int>>();
        ASSERT_EQ(many.size(), kTokens);
        const auto parts = std::ranges::mismatch(one, many);
        if (parts.in1 == one.end()) continue;
        std::vector<int> history = prompt_tokens;
        history.insert(history.end(), one.begin(), parts.in1);
        const std::vector<float> a = Logits(history, {}), b = Logits(history, layout);
        ASSERT_EQ(a.size(), b.size());
        double moved = 0;
        for (size_t i = 0; i < a.size(); ++i) {
            moved = std::max(moved, std::abs(static_cast<double>(a[i]) - b[i]));
        }
        const double gap = a[static_cast<size_t>(*parts.in1)] - a[static_cast<size_t>(*parts.in2)];
        EXPECT_LE(gap, 2 * moved) << "at token " << parts.in1 - one.begin();
    }
}

// The logits after a prompt of 300 tokens, sums on the wire while the other half is computed: the
// bits of the layout without it.
TEST_F(SmolLm2, OverlappedPromptsHaveTheSameBits) {
    std::vector<int> tokens;
    for (int i = 0; i < 300; ++i) tokens.push_back(500 + i * 37 % 9000);
    for (const char* tp : {"2", "3"}) {
        const Words layout = {"--tp", tp, "--transport", "tcp", "-t", "1", "--net-table", "off"};
        const std::vector<float> off = Logits(tokens, layout + Words{"--overlap", "off"});
        ASSERT_FALSE(off.empty());
        EXPECT_EQ(Logits(tokens, layout + Words{"--overlap", "auto"}), off) << "tp " << tp;
    }
}

}  // namespace
}  // namespace weft::support
