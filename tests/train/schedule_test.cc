// Learning rates against DeepSpeed's own classes (tools/make_schedule_golden.py) and the header's
// formulas.
#include "train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "support/paths.h"

namespace weft::train {
namespace {

using Json = nlohmann::json;

Schedule FromGolden(const Json& one, double optimizer_rate) {
    const Json& params = one.at("params");
    Schedule made;
    made.kind = *FindSchedule(one.at("type").get<std::string>());
    const bool cosine = made.kind == ScheduleKind::kWarmupCosineLr;
    made.rate = cosine ? optimizer_rate : params.value("warmup_max_lr", 1e-3);
    made.end = cosine ? params.value("cos_min_ratio", 1e-4) : 0;
    made.warmup_min = params.value(cosine ? "warmup_min_ratio" : "warmup_min_lr", 0.0);
    made.log_warmup = params.value("warmup_type", "log") == "log";
    made.warmup_steps = params.value("warmup_num_steps", 1000);
    made.total_steps = params.value("total_num_steps", 0);
    return made;
}

TEST(Schedule, GivesTheRatesOfDeepSpeedsClasses) {
    const auto text = ReadTextFile(support::TestData("/schedules.json"));
    ASSERT_TRUE(text.ok());
    const Json golden = Json::parse(*text);
    size_t compared = 0;
    for (const Json& one : golden.at("cases")) {
        const Schedule schedule = FromGolden(one, golden.at("optimizer_lr").get<double>());
        const Status checked = CheckSchedule(schedule);
        ASSERT_TRUE(checked.ok()) << checked.error().message;
        int64_t step = 0;
        for (const Json& rate : one.at("rates")) {
            // Both use float64 and the same formula: an error of a few 2^-53 of the highest rate.
            const double error = std::abs(LearningRate(schedule, step) - rate.get<double>());
            EXPECT_TRUE(error <= 8 * 0x1p-53 * schedule.rate)
                << one.at("type") << " " << one.at("params") << " step " << step << ": "
                << LearningRate(schedule, step) << " for " << rate;
            ++step;
            ++compared;
        }
    }
    EXPECT_GE(compared, 400u);
}

// The number of an argument, or 0.
template <typename T>
T Argument(const Json& args, const char* name) {
    return args.value(name, T{});
}

TEST(Schedule, GivesTheRatesOfTransformers) {
    const auto text = ReadTextFile(support::TestData("/hf_schedules.json"));
    ASSERT_TRUE(text.ok());
    const Json golden = Json::parse(*text);
    for (const Json& one : golden.at("cases")) {
        const Json& args = one.at("weft");
        Schedule asked;
        asked.kind = *FindSchedule(args.at("schedule").get<std::string>());
        asked.rate = golden.at("rate").get<double>();
        asked.warmup_steps = Argument<int64_t>(args, "warmup_steps");
        asked.warmup_ratio = Argument<double>(args, "warmup_ratio");
        asked.end = Argument<double>(args, "min_lr");
        asked.end_ratio = Argument<double>(args, "min_lr_rate");
        asked.decay_steps = Argument<int64_t>(args, "decay_steps");
        asked.decay_type = args.value("decay_type", "linear");
        ASSERT_TRUE(CheckScheduleOptions(asked).ok()) << args;
        const Schedule schedule = ForRun(asked, golden.at("steps").get<int64_t>());
        ASSERT_TRUE(CheckSchedule(schedule).ok()) << args;
        EXPECT_EQ(ForRun(schedule, 7), schedule) << args;
        int64_t step = 0;
        for (const Json& rate : one.at("rates")) {
            const double error = std::abs(LearningRate(schedule, step) - rate.get<double>());
            EXPECT_TRUE(error <= 8 * 0x1p-53 * schedule.rate)
                << args << " step " << step << ": " << LearningRate(schedule, step) << " for "
                << rate;
            ++step;
        }
        EXPECT_EQ(step, 41);
        EXPECT_EQ(LearningRate(schedule, 1'000'000), LearningRate(schedule, 40));
    }
    EXPECT_GE(golden.at("cases").size(), 12u);
}

TEST(Schedule, OwnFormsRiseThenFallToTheEnd) {
    Schedule schedule{
        .kind = ScheduleKind::kLinear, .rate = 1, .end = 0.2, .warmup_steps = 4, .total_steps = 12};
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 0);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 3), 0.75);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 4), 1);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 8), 0.6);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 12), 0.2);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1'000'000), 0.2);
    schedule.kind = ScheduleKind::kCosine;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 6), 0.2 + 0.8 * (1 + std::sqrt(0.5)) / 2);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 99), 0.2);
    schedule.kind = ScheduleKind::kConstant;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 1), 0.25);
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 99), 1);
    schedule.warmup_steps = 0;
    EXPECT_DOUBLE_EQ(LearningRate(schedule, 0), 1);
}

TEST(Schedule, NamesGoBothWays) {
    EXPECT_EQ(ScheduleNames().size(), 7u);
    for (const std::string_view name : ScheduleNames()) {
        ASSERT_TRUE(FindSchedule(name)) << name;
        EXPECT_EQ(ScheduleName(*FindSchedule(name)), name);
    }
    EXPECT_FALSE(FindSchedule("OneCycle"));
}

TEST(Schedule, RefusesWhatHasNoRate) {
    Schedule schedule{.rate = -1};
    EXPECT_EQ(CheckSchedule(schedule).error().code, ErrorCode::kUsage);
    schedule.rate = std::nan("");
    EXPECT_FALSE(CheckSchedule(schedule).ok());
    schedule = {.kind = ScheduleKind::kCosine, .rate = 1};
    EXPECT_NE(CheckSchedule(schedule).error().message.find("at least one"), std::string::npos);
    schedule.total_steps = 5;
    EXPECT_TRUE(CheckSchedule(schedule).ok());
    schedule.end = 2;
    EXPECT_FALSE(CheckSchedule(schedule).ok());
    schedule = {.kind = ScheduleKind::kWarmupStableDecay,
                .rate = 1,
                .warmup_steps = 3,
                .total_steps = 10,
                .decay_steps = 8};
    EXPECT_NE(CheckSchedule(schedule).error().message.find("8 of decay"), std::string::npos);
}

TEST(Schedule, RefusesOptionsThatDoNotCombine) {
    const auto message = [](const Schedule& schedule) {
        const Status checked = CheckScheduleOptions(schedule);
        return checked.ok() ? "" : checked.error().message;
    };
    EXPECT_EQ(message({.kind = ScheduleKind::kLinear, .warmup_ratio = 1, .end_ratio = 1}), "");
    EXPECT_NE(message({.warmup_ratio = 1.5}).find("shares"), std::string::npos);
    EXPECT_NE(message({.decay_ratio = std::nan("")}).find("shares"), std::string::npos);
    EXPECT_NE(message({.warmup_steps = 3, .warmup_ratio = 0.1}).find("Remove one"),
              std::string::npos);
    EXPECT_NE(message({.kind = ScheduleKind::kCosine, .end = 1e-6, .end_ratio = 0.1})
                  .find("--min-lr-rate"),
              std::string::npos);
    EXPECT_NE(message({.end = 1e-6}).find("--schedule constant"), std::string::npos);
    EXPECT_NE(message({.kind = ScheduleKind::kWarmupLr, .end_ratio = 0.1}).find("does not use it"),
              std::string::npos);
}

}  // namespace
}  // namespace weft::train
