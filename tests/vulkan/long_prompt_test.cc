// Long computations are split, so that no driver's watchdog ends them: ops in parts, prompts of
// 32,000 tokens.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "backend/gpu/compile.h"
#include "model/load.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/tiny_model.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

using program::ValueId;

TEST(VulkanParts, CoverAllWorkgroupsOnce) {
    Dispatch d;
    d.x = 3;
    d.y = 7;
    d.z = 100;
    EXPECT_EQ(d.MostParts(), 1u);
    EXPECT_EQ(d.Part(0, 1).count, (std::array<uint32_t, 3>{3, 7, 100}));
    for (const Parts parts : {Parts::kAlongY, Parts::kAlongZ}) {
        d.parts = parts;
        const size_t axis = parts == Parts::kAlongY ? 1 : 2;
        for (const uint32_t count : {1u, 2u, 5u, d.MostParts()}) {
            uint32_t next = 0;
            for (uint32_t i = 0; i < count; ++i) {
                const gpu::WorkgroupCounts part = d.Part(i, count);
                EXPECT_EQ(part.first[axis], next);
                EXPECT_GT(part.count[axis], 0u);
                next += part.count[axis];
                for (size_t other = 0; other < 3; ++other) {
                    if (other == axis) continue;
                    EXPECT_EQ(part.first[other], 0u);
                    EXPECT_EQ(part.count[other], d.Part(0, 1).count[other]);
                }
            }
            EXPECT_EQ(next, d.MostParts());
        }
    }
}

// A llama of one layer, whose attention of a few hundred rows over 32,000 positions far exceeds the
// longest submission allowed on lavapipe.
class LongPrompt : public testing::Test {
  protected:
    static constexpr int64_t kPositions = 32'000, kChunk = 512;

    void SetUp() override {
        hyper_ = support::TinyHyper("llama", false);
        hyper_.layers = 1;
        hyper_.heads = 2;
        hyper_.kv_heads = 1;
        hyper_.head_dim = 32;
        hyper_.context = kPositions;
        support::SetRope(hyper_, 10000);
        source_.emplace(hyper_);
        model::BuildOptions options;
        options.kv_dtype = DType::kF16;
        options.context = kPositions;
        options.target.float64_reductions = false;
        program_ = support::Build(hyper_, *source_, {}, options)[0];
    }
    // most_seconds: the target for the duration of a submission.
    void Compile(const std::shared_ptr<gpu::Device>& device, double most_seconds) {
        CompileOptions options;
        options.max_tokens = kChunk;
        options.max_outputs = 1;
        options.kv_pages = (kPositions + kPageTokens - 1) / kPageTokens;
        options.page_tokens = kPageTokens;
        options.keep = {program_.Find("logits")};
        pages_.resize(static_cast<size_t>(options.kv_pages));
        std::iota(pages_.rbegin(), pages_.rend(), 0);
        const MemoryPool pool{MemoryKind::kHost, uint64_t{1} << 40, uint64_t{1} << 40};
        context_ = std::make_shared<Context>(device, "vulkan", false);
        context_->limits.most_seconds = most_seconds;
        executable_ = CompileForVulkan({program_}, options, context_, pool).value();
        for (size_t i = 0; i < program_.values.size(); ++i) {
            const program::Value& value = program_.values[i];
            if (value.storage != program::Storage::kWeight) continue;
            const auto read = [&](int64_t row, int64_t count, std::span<std::byte> out) {
                return model::ReadWeight(*source_, value, row, count, out, nullptr);
            };
            ASSERT_TRUE(executable_->LoadWeight(static_cast<ValueId>(i), read).ok());
        }
    }
    // Runs a chunk of the prompt; returns the logits after it.
    std::vector<float> Run(int64_t position, int64_t rows) {
        std::vector<int32_t> tokens(static_cast<size_t>(rows)), positions(tokens.size());
        for (size_t i = 0; i < tokens.size(); ++i) {
            positions[i] = static_cast<int32_t>(position) + static_cast<int32_t>(i);
            tokens[i] = positions[i] * 31 % static_cast<int32_t>(hyper_.vocab);
        }
        const std::vector<int32_t> outputs = {static_cast<int32_t>(rows) - 1};
        const std::vector<StepSequence> sequences = {
            {0, static_cast<int32_t>(rows), static_cast<int32_t>(position), pages_}};
        const Status status = executable_->Run(
            executable_->whole(), {++step_, tokens, positions, sequences, outputs}, {});
        EXPECT_TRUE(status.ok()) << status.error().message;
        std::vector<float> logits(static_cast<size_t>(hyper_.vocab));
        EXPECT_TRUE(executable_->ReadFloats(program_.Find("logits"), 0, logits).ok());
        return logits;
    }
    double Longest() { return context_->longest_seconds.exchange(0); }

    model::Hyper hyper_;
    std::optional<support::TinySource> source_;
    program::Program program_;
    std::vector<int32_t> pages_;
    std::shared_ptr<Context> context_;
    std::unique_ptr<Executable> executable_;
    int64_t step_ = 0;
};

// Such a prompt, with the device's speed
// measured on the first chunk: amdgpu's watchdog is 2 s, and the target for a submission is a tenth
// of that. (The first steps compile kernels within their submissions.)
TEST_F(LongPrompt, NoSubmissionIsLong) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_VULKAN(device);
    constexpr double kWatchdogSeconds = 2, kAim = 0.2;
    Compile(device, 1e9);
    Run(0, kChunk);
    Longest();
    Run(kPositions - kChunk, kChunk);
    const double uncut = Longest();
    if (device->description().kind != gpu::Kind::kCpu && uncut <= kAim) {
        GTEST_SKIP() << "this GPU takes " << uncut << " s: nothing is to be cut";
    }
    EXPECT_GT(uncut, kAim) << "cutting would not be needed";
    Compile(device, kAim);
    for (int i = 0; i < 20; ++i) Run(0, kChunk);
    double longest = 0;
    Longest();
    for (int64_t at = kChunk; at < kPositions; at += kChunk) {
        Run(at, std::min(kChunk, kPositions - at));
        const double now = Longest();
        EXPECT_LE(now, kWatchdogSeconds) << "the chunk at " << at;
        longest = std::max(longest, now);
    }
    std::printf("the longest submission: %.3f s, uncut %.3f s\n", longest, uncut);
}

// A chunk has the same bits with and without splitting.
TEST_F(LongPrompt, PartsChangeNoBits) {
    WEFT_VULKAN(device);
    constexpr int64_t kFar = 2048, kRows = 200;
    Compile(device, 1e9);
    const std::vector<float> first = Run(0, kRows), whole = Run(kFar, kRows);
    EXPECT_FALSE(std::isnan(whole[0]));
    Compile(device, 1e-9);
    EXPECT_EQ(Run(0, kRows), first);
    // Each part counts as progress for other ranks.
    const int64_t before = executable_->progress();
    EXPECT_EQ(Run(kFar, kRows), whole);
    EXPECT_GT(executable_->progress() - before, 2 * static_cast<int64_t>(program_.ops.size()));
    EXPECT_EQ(Run(kFar, kRows), whole);
    // A trace still has one time for each op.
    executable_->SetTracing(true);
    EXPECT_EQ(Run(kFar, kRows), whole);
    const std::span<const OpTiming> timings = executable_->timings();
    ASSERT_EQ(timings.size(), program_.ops.size());
    for (size_t i = 0; i < timings.size(); ++i) EXPECT_EQ(timings[i].op, static_cast<int32_t>(i));
}

}  // namespace
}  // namespace weft::backend::on_gpu
