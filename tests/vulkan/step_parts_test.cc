// Steps that run in parts: how rows are cut, the same bits as in one piece for any mix of
// sequences, and a lost peer, which ends the step with an error.
#include "backend/gpu/memory/step_parts.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <numeric>

#include "backend/parts.h"
#include "coll/comm.h"
#include "net/local.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/slow_comm.h"
#include "support/tiny_model.h"
#include "tensor/half.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

using support::LoadedRank;
constexpr size_t kWindow = size_t{1} << 20;

// Sequences of `counts` rows, each with its own pages and state slot, and outputs of some rows.
struct PartsStep {
    std::vector<int32_t> tokens, positions, outputs;
    std::vector<std::vector<int32_t>> pages;
    std::vector<StateWrite> writes;
    std::vector<StepSequence> sequences;
    int64_t number = 1;

    PartsStep(std::span<const int32_t> counts, std::vector<int32_t> output_rows)
        : outputs(std::move(output_rows)) {
        int32_t row = 0;
        for (const int32_t count : counts) {
            const auto i = static_cast<int32_t>(sequences.size());
            pages.push_back({i});
            sequences.push_back({row, count, 0, {}, 0, -1, i});
            for (int32_t at = 0; at < count; ++at) {
                tokens.push_back((row + at) * 37 % 61);
                positions.push_back(at);
            }
            row += count;
        }
        for (size_t i = 0; i < pages.size(); ++i) sequences[i].pages = pages[i];
    }
    Step View() const { return {number, tokens, positions, sequences, outputs}; }
};

TEST(StepParts, OutputsAndLaterRowsAreInTheLastPart) {
    // Two decoding sequences, a prompt that ends, and one that continues.
    PartsStep step(std::array{1, 1, 20, 18}, {0, 1, 21});
    step.sequences[2].prompt_rows = 15;
    step.writes = {{8, 5}, {21, 6}};
    step.sequences[2].state_writes = step.writes;
    std::array<StepPart, 2> parts;
    ASSERT_TRUE(CutStep(step.View(), 1, 20, parts));
    const StepPart &a = parts[0], &b = parts[1];
    EXPECT_TRUE(a.output_rows.empty());
    EXPECT_EQ(a.tokens.size(), 20u);
    ASSERT_EQ(a.sequences.size(), 2u);
    EXPECT_EQ(a.sequences[0].row_count, 19);
    EXPECT_EQ(a.sequences[0].prompt_rows, 15);
    EXPECT_EQ(a.sequences[0].state_to, 2);
    EXPECT_EQ(a.sequences[0].state_writes.size(), 1u);
    EXPECT_EQ(a.sequences[0].state_writes[0], (StateWrite{6, 5}));
    EXPECT_EQ(a.sequences[1].row_begin, 19);
    EXPECT_EQ(a.sequences[1].row_count, 1);
    ASSERT_EQ(b.sequences.size(), 4u);
    EXPECT_EQ(b.output_rows, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(b.sequences[2].position, 19);
    EXPECT_EQ(b.sequences[2].prompt_rows, 0);
    EXPECT_EQ(b.sequences[2].state_from, 2);
    EXPECT_EQ(b.sequences[2].state_writes[0], (StateWrite{2, 6}));
    EXPECT_EQ(b.sequences[3].row_count, 17);
    EXPECT_EQ(b.positions.back(), 17);
    EXPECT_EQ(b.tokens.back(), step.tokens.back());
}

TEST(StepParts, SomeStepsStayWhole) {
    std::array<StepPart, 2> parts;
    // All rows have outputs; a part would have too few rows; a part would have too many.
    EXPECT_FALSE(CutStep(PartsStep(std::array{3}, {0, 1, 2}).View(), 1, 3, parts));
    EXPECT_FALSE(CutStep(PartsStep(std::array{40}, {39}).View(), 21, 40, parts));
    EXPECT_FALSE(CutStep(PartsStep(std::array{4, 40}, {1, 43}).View(), 1, 21, parts));
    EXPECT_TRUE(CutStep(PartsStep(std::array{4, 40}, {1, 43}).View(), 1, 22, parts));
}

TEST(StepParts, ASequenceMayPassThroughAllParts) {
    PartsStep step(std::array{3, 41}, {2, 43});
    step.sequences[1].prompt_rows = 30;
    std::array<StepPart, 4> parts;
    ASSERT_TRUE(CutStep(step.View(), 11, 11, parts));
    const std::array<int32_t, 4> positions{0, 9, 20, 31}, narrow{9, 11, 10, 0};
    for (size_t i = 0; i < parts.size(); ++i) {
        const StepSequence& s = parts[i].sequences.back();
        EXPECT_EQ(s.position, positions[i]);
        EXPECT_EQ(s.state_from, i == 0 ? -1 : 1);
        EXPECT_EQ(s.prompt_rows, narrow[i]);
        EXPECT_EQ(parts[i].output_rows.size(), i == 3 ? 2u : 0u);
    }
    EXPECT_EQ(parts[3].output_rows, (std::vector<int32_t>{0, 10}));
}

TEST(StepParts, WhatIsLeftIsDividedByThePartsLeft) {
    std::array<StepPart, 4> parts;
    for (const int32_t rows : {2045, 2046, 2047, 2048}) {
        ASSERT_TRUE(CutStep(PartsStep(std::array{rows}, {rows - 1}).View(), 511, 512, parts))
            << rows;
    }
    // Earlier parts have as few rows as they can: only 1000 rows are before the first output.
    ASSERT_TRUE(CutStep(PartsStep(std::array{1002}, {1000, 1001}).View(), 250, 251, parts));
    EXPECT_EQ(parts[3].tokens.size(), 251u);
}

// All steps of enough rows run in parts that have enough rows and fit in their memory, and in no
// more parts than needed.
TEST(StepParts, AStepHasAsManyPartsAsFit) {
    for (const int64_t least : {LeastRowsOfDevicePart(0, 0), LeastRowsOfDevicePart(128, 8)}) {
        for (const int64_t most_rows : {2 * least, 7 * least - 1, 7 * least, 8 * least + 3}) {
            const DevicePartSpace room{most_rows, DevicePartsOfRows(most_rows, least)};
            EXPECT_EQ(DevicePartsOfRows(2 * least - 1, least, room), 0);
            for (int64_t rows = 2 * least; rows <= most_rows; ++rows) {
                const int64_t parts = DevicePartsOfRows(rows, least, room);
                ASSERT_GE(parts, DevicePartsOfRows(rows, least, room.most_parts));
                ASSERT_LE(parts, room.most_parts);
                ASSERT_GE(rows / parts, least) << rows << " of " << most_rows;
                ASSERT_LE(rows, parts * room.rows()) << rows << " of " << most_rows;
            }
        }
    }
    const DevicePartSpace room{1024, DevicePartsOfRows(1024, LeastRowsOfDevicePart(0, 0))};
    const auto parts_of = [&](int64_t rows) {
        return DevicePartsOfRows(rows, LeastRowsOfDevicePart(0, 0), room);
    };
    EXPECT_EQ(parts_of(257), 0);
    EXPECT_EQ(parts_of(258), 2);
    EXPECT_EQ(parts_of(512), 2);
    EXPECT_EQ(parts_of(513), 3);
    EXPECT_EQ(parts_of(769), 4);
    EXPECT_EQ(parts_of(1024), 4);
}

// Logits of the step's outputs on both ranks; sums: all-reduces of the step.
std::vector<float> PartsLogits(const model::Hyper& hyper, const PartsStep& step, Overlap overlap,
                               SumWire prompt_wire, size_t& sums) {
    const support::TinySource source(hyper);
    model::BuildOptions build;
    build.kv_dtype = DType::kF32;
    build.target.float64_reductions = false;
    model::Layout layout;
    layout.tp = 2;
    const auto programs = support::Build(hyper, source, layout, build);
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kTcp, kWindow).value();
    std::vector<float> logits[2];
    weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const auto comm =
            coll::Comm::Make(fabric, {0, 1}, {0, kWindow, 0, net::kFlags}, 60'000).value();
        const auto r = static_cast<size_t>(fabric.rank);
        LoadedRank rank(OpenVulkan(), programs[r], source, std::ssize(step.tokens), overlap);
        Communicators groups{comm.get()};
        groups.prompt_wire = prompt_wire;
        Executable& executable = rank.executable();
        for (int again = 0; again < 2; ++again) {  // also with kept recordings
            ASSERT_TRUE(executable.Run(executable.whole(), step.View(), groups).ok());
        }
        if (r == 0) sums = executable.transfers().all_reduce_us().size();
        logits[r].resize(step.outputs.size() * static_cast<size_t>(hyper.vocab));
        ASSERT_TRUE(executable.ReadFloats(programs[r].Find("logits"), 0, logits[r]).ok());
        std::vector<Candidate> best(3), want(3);
        const auto row = std::span(logits[r]).last(static_cast<size_t>(hyper.vocab));
        ASSERT_TRUE(executable
                        .ReadTopK(programs[r].Find("logits"), std::ssize(step.outputs) - 1,
                                  hyper.vocab, best)
                        .ok());
        TopK(row, want);
        EXPECT_EQ(best[0].index, want[0].index);
    });
    EXPECT_EQ(logits[0], logits[1]);
    return logits[0];
}

TEST(VulkanStepParts, HaveTheBitsOfTheWholeStep) {
    WEFT_NEEDS_VULKAN();
    model::Hyper dense = support::TinyHyper("qwen3", false);
    dense.hidden = 64;  // shorter rows are never narrow
    for (const model::Hyper& hyper : {dense, support::TinyRecurrentHyper(false)}) {
        PartsStep step(std::array{1, 60, 40}, {0, 60, 100});
        step.sequences[1].prompt_rows = 60;
        for (const SumWire wire : {SumWire::kF64, SumWire::kBF16}) {
            size_t whole_sums = 0, sums = 0;
            const auto whole = PartsLogits(hyper, step, Overlap::kNever, wire, whole_sums);
            EXPECT_EQ(PartsLogits(hyper, step, Overlap::kAlways, wire, sums), whole);
            // (The last layer's sums may be of output rows only.)
            EXPECT_GE(sums, 2 * whole_sums - 2);
        }
    }
}

// TinySource with matrices in float16, which matrix units multiply.
class HalfSource final : public model_files::ModelSource {
  public:
    explicit HalfSource(const model::Hyper& hyper) : table_(hyper, DType::kF16), floats_(hyper) {}
    const std::string& name() const override { return table_.name(); }
    const model_files::Metadata& meta() const override { return table_.meta(); }
    const std::vector<model_files::TensorInfo>& tensors() const override {
        return table_.tensors();
    }
    const model_files::TensorInfo* FindTensor(std::string_view tensor) const override {
        return table_.FindTensor(tensor);
    }
    Status ReadRows(const model_files::TensorInfo& info, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* read) const override {
        const auto from = [&](std::span<std::byte> to) {
            return floats_.ReadRows(info, row_begin, row_count, col_begin, col_count, to, read);
        };
        if (info.dtype == DType::kF32) return from(out);
        std::vector<float> floats(static_cast<size_t>(row_count * col_count));
        WEFT_TRY(from(std::as_writable_bytes(std::span(floats))));
        for (size_t i = 0; i < floats.size(); ++i) {
            const uint16_t half = F32ToF16(floats[i]);
            std::memcpy(out.data() + i * sizeof(half), &half, sizeof(half));
        }
        return {};
    }
    Result<std::string> Fingerprint() const override { return table_.Fingerprint(); }

  private:
    support::TinySource table_, floats_;
};

// Logits of one rank of two on emulated matrix units; parts: of the step, 1 or more. The other
// rank's addends are zeros. most_rows: of a step; 0: of this one.
std::vector<float> MatrixLogits(std::span<const int32_t> counts, Overlap overlap, size_t& parts,
                                int64_t most_rows = 0) {
    model::Hyper hyper = support::TinyHyper("qwen3", false);
    hyper.hidden = 1024;  // products of as many columns are divided
    hyper.heads = 4, hyper.kv_heads = 2;
    hyper = support::WithHeadDim(hyper, 16);
    hyper.ffn = 128;
    const HalfSource source(hyper);
    model::BuildOptions build;
    build.target.float64_reductions = false;
    model::Layout layout;
    layout.tp = 2;
    const auto programs = support::Build(hyper, source, layout, build);
    const int32_t rows = std::accumulate(counts.begin(), counts.end(), 0);
    const PartsStep step(counts, {rows - 1});
    const Arithmetic emulated{.matrix = Arithmetic::Matrix::kEmulated, .split_groups = 8};
    LoadedRank rank(OpenVulkan({.arithmetic = emulated}), programs[0], source,
                    std::max<int64_t>(most_rows, rows), overlap);
    support::SlowComm comm(2, 0);
    Executable& executable = rank.executable();
    EXPECT_TRUE(executable.Run(executable.whole(), step.View(), {&comm}).ok());
    parts = executable.transfers().all_reduce_us().size() / static_cast<size_t>(2 * hyper.layers);
    std::vector<float> logits(static_cast<size_t>(hyper.vocab) / 2);
    EXPECT_TRUE(executable.ReadFloats(programs[0].Find("logits"), 0, logits).ok());
    return logits;
}

// Matrix units divide products of up to 128 rows along the columns, so parts of 128 rows would have
// other bits than a step of 256.
TEST(VulkanStepParts, HaveTheBitsOfTheWholeStepOnMatrixUnits) {
    WEFT_NEEDS_VULKAN();
    for (const auto& [last, wanted] : {std::pair{0, 1u}, {1, 1u}, {2, 2u}}) {
        std::vector<int32_t> counts(4, 64);
        if (last > 0) counts.push_back(last);
        size_t whole = 0, parts = 0;
        const std::vector<float> logits = MatrixLogits(counts, Overlap::kNever, whole);
        EXPECT_EQ(MatrixLogits(counts, Overlap::kAuto, parts), logits) << 256 + last << " rows";
        EXPECT_EQ(whole, 1u);
        EXPECT_EQ(parts, wanted) << 256 + last << " rows";
    }
}

// With memory for four parts of 226 rows, two parts of 453 rows do not fit.
TEST(VulkanStepParts, AreThreeIfTwoDoNotFit) {
    WEFT_NEEDS_VULKAN();
    const std::array counts{64, 64, 64, 64, 64, 64, 64, 5};
    size_t whole = 0, parts = 0;
    const std::vector<float> logits = MatrixLogits(counts, Overlap::kNever, whole, 903);
    EXPECT_EQ(MatrixLogits(counts, Overlap::kAuto, parts, 903), logits);
    EXPECT_EQ(parts, 3u);
}

TEST(VulkanStepParts, ALostPeerEndsTheStep) {
    WEFT_NEEDS_VULKAN();
    const model::Hyper hyper = support::TinyHyper("qwen3", false);
    const support::TinySource source(hyper);
    model::BuildOptions build;
    build.target.float64_reductions = false;
    model::Layout layout;
    layout.tp = 2;
    const auto programs = support::Build(hyper, source, layout, build);
    const PartsStep step(std::array{64}, {63});
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kTcp, kWindow).value();
    weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const auto comm =
            coll::Comm::Make(fabric, {0, 1}, {0, kWindow, 0, net::kFlags}, 20'000).value();
        LoadedRank rank(OpenVulkan(), programs[static_cast<size_t>(fabric.rank)], source, 64,
                        Overlap::kAlways);
        Executable& executable = rank.executable();
        ASSERT_TRUE(executable.Run(executable.whole(), step.View(), {comm.get()}).ok());
        if (fabric.rank == 1) {
            fabric.links.clear();
            return;
        }
        for (int again = 0; again < 2; ++again) {
            const Status status = executable.Run(executable.whole(), step.View(), {comm.get()});
            ASSERT_FALSE(status.ok());
            EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
            EXPECT_NE(status.error().message.find("rank 1"), std::string::npos);
        }
    });
}

}  // namespace
}  // namespace weft::backend::on_gpu
