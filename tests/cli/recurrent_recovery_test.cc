// Models with recurrent layers and experts on pipeline and tensor ranks: the answer equals that of
// one rank, also after a rank is killed and its recurrent state is recomputed.
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "support/golden_experts.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr int64_t kMostRecoveryMs = 60'000;

class RecurrentExperts : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // adopts orphans
        const std::string name = GetParam();
        if (name != "nemotronHMoe" && name != "graniteHybridMoe") {
            model_ = dir_ / "model.gguf";
            return WriteTinyGguf(model_, ExpertGoldenFile(name));
        }
        model_ = dir_ / "model";
        HfGolden(TestData("/families/" + name + ".safetensors")).Write(name, model_);
        WriteText(model_ + "/tokenizer.json", SmallTokenizer());
    }
    void TearDown() override { EXPECT_TRUE(test::ChildrenOf(::getpid()).empty()); }

    Words Command(const std::string& layout) const {
        return Words{"run", model_, "-p",           "hello",    "-n",    "180",
                     "-t",  "1",    "--ignore-eos", "--greedy", "--ctx", "224"} +
               SplitWords(layout);
    }
    // Kills rank 1 while it answers.
    void Lose(const std::string& layout, const std::string& expected) {
        SCOPED_TRACE(layout);
        Weft weft(Command(layout) + Words{"--restart-timeout-ms", "20000"});
        std::vector<pid_t> pids;
        ASSERT_TRUE(test::Until([&] { return !(pids = test::ChildrenOf(weft.pid())).empty(); }));
        ASSERT_TRUE(test::Until([&] { return weft.Out().size() > 20; })) << weft.Err();
        ::kill(pids[0], SIGKILL);
        const Ran ran = weft.Wait(kMostRecoveryMs);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.out, expected) << ran.err;
        EXPECT_NE(ran.err.find("; epoch 2 with 2 ranks after "), std::string::npos) << ran.err;
    }

    test::TempDir dir_;
    std::string model_;
};

TEST_P(RecurrentExperts, AnswerAsOneRankAndAfterALoss) {
    const std::string name = GetParam();
    SKIP_TO_NIGHT_UNLESS(name == "qwen3nextMoe" || name == "nemotronHMoe" || name == "lfm2moe");
    const Ran alone = RunWeft(Command("--tp 1"));
    ASSERT_EQ(alone.status, 0) << alone.err;
    ASSERT_GT(alone.out.size(), 100u);
    Lose("--pp 2", alone.out);
    if (test::Nightly()) Lose("--tp 2", alone.out);
}

INSTANTIATE_TEST_SUITE_P(Families, RecurrentExperts,
                         testing::Values("qwen3nextMoe", "nemotronHMoe", "lfm2moe",
                                         "graniteHybridMoe", "kimiLinear", "ling3", "qwen35moe"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace weft::support
