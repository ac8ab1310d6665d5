// Loss scalers against DeepSpeed's and PyTorch's, step by step (tools/make_loss_scale_golden.py).
#include "train/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "support/paths.h"

namespace weft::train {
namespace {

using nlohmann::json;

LossScaleOptions OptionsOf(const json& of) {
    LossScaleOptions options;
    options.initial = std::exp2(of.at("power").get<double>());
    options.window = of.at("window");
    options.first_counts = of.at("of") == "torch";
    options.hysteresis = of.at("hysteresis");
    options.refills = of.at("consecutive");
    options.least = of.at("least");
    return options;
}

// One step; false: the run ends.
bool Tell(LossScaler& scaler, char step) {
    if (step == 'x') return scaler.Overflowed();
    scaler.Made();
    return true;
}

TEST(LossScale, FollowsDeepSpeedAndTorch) {
    std::ifstream file(support::TestData("/loss_scales.json"));
    int ended = 0;
    for (const json& of : json::parse(file)) {
        SCOPED_TRACE(of.at("steps").get<std::string>());
        const LossScaleOptions options = OptionsOf(of);
        ASSERT_TRUE(CheckLossScale(options).ok());
        LossScaler scaler(options);
        const std::string steps = of.at("steps");
        for (size_t i = 0; i < steps.size(); ++i) {
            const bool ends = !of.at("ends").is_null() && of.at("ends") == i;
            ASSERT_EQ(Tell(scaler, steps[i]), !ends) << i;
            if (ends) {
                ++ended;
                break;
            }
            ASSERT_EQ(scaler.scale(), of.at("scales").at(i)) << i;
            // A scaler restored from a checkpoint continues the same way.
            LossScaler other(options);
            ASSERT_TRUE(other.Restore(scaler.state()).ok());
            scaler = other;
        }
    }
    EXPECT_GE(ended, 1);
}

TEST(LossScale, AFixedOneStays) {
    LossScaleOptions options;
    options.fixed = 1000;
    options.window = 1;
    LossScaler scaler(options);
    for (const char step : std::string(50, 'x') + std::string(50, '.')) {
        EXPECT_TRUE(Tell(scaler, step));
        EXPECT_EQ(scaler.scale(), 1000);
    }
    ASSERT_TRUE(scaler.Restore({64, 3, 1}).ok());
    EXPECT_EQ(scaler.scale(), 1000);
}

// With any number of steps without overflow, 1 / scale and scale / targets stay float32 numbers.
TEST(LossScale, StaysInTheRangeOfFloat32) {
    LossScaleOptions options;
    options.window = 1;
    options.least = 0;
    LossScaler scaler(options);
    for (int i = 0; i < 500; ++i) scaler.Made();
    EXPECT_EQ(scaler.scale(), 0x1p127);
    int halved = 0;
    while (scaler.Overflowed() && halved < 1000) ++halved;
    EXPECT_EQ(halved, 127 + 125);
    EXPECT_EQ(scaler.scale(), 0x1p-125);
}

TEST(LossScale, WhatMakesNoSenseIsRefused) {
    const auto refused = [](auto change) {
        LossScaleOptions options;
        change(options);
        const Status status = CheckLossScale(options);
        return !status.ok() && status.error().code == ErrorCode::kUsage;
    };
    EXPECT_FALSE(refused([](LossScaleOptions&) {}));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.fixed = -1; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.fixed = NAN; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.fixed = INFINITY; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.initial = 0; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.initial = NAN; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.window = 0; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.hysteresis = 0; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.least = 0x1p17; }));
    EXPECT_TRUE(refused([](LossScaleOptions& o) { o.least = NAN; }));
    LossScaler scaler({});
    for (const LossScaleState& state :
         {LossScaleState{0, 0, 1}, {NAN, 0, 1}, {INFINITY, 0, 1}, {1, -1, 1}, {1, 0, 0}}) {
        EXPECT_EQ(scaler.Restore(state).error().code, ErrorCode::kCorrupt);
    }
    EXPECT_EQ(scaler.scale(), 0x1p16);
}

}  // namespace
}  // namespace weft::train
