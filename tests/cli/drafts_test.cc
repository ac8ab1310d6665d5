// weft run --prompt-lookup and --draft: the same text as without them in every layout, the report
// on drafts, refusals, and the loss of a rank meanwhile.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <set>

#include "support/draft_head_file.h"
#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTimeoutMs = 3000;
constexpr int64_t kSlackMs = 3000;
#else
constexpr int64_t kTimeoutMs = 1000;
constexpr int64_t kSlackMs = 1000;
#endif

class Drafts : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        model::Hyper hyper = OddHyper();
        hyper.context = 1 << 20;
        model_ = dir_ / "model.gguf";
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kQ8_0});
        // Another model with the same vocabulary, and one with a different vocabulary.
        hyper.layers = 1;
        hyper.hidden = 64;
        hyper.ffn = 96;
        hyper.heads = 2;
        hyper.kv_heads = 1;
        small_ = dir_ / "small.gguf";
        WriteTinyGguf(small_, {.hyper = hyper});
        hyper.vocab = 300;
        foreign_ = dir_ / "foreign.gguf";
        WriteTinyGguf(foreign_, {.hyper = hyper});
    }
    Words Command(int tokens = 60) const {
        return {"run",         model_,
                "-p",          "the hen, the cat, the hen, the c",
                "-n",          std::to_string(tokens),
                "-t",          "1",
                "--ignore-eos"};
    }
    std::vector<Words> Kinds() const {
        return {{"--prompt-lookup", "--draft-always", "--draft-tokens", "5"},
                {"--prompt-lookup"},
                {"--draft", model_, "--draft-always", "--draft-tokens", "3"},
                {"--draft", small_, "--draft-always", "--draft-tokens", "3"},
                {"--draft", small_}};
    }

    test::TempDir dir_;
    std::string model_, small_, foreign_;
};

TEST_F(Drafts, TheTextIsTheSameInEveryLayout) {
    size_t turn = 0;
    const char* const layouts[] = {"--tp 2 --pp 2",          "--tp 1",
                                   "--tp 2 --transport shm", "--tp 3 --tensor-split 1,3,2",
                                   "--pp 2 --transport tcp", "--tp 2 --transport tcp",
                                   "--pp 2 --transport shm", "--tp 3"};
    for (const char* layout : test::Some(layouts, 3)) {
        const Words command = Command() + SplitWords(layout);
        const auto expected = RunWeft(command + Words{"--json"}).Json();
        ASSERT_EQ(expected["tokens"].size(), 60u);
        EXPECT_FALSE(expected.contains("speculation"));
        for (const Words& kind : Kinds()) {
            if (!test::InTurn(turn++, 2)) continue;
            SCOPED_TRACE(layout + testing::PrintToString(kind));
            const auto got = RunWeft(command + kind + Words{"--json", "--verify"}).Json();
            EXPECT_EQ(got["tokens"], expected["tokens"]);
            EXPECT_EQ(got["text"], expected["text"]);
        }
    }
}

TEST_F(Drafts, AreReportedInJsonAndText) {
    const Words own = {"--draft", model_, "--draft-always", "--draft-tokens", "4"};
    const auto told = RunWeft(Command(41) + own + Words{"--json"}).Json()["speculation"];
    std::set<std::string> keys;
    for (const auto& [key, value] : told.items()) keys.insert(key);
    EXPECT_EQ(keys, (std::set<std::string>{"drafted", "accepted", "acceptance", "steps",
                                           "tokens_per_step"}));
    EXPECT_EQ(told["drafted"], 32);  // the model's own drafts: 8 steps of 4, plus one each
    EXPECT_EQ(told["accepted"], 32);
    EXPECT_EQ(told["acceptance"], 1.0);
    EXPECT_EQ(told["steps"], 8);
    EXPECT_EQ(told["tokens_per_step"], 5.0);
    const Ran text = RunWeft(Command(41) + own);
    EXPECT_NE(
        text.err.find("drafts: 32 of 32 tokens accepted (100 %), 5.00 tokens a step in 8 steps\n"),
        std::string::npos)
        << text.err;
}

TEST_F(Drafts, DrawnAnswersFollowTheSeed) {
    const Words draw = {"--temp", "1.2", "--top-k", "20", "--seed", "5", "--json"};
    const auto plain = RunWeft(Command() + draw).Json();
    // Prompt lookup's drafts are point masses: sampled answers do not change either.
    EXPECT_EQ(
        RunWeft(Command() + draw + Words{"--prompt-lookup", "--draft-always"}).Json()["tokens"],
        plain["tokens"]);
    for (const Words& kind : {Words{"--draft", small_}, {"--draft", small_, "--draft-always"}}) {
        const auto once = RunWeft(Command() + draw + kind).Json();
        EXPECT_EQ(RunWeft(Command() + draw + kind).Json()["tokens"], once["tokens"]);
        EXPECT_EQ(RunWeft(Command() + draw + kind + Words{"--tp", "2"}).Json()["tokens"].size(),
                  60u);
    }
}

TEST_F(Drafts, Refusals) {
    const auto refused = [&](const Words& flags, const Words& parts) {
        const Ran ran = RunWeft(Command() + flags);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
        for (const std::string& part : parts) {
            EXPECT_NE(ran.err.find(part), std::string::npos) << part << ": " << ran.err;
        }
    };
    refused({"--draft", foreign_}, {"foreign.gguf: its vocabulary has 300 tokens, that of ",
                                    "model.gguf has 267", "--prompt-lookup"});
    refused({"--draft", small_, "--prompt-lookup"}, {"exclude each other"});
    refused({"--draft", "mtp"},
            {"model.gguf has no multi-token prediction head", "--prompt-lookup"});
    refused({"--draft-tokens", "4"}, {"needs --draft MODEL or --prompt-lookup"});
    refused({"--prompt-lookup", "--prefill-chunk", "1"},
            {"--prefill-chunk (of weft serve --step-tokens) is 1"});
    const Ran missing = RunWeft(Command() + Words{"--draft", dir_ / "none.gguf"});
    EXPECT_EQ(missing.status, 1);
    EXPECT_NE(missing.err.find("none.gguf"), std::string::npos) << missing.err;
}

// Drafts continue while the rank is alive; then all ranks end in time with the usual error.
TEST_F(Drafts, ALostRankEndsThemInTime) {
    for (const Words& kind :
         {Words{"--prompt-lookup", "--draft-always"}, Words{"--draft", model_, "--draft-always"}}) {
        for (const char* transport : {"shm", "tcp"}) {
            SCOPED_TRACE(transport + testing::PrintToString(kind));
            const int64_t timeout_ms = test::TimeoutMs(kTimeoutMs);
            Weft weft(Command(500'000) + kind +
                      Words{"--tp", "2", "--transport", transport, "--timeout-ms",
                            std::to_string(timeout_ms)});
            test::Until([&] { return weft.Out().size() >= 50; });
            const std::vector<pid_t> children = test::ChildrenOf(weft.pid());
            ASSERT_EQ(children.size(), 1u) << weft.Err();
            const int64_t begin_ns = NowNs();
            ::kill(children[0], SIGKILL);
            const Ran ran = weft.Wait(20'000);
            EXPECT_EQ(ran.status, 3) << ran.err;
            EXPECT_LE(NowNs() - begin_ns, (timeout_ms + test::LimitMs(kSlackMs)) * 1'000'000);
            EXPECT_NE(ran.err.find("rank 1 (host "), std::string::npos) << ran.err;
            // During an all-reduce of a step, or in between while a draft is made.
            EXPECT_TRUE(ran.err.find("was lost during decode") != std::string::npos ||
                        ran.err.find(" of step ") != std::string::npos)
                << ran.err;
            EXPECT_TRUE(test::IsGone(children[0]));
        }
    }
}

// Kills one of three ranks after some text; the text equals that of a run without a loss.
void ExpectTheTextAfterALoss(const Words& command) {
    const Ran undisturbed = RunWeft(command);
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    Weft weft(command);
    test::Until([&] { return weft.Out().size() >= 50; });
    const std::vector<pid_t> children = test::ChildrenOf(weft.pid());
    ASSERT_EQ(children.size(), 2u) << weft.Err();
    ::kill(children[1], SIGKILL);
    const Ran ran = weft.Wait(60'000);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("; epoch 2 with 3 ranks after "), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out);
}

// After a recovery the same drafts are verified again: the text equals that of an undisturbed run,
// also with sampling.
TEST_F(Drafts, ALossChangesNoToken) {
    const Words cluster = {
        "--tp", "3", "--timeout-ms", std::to_string(test::TimeoutMs(3000)), "--restart-timeout-ms",
        "20000"};
    const Words draw = {"--temp", "1", "--top-k", "10", "--seed", "5"};
    const Words kinds[] = {Words{"--draft", small_, "--draft-always"} + draw,
                           Words{"--prompt-lookup", "--draft-always"}};
    for (const Words& kind : test::Some(kinds, 2)) {
        SCOPED_TRACE(testing::PrintToString(kind));
        ExpectTheTextAfterALoss(Command(500) + kind + cluster);
    }
}

// Drafts of the model's own head, with experts and with recurrent layers: in every layout the text
// equals that without drafts, also after the loss of a rank.
class DraftHeadRuns : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        TinyFile file = HeadFile(GetParam(), true);
        file.hyper.context = 1 << 20;
        WriteTinyGguf(model_, file);
        if (apart_) WriteSeparateHead(GetParam(), dir_ / "head", model_, true);
    }
    Words Command(int tokens) const {
        return {"run",         model_, "-p", "the hen, the c",
                "-t",          "1",    "-n", std::to_string(tokens),
                "--ignore-eos"};
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "model.gguf";
    const bool apart_ = HasSeparateHead(GetParam());
    const Words head_ = {"--draft", apart_ ? dir_ / "head" : std::string("mtp"), "--draft-always",
                         "--draft-tokens", "3"};
};

INSTANTIATE_TEST_SUITE_P(All, DraftHeadRuns,
                         testing::Values("glm4moe", "deepseek2", "qwen35", kEagle, kDflash),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(DraftHeadRuns, TheTextIsTheSameInEveryLayout) {
    size_t turn = 0;
    for (const char* layout : {"--tp 2 --transport shm", "--tp 3 --tensor-split 1,3,2", "--tp 4",
                               "--pp 2 --transport tcp", "--tp 2 --pp 2"}) {
        if (!test::InTurn(turn++, 3)) continue;
        SCOPED_TRACE(layout);
        const Words command = Command(60) + SplitWords(layout) + Words{"--json"};
        const auto expected = RunWeft(command).Json();
        ASSERT_EQ(expected["tokens"].size(), 60u);
        const auto got = RunWeft(command + head_ + Words{"--verify"}).Json();
        EXPECT_EQ(got["tokens"], expected["tokens"]);
        const bool blocks = std::string_view(GetParam()) == kDflash;
        EXPECT_GT(got["speculation"]["acceptance"], blocks ? 0.3 : 0.6);
    }
}

TEST_P(DraftHeadRuns, ALossChangesNoToken) {
    SKIP_TO_NIGHT_UNLESS(std::string_view(GetParam()) == "glm4moe");
    const Words cluster = {
        "--tp", "3", "--timeout-ms", std::to_string(test::TimeoutMs(3000)), "--restart-timeout-ms",
        "20000"};
    ExpectTheTextAfterALoss(Command(400) + head_ + cluster);
}

}  // namespace
}  // namespace weft::support
