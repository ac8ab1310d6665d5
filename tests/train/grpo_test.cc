// Group relative policy optimization: TRL's losses, derivatives and advantages; rewards.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "support/fake_cluster.h"
#include "support/paths.h"
#include "support/wait.h"
#include "train/data/packed_ids.h"
#include "train/data/preference.h"
#include "train/data_case.h"
#include "train/data_walk.h"
#include "train/grpo/loss.h"
#include "train/grpo/reward_command.h"
#include "train/grpo/rewards.h"
#include "train/grpo/rollouts.h"

namespace weft::train {
namespace {

using nlohmann::json;

void ExpectPart(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text;
}

// ---- Losses -------------------------------------------------------------------------------------

const json& Golden() {
    static const json golden =
        json::parse(Must(ReadTextFile(support::TestData("/grpo_losses.json"), 1 << 20)));
    return golden;
}

std::vector<float> Floats(const json& list) {
    return list.get<std::vector<float>>();
}

// (The weights are float32, relative to at most a few units.)
TEST(GrpoLosses, AreThoseOfTrl) {
    for (const json& each : Golden().at("cases")) {
        GrpoOptions options;
        options.loss_type = each.at("loss_type");
        options.importance_level = each.at("importance_level");
        options.beta = each.at("beta");
        options.epsilon = each.at("epsilon");
        options.epsilon_high = each.at("epsilon_high");
        const std::string name = options.loss_type + " " + options.importance_level + " beta " +
                                 each.at("beta").dump() + " change " + each.at("change").dump();
        GrpoBatch batch{0, 0, Golden().at("most")};
        for (const json& completion : each.at("new")) {
            batch.completions += 1;
            batch.tokens += static_cast<double>(completion.size());
        }
        const GrpoLoss loss(options, batch);
        GrpoSums sums;
        for (size_t i = 0; i < each.at("new").size(); ++i) {
            std::vector<float> losses = Floats(each.at("new")[i]), old;
            if (!each.at("old").empty()) old = Floats(each.at("old")[i]);
            for (float& x : losses) x = -x;
            std::vector<float> weights(losses.size());
            loss.Add(each.at("advantages")[i], losses, old, Floats(each.at("ref")[i]), weights,
                     sums);
            for (size_t t = 0; t < weights.size(); ++t) {
                const double slope = each.at("slopes")[i][t];
                EXPECT_NEAR(-weights[t], slope, 1e-6) << name << ", token " << i << "," << t;
            }
        }
        EXPECT_NEAR(sums[GrpoSums::kLoss], each.at("loss").get<double>(), 1e-6) << name;
        if (options.beta > 0) {
            EXPECT_NEAR(ValuesOf(sums, options).back(), each.at("kl").get<double>(), 1e-6) << name;
        }
    }
}

TEST(GrpoLosses, AdvantagesAreThoseOfTrl) {
    const json& golden = Golden().at("advantages");
    const auto rewards = golden.at("rewards").get<std::vector<double>>();
    for (const std::string scale : {"group", "batch", "none"}) {
        const auto advantages = AdvantagesOf(rewards, golden.at("size"), scale);
        for (size_t i = 0; i < rewards.size(); ++i) {
            EXPECT_NEAR(advantages[i], golden.at(scale)[i].get<double>(), 1e-9) << scale << i;
            if (i / 4 != 1) continue;
            EXPECT_EQ(advantages[i], 0) << scale;
        }
    }
}

TEST(GrpoLosses, ACompletionWithoutRewardDoesNotCount) {
    const std::vector<double> rewards = {1, NAN, 3, 2, NAN, NAN};
    EXPECT_EQ(AdvantagesOf(rewards, 3, "none"), (std::vector<double>{-1, 0, 1, 0, 0, 0}));
}

// ---- Prompts ------------------------------------------------------------------------------------

std::string PromptOf(std::string_view line) {
    const auto object = ParseRecordJson(line);
    if (!object.ok()) return object.error().message;
    const auto sample = EncodePrompt(ByteEncoder(), *object);
    if (!sample.ok()) return sample.error().message;
    EXPECT_EQ(sample->roles, (std::vector<SampleRole>{SampleRole::kPrompt}));
    Sample prompt = *sample;
    prompt.tokens.pop_back();  // (it stands for the completion)
    prompt.loss.assign(prompt.tokens.size(), 0);
    return Marked(prompt);
}

TEST(GrpoPrompts, TextsAndConversations) {
    EXPECT_EQ(PromptOf(R"({"prompt": "Sky?", "answer": 3})"), "Sky?");
    EXPECT_EQ(PromptOf(R"({"prompt": [{"role": "user", "content": "Sky?"}]})"),
              "<|im_start|>user\nSky?<|im_end|>\n<|im_start|>assistant\n");
    // Also a system message beside a string makes a conversation, as in a record with an answer.
    const std::string asked = PromptOf(R"({"prompt": "Sky?", "system": "Brief."})");
    ExpectPart(asked, "Brief.");
    EXPECT_EQ(asked, PromptOf(R"({"prompt": [{"role": "system", "content": "Brief."},
                                              {"role": "user", "content": "Sky?"}]})"));
    ExpectPart(PromptOf(R"({"question": "Sky?"})"), "no 'prompt' in the record");
    ExpectPart(PromptOf(R"({"prompt": [{"role": "user", "content": "a"},
                                        {"role": "assistant", "content": "b"}]})"),
               "ends with a message of the assistant");
}

// ---- Rewards ------------------------------------------------------------------------------------

class RewardCommands : public testing::Test {
  protected:
    RewardCommands() { ::signal(SIGPIPE, SIG_IGN); }
};

const std::vector<std::string> kLines = {"{\"a\":1}", "{\"a\":22}", "{\"a\":333}"};

TEST_F(RewardCommands, ManyLinesAndWorkers) {
    // The reward of a line is its length; the process continues.
    RewardCommand command("while read -r x; do echo \"{\\\"reward\\\": ${#x}}\"; done", 2, 60);
    for (int turn = 0; turn < 3; ++turn) {
        EXPECT_EQ(Must(command.Score(kLines)), (std::vector<double>{7, 8, 9}));
    }
    const std::vector<std::string> many(5000, std::string(1000, 'x'));
    EXPECT_EQ(Must(command.Score(many)), std::vector<double>(5000, 1000));
}

TEST_F(RewardCommands, NoRewardAndBooleans) {
    RewardCommand command("read x; echo null; read x; echo true; read x; echo 0.5; cat", 1, 60);
    const auto rewards = Must(command.Score(kLines));
    EXPECT_TRUE(std::isnan(rewards[0]));
    EXPECT_EQ(rewards[1], 1);
    EXPECT_EQ(rewards[2], 0.5);
}

// As Python's float() reads them.
TEST_F(RewardCommands, NumbersThatJsonLacks) {
    RewardCommand command("cat > /dev/null & printf '+1\n .5\t\n-1.\r\n1e0\n+.5E+1\n007\n'; wait",
                          1, 60);
    const std::vector<std::string> lines(6, "{}");
    EXPECT_EQ(Must(command.Score(lines)), (std::vector<double>{1, 0.5, -1, 1, 5, 7}));
    for (const std::string text : {"inf", "nan", "+-1", "++1", "0x1", "1 2", ".", "+", "-", ""}) {
        RewardCommand other("read x; echo '" + text + "'; cat > /dev/null", 1, 60);
        const auto scored = other.Score(std::span(kLines).first(1));
        ASSERT_FALSE(scored.ok()) << text;
        ExpectPart(scored.error().message, "answer 1 is '" + text + "'; expected a finite");
    }
}

TEST_F(RewardCommands, FaultsNameTheCommand) {
    const auto fault = [](const std::string& text, int64_t seconds = 60) {
        RewardCommand command(text, 1, seconds);
        const auto scored = command.Score(kLines);
        EXPECT_FALSE(scored.ok());
        if (scored.ok()) return std::string();
        ExpectPart(scored.error().message, "--reward-cmd '" + text + "'");
        return scored.error().message;
    };
    ExpectPart(fault("exit 3"),
               "ended with status 3 after 0 of 3 answers, for the "
               "second time");
    ExpectPart(fault("read x; echo 1; kill -9 $$"), "ended by signal 9 after 1 of 3");
    ExpectPart(fault("no-such-program-of-anyone 2> /dev/null"), "status 127");
    ExpectPart(fault("read x; echo 1; read x; echo maybe; cat"),
               "answer 2 is 'maybe'; expected a finite number");
    ExpectPart(fault("printf '1\\n2\\n3\\n4\\n'; cat"),
               "a line without a completion to judge: '4'");
    ExpectPart(fault("read x; echo 1; cat > /dev/null", 1), "1 of 3 answers within 1 s");
}

// A line after all answers must not count as an answer of the next update: each completion would
// then get another's reward.
TEST_F(RewardCommands, ALateLineIsAnError) {
    const test::TempDir folder;
    const std::string go = folder / "go", mark = folder / "mark";
    ASSERT_EQ(::mkfifo(go.c_str(), 0600), 0);
    for (const std::string late : {"echo 9", "printf 9"}) {
        RewardCommand command("for i in 1 2 3; do read x; echo $i; done; read x < " + go + "; " +
                                  late + "; touch " + mark + "; while read x; do echo 5; done",
                              1, 60);
        EXPECT_EQ(Must(command.Score(kLines)), (std::vector<double>{1, 2, 3}));
        std::ofstream(go) << "now\n";
        ASSERT_TRUE(test::Until([&] { return std::filesystem::exists(mark); }));
        const auto scored = command.Score(std::span(kLines).first(2));
        ASSERT_FALSE(scored.ok()) << late;
        ExpectPart(scored.error().message, "a line without a completion to judge: '9'");
        std::filesystem::remove(mark);
    }
}

// A command that does not answer holds neither a stopped job nor one that has lost a rank.
TEST_F(RewardCommands, EndWithTheJob) {
    int looks = 0;
    RewardCommand command("cat > /dev/null; tail -f /dev/null", 1, 600, [&looks]() -> Status {
        if (++looks < 3) return {};
        return MakeError(ErrorCode::kCancelled, "rank 1 was lost");
    });
    const auto scored = command.Score(kLines);
    ASSERT_FALSE(scored.ok());
    EXPECT_EQ(scored.error().message, "rank 1 was lost");
}

TEST_F(RewardCommands, StartsAProcessAgain) {
    const test::TempDir folder;
    // Ends in the middle of its first life.
    const std::string mark = folder / "mark";
    RewardCommand command("if [ ! -e " + mark + " ]; then touch " + mark +
                              "; read x; echo 5; exit 1; fi; while read x; do echo 1; done",
                          1, 60);
    EXPECT_EQ(Must(command.Score(kLines)), (std::vector<double>{1, 1, 1}));
}

// The other ranks wait as long as rank 0 makes progress: a judge may take longer than their time
// limit.
TEST_F(RewardCommands, TheRankThatWaitsForThemMakesProgress) {
    const test::TempDir folder;
    const std::string begun = folder / "begun", answers = folder / "answers";
    ASSERT_EQ(::mkfifo(answers.c_str(), 0600), 0);
    const Fd answer(::open(answers.c_str(), O_RDWR | O_CLOEXEC));
    TrainJob job;
    job.trainer.model = support::TestData("/../../models/abacus/model.gguf");
    job.trainer.threads = 1;
    job.trainer.sequence = job.data.sequence = 32;
    job.trainer.micro_batch = 2;
    job.steps = 1;
    job.data.loss = "grpo";
    job.data.data = {WriteText(folder, "data.jsonl", R"({"prompt": "1 + 1 = "})")};
    GrpoOptions& grpo = job.trainer.grpo;
    grpo.group = grpo.completion_tokens = 2;
    grpo.commands = {"touch " + begun + "; exec cat " + answers};
    TakeDataWords(job);
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    const auto trainer = Must(Trainer::Make(job.trainer, cluster));
    const OpenedData data = Must(OpenData(trainer->source(), job.data, trainer->hyper().vocab));
    Rollouts rollouts = Must(Rollouts::Make(grpo, data, cluster));
    const std::optional<Batch> prompts =
        Must(Must(OpenLoader(job, trainer->layout(), data)).Next());
    constexpr int kMostLooks = 10;
    std::set<int64_t> seen;
    int looks = 0;
    cluster.on_look = [&] {
        if (looks == kMostLooks || !std::filesystem::exists(begun)) return;
        seen.insert(cluster.progress());
        if (seen.size() < 2 && ++looks < kMostLooks) return;
        looks = kMostLooks;
        EXPECT_EQ(::write(answer.get(), "1\n2\n", 4), 4);
    };
    const auto judged = rollouts.Next(*trainer, *prompts, 1);
    ASSERT_TRUE(judged.ok()) << judged.error().message;
    EXPECT_EQ(judged->values[0], 1.5);
    EXPECT_EQ(seen.size(), 2u) << "the rank seems to be stuck";
    EXPECT_EQ(cluster.progress(), trainer->executable().progress());
}

TEST(Rewards, ExpressionsAndSchemas) {
    const test::TempDir folder;
    GrpoOptions options;
    options.regexes = {"#### (?<answer>\\d+)", "^[a-z ]+$"};
    options.schemas = {WriteText(folder, "schema.json",
                                 R"({"type": "object", "properties": {"n": {"type": "integer"}},
                                     "required": ["n"], "additionalProperties": false})")};
    options.weights = {1, 0.5, 2};
    Rewards rewards = Must(Rewards::Make(options));
    const chat::OrderedJson record = {{"prompt", "6 x 7?"}, {"answer", 42}};
    std::vector<Judged> judged;
    for (const char* text : {"so #### 42", "so #### 41", "no answer", " {\"n\": 3}\n"}) {
        judged.push_back({&record, text, {}});
    }
    const auto values = Must(rewards.Score(judged));
    EXPECT_EQ(values[0], (std::vector<double>{1, 0, 0, 0}));
    EXPECT_EQ(values[1], (std::vector<double>{0, 0, 1, 0}));
    EXPECT_EQ(values[2], (std::vector<double>{0, 0, 0, 1}));
    EXPECT_EQ(rewards.SumsOf(values), (std::vector<double>{1, 0, 0.5, 2}));
    // A completion that is cut off within a character, and bytes that are not UTF-8.
    judged.resize(2);
    judged[0].text = "#### 42 \xe2\x82";
    judged[1].text = "\xff so #### 42 \xff";
    EXPECT_EQ(Must(rewards.Score(judged))[0], (std::vector<double>{1, 1}));
    options.regexes = {"^.{5}#### 42 .$", "^"};
    rewards = Must(Rewards::Make(options));
    EXPECT_EQ(Must(rewards.Score(judged))[0], (std::vector<double>{0, 1}));
    EXPECT_EQ(Must(rewards.Score(judged))[1], (std::vector<double>{1, 1}));
    options.regexes = {"("};
    const auto invalid = Rewards::Make(options);
    ASSERT_FALSE(invalid.ok());
    ExpectPart(invalid.error().message, "--reward-regex '(': missing closing");
}

}  // namespace
}  // namespace weft::train
