// ZeRO's transformation: the places of weights and gradients, and the bytes on the wire.
#include "program/zero.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "program/arena.h"
#include "program/cost.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

Differentiated Tiny() {
    const model::Hyper hyper = support::TinyHyper("qwen2", false);
    const support::TinySource source(hyper);
    const Program forward = support::Build(hyper, source, {}, {DType::kF32, false})[0];
    DifferentiateOptions options;
    options.output = forward.Find("logits");
    return Differentiate(forward, options).value();
}

int64_t Elements(const std::vector<FlatBucket>& units, bool whole) {
    int64_t sum = 0;
    for (const FlatBucket& unit : units) sum += unit.whole == whole ? unit.elements : 0;
    return sum;
}

struct Wire {
    int64_t gathered = 0, reduced = 0;
};
Wire WireOf(const Program& program) {
    Wire wire;
    const std::vector<OpCost> costs = Cost(program, 8, 4, 0);
    for (size_t i = 0; i < costs.size(); ++i) {
        const OpKind kind = program.ops[i].kind();
        if (kind == OpKind::kZeroAllGather) wire.gathered += costs[i].wire_bytes / 4;
        if (kind == OpKind::kZeroReduceScatter) wire.reduced += costs[i].wire_bytes / 4;
    }
    return wire;
}

TEST(Zero, EveryWeightLiesInOneUnitAndNoTwoOverlap) {
    const Differentiated plain = Tiny();
    for (const int64_t most : {int64_t{1}, int64_t{2000}, int64_t{1} << 24}) {
        for (int stage = 0; stage <= 3; ++stage) {
            for (int rank = 0; rank < 3; ++rank) {
                const ZeroProgram zero = ApplyZero(plain, {stage, 3, rank, most, 0, {}});
                size_t members = 0;
                for (const FlatBucket& unit : zero.units) {
                    int64_t end = 0;
                    for (const FlatBucket::Member& member : unit.members) {
                        EXPECT_GE(member.begin, end);
                        end = member.begin + member.weight.shape.Elements(0, 0);
                        ++members;
                        EXPECT_TRUE(stage == 0 || unit.whole || member.weight.shape.rank == 2);
                    }
                    EXPECT_LE(end, unit.elements);
                    EXPECT_EQ(std::accumulate(unit.parts.begin(), unit.parts.end(), int64_t{0}),
                              unit.elements);
                    EXPECT_EQ(unit.weights_shared, stage == 3 && !unit.whole);
                    EXPECT_EQ(unit.gradients_shared, stage >= 2 && !unit.whole);
                }
                EXPECT_EQ(members, plain.gradients.size());
                EXPECT_TRUE(CheckShapes(zero.differentiated.program).ok());
            }
        }
    }
}

TEST(Zero, OwnPartsMakeTheWhole) {
    const Differentiated plain = Tiny();
    for (size_t u = 0; u < ApplyZero(plain, {1, 4, 0, 2000, 0, {}}).units.size(); ++u) {
        int64_t at = 0;
        for (int rank = 0; rank < 4; ++rank) {
            const FlatBucket unit = ApplyZero(plain, {1, 4, rank, 2000, 0, {}}).units[u];
            if (unit.whole) {
                EXPECT_EQ(unit.own_count, unit.elements);
                at = unit.elements;
                continue;
            }
            EXPECT_EQ(unit.own_begin, at);
            EXPECT_EQ(unit.own_count, unit.parts[static_cast<size_t>(rank)]);
            at += unit.own_count;
        }
        EXPECT_EQ(at, ApplyZero(plain, {1, 4, 0, 2000, 0, {}}).units[u].elements);
    }
}

// Stage 2 reduces each gradient once a pass; stage 3 gathers weights for the forward and again for
// the backward pass. (The embedding is read by no backward op, so it is gathered once.)
TEST(Zero, WhatGoesOverTheWire) {
    const Differentiated plain = Tiny();
    for (int stage = 0; stage <= 1; ++stage) {
        const Wire wire =
            WireOf(ApplyZero(plain, {stage, 2, 0, 2000, 0, {}}).differentiated.program);
        EXPECT_EQ(wire.gathered + wire.reduced, 0);
    }
    const ZeroProgram two = ApplyZero(plain, {2, 2, 0, 1, 0, {}});
    EXPECT_EQ(WireOf(two.differentiated.program).gathered, 0);
    EXPECT_EQ(WireOf(two.differentiated.program).reduced, Elements(two.units, false));
    const ZeroProgram three = ApplyZero(plain, {3, 2, 0, 1, 0, {"token_embd.weight"}});
    const Wire wire = WireOf(three.differentiated.program);
    int64_t once = 0;
    for (const FlatBucket& unit : three.units) once += unit.alone ? unit.elements : 0;
    EXPECT_GT(once, 0);
    // The output matrix is not gathered again, either: its two uses are adjacent.
    int64_t output = 0;
    for (const FlatBucket& unit : three.units) {
        if (unit.members[0].weight.slice.name == "output.weight") output = unit.elements;
    }
    EXPECT_GT(output, 0);
    EXPECT_EQ(wire.gathered, 2 * Elements(three.units, false) - once - output);
    EXPECT_EQ(wire.reduced, Elements(three.units, false));
}

TEST(Zero, SmallWeightsAreWhole) {
    const ZeroProgram zero = ApplyZero(Tiny(), {3, 2, 0, 1 << 20, 1 << 30, {}});
    for (const FlatBucket& unit : zero.units) EXPECT_TRUE(unit.whole);
    const Wire wire = WireOf(zero.differentiated.program);
    EXPECT_EQ(wire.gathered + wire.reduced, 0);
}

// By op: elements that were gathered and that no op has read yet.
std::vector<int64_t> Ahead(const Program& program, size_t backward_begin) {
    std::vector<int64_t> ahead;
    std::map<ValueId, bool> read;  // gathered values
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        if (op.kind() == OpKind::kZeroAllGather) {
            EXPECT_EQ(read.count(op.outputs[0]), 0u);
            read[op.outputs[0]] = false;
        }
        for (const ValueId id : op.inputs) {
            const auto home = read.find(program.HomeOf(id));
            if (home != read.end()) home->second = true;
        }
        int64_t sum = 0;
        for (const auto& [id, is_read] : read) {
            if (is_read) continue;
            sum += program.value(id).shape[0];
            EXPECT_FALSE(i == backward_begin - 1) << "gathered across the turn";
        }
        ahead.push_back(sum);
    }
    return ahead;
}

TEST(Zero, UnitsAreGatheredAhead) {
    const Differentiated plain = Tiny();
    const int64_t most = 3000;
    int64_t largest = 0;
    std::vector<int64_t> peaks;
    for (const int64_t prefetch : {int64_t{0}, int64_t{1}, most, 3 * most}) {
        ZeroOptions options{3, 2, 0, most, 0, {}};
        options.prefetch_elements = prefetch;
        const ZeroProgram zero = ApplyZero(plain, options);
        const Program& program = zero.differentiated.program;
        for (const FlatBucket& unit : zero.units) largest = std::max(largest, unit.elements);
        const std::vector<int64_t> ahead = Ahead(program, zero.differentiated.backward_begin);
        peaks.push_back(*std::ranges::max_element(ahead));
        // (The unit whose use begins with the next op counts, too.)
        EXPECT_LE(peaks.back(), std::max(prefetch, largest) + largest);
        const Wire wire = WireOf(program),
                   at_once =
                       WireOf(ApplyZero(plain, {3, 2, 0, most, 0, {}}).differentiated.program);
        EXPECT_EQ(wire.gathered, at_once.gathered);
        EXPECT_EQ(wire.reduced, at_once.reduced);
    }
    EXPECT_LE(peaks[0], largest);
    EXPECT_LT(peaks[0], peaks[1]);
    EXPECT_LT(peaks[2], peaks[3]);
}

// Then one unit's gradients may be on the wire while ops add to the next unit's.
TEST(Zero, GradientsLingerWhereSumsOverlap) {
    ChunkedProgram chunked;
    Differentiated shared_out = ApplyZero(Tiny(), {2, 2, 0, 3000, 0, {}}).differentiated;
    const size_t turn = shared_out.backward_begin;
    AppendChunk(chunked, {std::move(shared_out), turn, turn, {}}, kNoValue);
    const Program& program = chunked.program;
    for (const bool overlap : {false, true}) {
        const ArenaPlan plan = PlanTrainingArena(chunked, 8, 4, {false, overlap}).kept;
        int shared = 0, pairs = 0;
        int64_t last_begin = 0, last_end = 0;
        for (const Op& op : program.ops) {
            if (op.kind() != OpKind::kZeroReduceScatter) continue;
            const Value& value = program.value(op.inputs[0]);
            const int64_t begin = plan.offsets[static_cast<size_t>(op.inputs[0])];
            const int64_t end = begin + RowBytes(value.dtype, value.shape[0]);
            shared += begin < last_end && last_begin < end ? 1 : 0;
            ++pairs;
            last_begin = begin;
            last_end = end;
        }
        EXPECT_GE(pairs, 3);
        EXPECT_EQ(shared > 0, !overlap);
    }
}

}  // namespace
}  // namespace weft::program
