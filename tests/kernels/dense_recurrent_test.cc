// The gradients of dense/recurrent.h against slopes of the plain formulas in double, over sequences
// longer than the rows of which states are kept; the same bits for any number of parts.
#include "kernels/dense/recurrent.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "support/kernel_levels.h"
#include "support/naive_recurrent.h"

namespace weft::kernels::dense {
namespace {

using support::OpCall, test::Random;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;

const std::vector<Sequence> kSequences = {{0, 70, 0, {}}, {70, 1, 0, {}}, {71, 33, 0, {}}};
constexpr int64_t kRows = 104;

// An op over inputs of some rows each, whose loss is the sum of dy * y.
struct Sloped {
    std::vector<Floats> inputs;
    std::vector<int64_t> rows;  // of each input
    Floats dy;
    std::function<void(OpCall<double>&)> naive;

    double Loss(std::vector<Doubles> values) const {
        Doubles y(dy.size());
        OpCall<double> call;
        for (size_t i = 0; i < values.size(); ++i) call.in.push_back({values[i], rows[i]});
        call.out.push_back({y, kRows});
        call.sequences = kSequences;
        naive(call);
        double loss = 0;
        for (size_t i = 0; i < dy.size(); ++i) loss += double{dy[i]} * y[i];
        return loss;
    }

    // Whether `gradient` of input `which` is the slope along a direction. Sums of float32 over 70
    // rows of states have errors of some 1e-5 of their largest addends.
    void Expect(size_t which, const Floats& gradient, Random& random, const char* what) const {
        ASSERT_EQ(gradient.size(), inputs[which].size()) << what;
        std::vector<Doubles> values;
        for (const Floats& input : inputs) values.emplace_back(input.begin(), input.end());
        const Floats direction = random.Normals(static_cast<int64_t>(gradient.size()));
        const double step = 1e-5;
        double along = 0, size = 0, slope = 0;
        for (const double sign : {1.0, -1.0}) {
            std::vector<Doubles> moved = values;
            for (size_t i = 0; i < direction.size(); ++i) {
                moved[which][i] += sign * step * double{direction[i]};
            }
            slope += sign * Loss(moved) / (2 * step);
        }
        for (size_t i = 0; i < direction.size(); ++i) {
            along += double{gradient[i]} * double{direction[i]};
            size += std::abs(double{gradient[i]} * double{direction[i]});
        }
        EXPECT_GT(size, 0) << what;
        EXPECT_TRUE(std::abs(along - slope) <= 1e-4 * size)
            << what << ": " << along << ", " << slope;
    }
};

Floats SumsOfRows(const Floats& rows, int64_t cols) {
    Floats sums(static_cast<size_t>(cols), 0.0f);
    for (size_t i = 0; i < rows.size(); ++i) sums[i % sums.size()] += rows[i];
    return sums;
}

struct DeltaCase {
    bool by_channel = false, ssd = false;
    float floor = 0;
    int64_t keys = 2;  // key heads: 1, 2 or 3

    int64_t first_head() const { return keys == 3 ? 0 : 1; }
    int64_t group() const { return keys == 1 ? 4 : 4 - keys; }
};

constexpr int64_t kHeads = 3, kDim = 5, kCols = 7;

program::DeltaRule RuleOf(const DeltaCase& c) {
    program::DeltaRule rule;
    rule.first_head = c.first_head();
    rule.key_heads = c.keys;
    rule.group = c.group();
    rule.query_scale = 0.5f;
    rule.key_scale = 0.4f;
    rule.by_channel = c.by_channel;
    rule.ssd = c.ssd;
    rule.floor = c.floor;
    return rule;
}

// The op over random inputs, with a below 0.
Sloped RandomDelta(const DeltaCase& c, Random& random) {
    Sloped sloped;
    const int64_t each = c.by_channel ? kDim : 1;
    const auto add = [&](int64_t rows, int64_t cols, float scale) {
        Floats values = random.Normals(rows * cols);
        for (float& value : values) value *= scale;
        sloped.inputs.push_back(values);
        sloped.rows.push_back(rows);
    };
    add(kRows, c.keys * kDim, 1), add(kRows, c.keys * kDim, 1), add(kRows, kHeads * kCols, 1);
    add(kRows, kHeads * each, 1);
    if (!c.ssd) add(kRows, kHeads, 1);
    add(kHeads, 1, 0.3f);
    for (float& a : sloped.inputs.back()) a = -std::abs(a);
    add(kHeads * each, 1, 1);
    if (c.ssd) add(kHeads, 1, 1);
    sloped.dy = random.Normals(kRows * kHeads * kCols);
    sloped.naive = [rule = RuleOf(c)](OpCall<double>& call) { support::naive::Do(rule, call); };
    return sloped;
}

DeltaRuleArgs RuleArgs(const DeltaCase& c, const Sloped& sloped) {
    DeltaRuleArgs rule;
    rule.q = sloped.inputs[0].data();
    rule.k = sloped.inputs[1].data();
    rule.v = sloped.inputs[2].data();
    rule.skip = c.ssd ? sloped.inputs[6].data() : nullptr;
    rule.heads = kHeads, rule.key_heads = c.keys;
    rule.key_dim = kDim, rule.value_dim = kCols, rule.each = c.by_channel ? kDim : 1;
    rule.first_head = c.first_head(), rule.group = c.group();
    rule.query_scale = 0.5f, rule.key_scale = 0.4f;
    return rule;
}

// The gradients of all inputs.
std::vector<Floats> DeltaGradients(const DeltaCase& c, const Sloped& sloped, int parts) {
    const size_t rates = c.ssd ? 4 : 5;
    DeltaGradArgs args;
    args.sequences = kSequences;
    args.rule = RuleArgs(c, sloped);
    const int64_t each = args.rule.each;
    Floats fade(kRows * kHeads * each), strength(kRows * kHeads);
    const DeltaGatesArgs gates{.decay = sloped.inputs[3].data(),
                               .beta = c.ssd ? nullptr : sloped.inputs[4].data(),
                               .a = sloped.inputs[rates].data(),
                               .dt = sloped.inputs[rates + 1].data(),
                               .rows = kRows,
                               .heads = kHeads,
                               .each = each,
                               .floor = c.floor,
                               .fade = fade.data(),
                               .strength = strength.data()};
    DeltaGates(gates, 0, 1);
    args.rule.fade = fade.data(), args.rule.strength = strength.data();
    args.dy = sloped.dy.data();
    args.scratch_bytes = DeltaGradScratchBytes(args, 70);
    Floats dq(sloped.inputs[0].size(), NAN), dk(dq), dv(sloped.inputs[2].size(), NAN);
    Floats dfade(fade.size(), NAN), dstrength(strength.size(), NAN), dskip(dstrength);
    args.dq = dq.data(), args.dk = dk.data(), args.dv = dv.data();
    args.dfade = dfade.data(), args.dstrength = dstrength.data();
    args.dskip = c.ssd ? dskip.data() : nullptr;
    std::vector<std::byte> scratch(static_cast<size_t>(args.scratch_bytes * parts + 64));
    args.scratch = scratch.data();
    const int64_t slices = DeltaSlices(args.rule), cols = c.keys * kDim;
    Floats addends(static_cast<size_t>(kRows * slices * 2 * cols), NAN);
    if (slices > 1) args.addends = addends.data(), args.dq = args.dk = nullptr;
    for (int part = parts; part-- > 0;) DeltaGrad(args, part, parts);
    const DeltaKeysGradArgs keys{addends.data(), kRows, slices, cols, dq.data(), dk.data()};
    for (int part = 0; part < parts && slices > 1; ++part) DeltaKeysGrad(keys, part, parts);
    Floats ddecay(fade.size(), NAN), dbeta(strength.size(), NAN), da(dbeta);
    const DeltaGatesGradArgs back{.gates = gates,
                                  .fade = fade.data(),
                                  .dfade = dfade.data(),
                                  .dstrength = dstrength.data(),
                                  .ddecay = ddecay.data(),
                                  .dbeta = dbeta.data(),
                                  .da = da.data()};
    for (int part = 0; part < parts; ++part) DeltaGatesGrad(back, part, parts);
    std::vector<Floats> gradients = {dq, dk, dv, ddecay};
    if (!c.ssd) gradients.push_back(dbeta);
    gradients.push_back(SumsOfRows(da, kHeads));
    gradients.push_back(SumsOfRows(ddecay, kHeads * each));
    if (c.ssd) gradients.push_back(SumsOfRows(dskip, kHeads));
    return gradients;
}

void CheckDelta(const DeltaCase& c, uint32_t seed) {
    Random random(seed);
    const Sloped sloped = RandomDelta(c, random);
    const std::vector<Floats> gradients = DeltaGradients(c, sloped, 1);
    EXPECT_EQ(gradients, DeltaGradients(c, sloped, 3)) << "parts";
    const char* names[] = {"q", "k", "v", "decay", "beta or a", "a or dt", "dt or skip"};
    for (size_t i = 0; i < gradients.size(); ++i) {
        sloped.Expect(i, gradients[i], random, names[i]);
    }
}

TEST(DenseRecurrent, DeltaRuleGradientsAreSlopes) {
    uint32_t seed = 1;
    for (const DeltaCase& c : {DeltaCase{},
                               {.by_channel = true},
                               {.by_channel = true, .floor = -5},
                               {.floor = -2},
                               {.ssd = true},
                               {.keys = 3},
                               {.ssd = true, .keys = 1}}) {
        SCOPED_TRACE(testing::Message() << "by channel " << c.by_channel << ", ssd " << c.ssd
                                        << ", floor " << c.floor << ", keys " << c.keys);
        CheckDelta(c, seed++);
    }
}

// Mamba 2 has one key head. No part has more than twice its even share of the heads.
TEST(DenseRecurrent, PartsShareTheHeadsOfOneKeyHead) {
    DeltaRuleArgs rule;
    rule.heads = 80, rule.key_heads = 1;
    EXPECT_EQ(DeltaSlices(rule), 16);
    rule.key_heads = 8;
    EXPECT_EQ(DeltaSlices(rule), 2);
    rule.key_heads = 80;
    EXPECT_EQ(DeltaSlices(rule), 1);
}

TEST(DenseRecurrent, ConvolutionGradientsAreSlopes) {
    for (const bool silu : {false, true}) {
        for (const bool gated : {false, true}) {
            SCOPED_TRACE(testing::Message() << "silu " << silu << ", gated " << gated);
            Random random(7);
            constexpr int64_t kColumns = 37, kTaps = 4;
            Sloped sloped;
            sloped.inputs = {random.Normals(kRows * kColumns), random.Normals(kColumns * kTaps),
                             random.Normals(kColumns)};
            sloped.rows = {kRows, kColumns, kColumns};
            for (int i = 0; i < (gated ? 2 : 0); ++i) {
                sloped.inputs.push_back(random.Normals(kRows * kColumns));
                sloped.rows.push_back(kRows);
            }
            sloped.dy = random.Normals(kRows * kColumns);
            sloped.naive = [&](OpCall<double>& call) {
                Doubles state(1);
                call.in.push_back({state, 1});
                support::naive::Do(program::CausalConv{silu, gated}, call);
            };
            ConvGradArgs args;
            args.sequences = kSequences;
            args.conv.x = sloped.inputs[0].data();
            args.conv.weight = sloped.inputs[1].data();
            args.conv.bias = sloped.inputs[2].data();
            args.conv.inner = gated ? sloped.inputs[3].data() : nullptr;
            args.conv.outer = gated ? sloped.inputs[4].data() : nullptr;
            args.conv.cols = kColumns, args.conv.taps = kTaps;
            args.conv.silu = silu;
            args.dy = sloped.dy.data();
            std::vector<std::vector<Floats>> results;
            for (const int parts : {1, 2}) {
                Floats dx(kRows * kColumns, NAN), dinner(dx), douter(dx);
                Floats dw(kColumns * kTaps, 0.0f), db(kColumns, 0.0f);
                args.dx = dx.data(), args.dinner = dinner.data(), args.douter = douter.data();
                args.dw = dw.data(), args.db = db.data();
                for (int part = parts; part-- > 0;) {
                    ConvGradInput(args, part, parts);
                    ConvGradWeight(args, part, parts);
                }
                results.push_back({dx, dw, db});
                if (gated) results.back().insert(results.back().end(), {dinner, douter});
            }
            EXPECT_EQ(results[0], results[1]) << "parts";
            for (size_t i = 0; i < results[0].size(); ++i) {
                sloped.Expect(i, results[0][i], random, std::to_string(i).c_str());
            }
        }
    }
}

}  // namespace
}  // namespace weft::kernels::dense
