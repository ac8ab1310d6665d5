// ZeRO's overlapped gathers and sums: the same bits, however long a transfer takes.
#include <gtest/gtest.h>

#include <optional>

#include "backend/device.h"
#include "support/nightly.h"
#include "support/slow_comm.h"
#include "support/tiny_model.h"
#include "train/graph.h"
#include "train/micro_batch.h"
#include "vulkan/usable_device.h"

namespace weft::train {
namespace {

using support::SlowComm;

class Overlap : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        name_ = GetParam();
        if (name_ != "cpu") name_ = backend::UsableName(&why_);
        if (name_.empty()) GTEST_SKIP() << "no Vulkan device to test with: " << why_;
        hyper_.head_dim = 8;  // attention kernels need multiples of 8
        support::SetRope(hyper_, 100);
        source_.emplace(hyper_);
    }
    // A model in small units, each gathered and summed separately.
    void Make(bool overlap, int slots) {
        GraphOptions options;
        options.zero = {.stage = 3, .unit_elements = 600};
        options.zero.prefetch_elements = overlap ? 1200 : 0;
        options.rows = 16;
        const model::Shard shard =
            model::PlanShards(hyper_, *source_, model::MakeLayout(1, 1, 1, {}).value())->shards[0];
        device_ = backend::OpenDevice(name_, {2, {}, false, true}).value();
        options.target = device_->info().target;
        auto graph = BuildTrainingGraph(hyper_, {&shard, 1}, *source_, options);
        ASSERT_TRUE(graph.ok()) << graph.error().message;
        units_ = std::move(graph->units);
        chunk_ = graph->program.chunks[0];
        backend::CompileOptions training;
        training.max_tokens = training.max_outputs = 16;
        training.slots = slots;
        training.beside = overlap;
        auto made = device_->Compile(std::move(graph->program), training);
        ASSERT_TRUE(made.ok()) << made.error().message;
        training_ = std::move(*made);
        uint32_t at = 0;
        for (const program::FlatBucket& unit : units_) {
            std::vector<float> floats(ElementsOf(unit.weights));
            for (float& x : floats) x = 0.2f * static_cast<float>(support::Formula("w", at++));
            ASSERT_TRUE(training_->Write(unit.weights, 0, std::as_bytes(std::span(floats))).ok());
        }
    }
    size_t ElementsOf(program::ValueId id) const {
        return static_cast<size_t>(training_->program().value(id).shape.Elements(0, 0));
    }
    Status Run(coll::Comm& comm, const program::OpRange& ops, int slot) {
        backend::Step step;
        const std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 3};
        std::vector<int32_t> rows(16);
        for (int32_t i = 0; i < 16; ++i) rows[static_cast<size_t>(i)] = i;
        const std::vector<backend::StepSequence> sequences = {{0, 16, 0, {}}};
        step.tokens = step.targets = tokens;
        step.positions = step.output_rows = rows;
        step.sequences = sequences;
        step.slot = slot;
        step.again = ops == chunk_.backward();
        backend::Communicators groups;
        groups.data = &comm;
        return training_->Run(ops, step, groups);
    }
    std::vector<std::byte> Gradients() {
        std::vector<std::byte> all;
        for (const program::FlatBucket& unit : units_) {
            std::vector<std::byte> bytes(ElementsOf(unit.gradients) * sizeof(float));
            EXPECT_TRUE(training_->Read(unit.gradients, 0, bytes).ok());
            all.insert(all.end(), bytes.begin(), bytes.end());
        }
        return all;
    }
    void Compare(int slots) {
        Make(false, slots);
        SlowComm comm;
        const auto passes = [&] {
            ASSERT_TRUE(training_->ZeroFill(program::Pool::kGradient).ok());
            for (int slot = 0; slot < slots; ++slot) {
                ASSERT_TRUE(Run(comm, chunk_.forward(), slot).ok());
            }
            for (int slot = 0; slot < slots; ++slot) {
                ASSERT_TRUE(Run(comm, chunk_.backward(), slot).ok());
            }
        };
        passes();
        const std::vector<std::byte> expected = Gradients();
        ASSERT_GT(units_.size(), 4u);
        EXPECT_EQ(comm.elsewhere(), 0);
        Make(true, slots);
        for (int round = 0; round < 4; ++round) {
            passes();
            EXPECT_TRUE(Gradients() == expected) << round;
        }
        EXPECT_GT(comm.elsewhere(), 8);
    }

    std::string name_, why_;
    model::Hyper hyper_ = support::TinyHyper("qwen2", false);
    std::optional<support::TinySource> source_;
    std::vector<program::FlatBucket> units_;
    std::shared_ptr<backend::Device> device_;
    std::unique_ptr<backend::Executable> training_;
    program::ModelChunk chunk_;
};

TEST_P(Overlap, GivesTheSameBits) {
    Compare(1);
}

TEST_P(Overlap, AlsoWithStepsUnderWay) {
    SKIP_TO_NIGHT_UNLESS(GetParam() == std::string_view("cpu"));
    Compare(3);
}

// Wherever the link fails, all threads leave the step, which returns the error.
TEST_P(Overlap, AnErrorEndsTheStep) {
    SKIP_TO_NIGHT_UNLESS(GetParam() == std::string_view("cpu"));
    for (const int after : {0, 1, 5, 9}) {
        Make(true, 1);
        SlowComm comm;
        comm.fails_after = after;
        Status status = Run(comm, chunk_.forward(), 0);
        if (status.ok()) status = Run(comm, chunk_.backward(), 0);
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
        // The error stays: memory after a failed step must not be used.
        EXPECT_FALSE(Run(comm, chunk_.forward(), 0).ok());
    }
}

INSTANTIATE_TEST_SUITE_P(On, Overlap, testing::Values("cpu", "vulkan"),
                         [](const auto& param) { return std::string(param.param); });

}  // namespace
}  // namespace weft::train
