// The causal convolution, the delta rule and SSD over whole sequences, and their gradients, on a
// GPU beside the CPU's kernels (kernels/dense/recurrent.h, whose tests compare them with slopes).
//
// Bounds: sums of float32 over 130 rows of states have errors of some 1e-5 of their largest
// addends; the order of sums and exp differ.
#include "kernels/dense/recurrent.h"

#include "support/kernel_levels.h"
#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;
namespace dense = kernels::dense;
using Floats = std::vector<float>;

// A sequence within the rows of a dispatch, one of one row, and one over several dispatches.
const std::vector<kernels::Sequence> kSequences = {
    {0, 70, 0, {}}, {70, 1, 0, {}}, {71, 130, 0, {}}};
constexpr int32_t kRows = 201;

StepContents StepOfSequences() {
    StepContents step;
    for (const kernels::Sequence& s : kSequences) {
        step.sequences.push_back({s.row_begin, s.row_count, 0, 0, 0});
    }
    return step;
}

void ExpectEqual(const Floats& got, const Floats& expected, const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    double largest = 0, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double off = std::fabs(double{got[i]} - double{expected[i]});
        error = std::isnan(off) ? INFINITY : std::max(error, off);
        largest = std::max(largest, std::fabs(double{expected[i]}));
    }
    EXPECT_GT(largest, 0) << what;
    EXPECT_TRUE(error <= 2e-5 * largest) << what << ": " << error << " of " << largest;
}

Floats Empty(int64_t count) {
    return Floats(static_cast<size_t>(count), std::numeric_limits<float>::quiet_NaN());
}

// ---- Convolution --------------------------------------------------------------------------------

struct ConvCase {
    int64_t cols, taps;
    bool silu = false, gated = false, biased = false;
};

// The operands of a convolution in host memory and on the device.
struct ConvOperands {
    ConvOperands(TrainEmitter& emitter, const ConvCase& of, Random& random) : e(emitter), c(of) {
        const program::Shape shape = {kTokens, c.cols};
        const auto add = [&](Floats& host, const program::Shape& shape_of, int64_t count) {
            host = random.Normals(count);
            return e.Place(shape_of, DType::kF32, host);
        };
        inputs.push_back(add(x, shape, kRows * c.cols));
        inputs.push_back(add(weight, {c.cols, c.taps}, c.cols * c.taps));
        if (c.biased) inputs.push_back(add(bias, {c.cols}, c.cols));
        if (c.gated) inputs.push_back(add(inner, shape, kRows * c.cols));
        if (c.gated) inputs.push_back(add(outer, shape, kRows * c.cols));
        in_dy = add(dy, shape, kRows * c.cols);
        args.sequences = kSequences;
        args.dy = dy.data();
        args.conv.x = x.data(), args.conv.weight = weight.data();
        if (c.biased) args.conv.bias = bias.data();
        if (c.gated) args.conv.inner = inner.data(), args.conv.outer = outer.data();
        args.conv.cols = c.cols, args.conv.taps = c.taps, args.conv.silu = c.silu;
        forward.silu = c.silu, forward.gated = c.gated, forward.stateless = true;
    }
    std::vector<ValueId> WithSlope() const {
        std::vector<ValueId> all = {in_dy};
        all.insert(all.end(), inputs.begin(), inputs.end());
        return all;
    }
    TrainEmitter& e;
    const ConvCase& c;
    Floats x, weight, bias, inner, outer, dy;
    std::vector<ValueId> inputs;
    ValueId in_dy = 0;
    dense::ConvGradArgs args;
    program::CausalConv forward;
};

void CheckForward(ConvOperands& conv) {
    const program::Shape shape = {kTokens, conv.c.cols};
    const ValueId y = conv.e.Place(shape, DType::kF32);
    EXPECT_DONE(conv.e.Do(conv.forward, conv.inputs, {y}));
    Floats expected = Empty(kRows * conv.c.cols);
    dense::TrainedConvArgs args{kSequences, conv.args.conv};
    args.conv.y = expected.data();
    dense::TrainedConv(kernels::KernelsFor(CpuLevel::kReference), args, 0, 1);
    ExpectEqual(conv.e.Read(y), expected, "causal_conv");
}

void CheckInputGrads(ConvOperands& conv) {
    const program::Shape shape = {kTokens, conv.c.cols};
    std::vector<ValueId> outputs = {conv.e.Place(shape, DType::kF32)};
    std::vector<Floats> expected(3, Empty(kRows * conv.c.cols));
    for (int i = 0; i < 2 && conv.c.gated; ++i) {
        outputs.push_back(conv.e.Place(shape, DType::kF32));
    }
    EXPECT_DONE(conv.e.Do(program::CausalConvGrad{conv.forward}, conv.WithSlope(), outputs));
    conv.args.dx = expected[0].data();
    conv.args.dinner = expected[1].data(), conv.args.douter = expected[2].data();
    dense::ConvGradInput(conv.args, 0, 1);
    for (size_t i = 0; i < outputs.size(); ++i) {
        ExpectEqual(conv.e.Read(outputs[i]), expected[i], "causal_conv_grad " + std::to_string(i));
    }
}

void CheckWeightGrads(ConvOperands& conv, Random& random) {
    const ConvCase& c = conv.c;
    Floats dw = random.Normals(c.cols * c.taps), db = random.Normals(c.cols);
    std::vector<ValueId> inputs = conv.WithSlope();
    std::vector<ValueId> outputs = {conv.e.Place({c.cols, c.taps}, DType::kF32, dw)};
    if (c.biased) outputs.push_back(conv.e.Place({c.cols}, DType::kF32, db));
    inputs.insert(inputs.end(), outputs.begin(), outputs.end());
    EXPECT_DONE(conv.e.Do(program::CausalConvGradWeight{conv.forward, c.biased}, inputs, outputs));
    conv.args.dw = dw.data();
    if (c.biased) conv.args.db = db.data();
    dense::ConvGradWeight(conv.args, 0, 1);
    ExpectEqual(conv.e.Read(outputs[0]), dw, "dw");
    if (c.biased) ExpectEqual(conv.e.Read(outputs[1]), db, "db");
}

TEST(VulkanTrainRecurrent, Convolutions) {
    WEFT_VULKAN(device);
    Random random(51);
    for (const ConvCase& c :
         {ConvCase{37, 4, true, false, true}, ConvCase{5, 3, false, true, false},
          ConvCase{70, 2, true, true, true}, ConvCase{1, 1}}) {
        TrainEmitter e(device, TrainShape(kRows));
        e.SetStep(StepOfSequences());
        ConvOperands conv(e, c, random);
        CheckForward(conv);
        CheckInputGrads(conv);
        CheckWeightGrads(conv, random);
    }
}

// ---- Delta rule ---------------------------------------------------------------------------------

struct RuleCase {
    int64_t dims, cols;
    bool by_channel = false, ssd = false;
    float floor = 0;
    int64_t cycle = 0;
};
constexpr int64_t kHeads = 3, kKeys = 2;

// The operands of a rule; heads 1 to 3 of groups of two, or of a cycle of two.
struct RuleOperands {
    RuleOperands(TrainEmitter& emitter, const RuleCase& of, Random& random) : e(emitter), c(of) {
        const int64_t each = c.by_channel ? c.dims : 1;
        const auto add = [&](int64_t cols, float scale) {
            Floats& host = values.emplace_back(random.Normals(kRows * cols));
            for (float& value : host) value *= scale;
            inputs.push_back(e.Place({kTokens, cols}, DType::kF32, host));
        };
        const auto add_vector = [&](int64_t count, float scale) {
            Floats& host = values.emplace_back(random.Normals(count));
            for (float& value : host) value = scale < 0 ? scale * std::fabs(value) : value;
            inputs.push_back(e.Place({count}, DType::kF32, host));
        };
        values.reserve(9);
        add(kKeys * c.dims, 1), add(kKeys * c.dims, 1), add(kHeads * c.cols, 1);
        add(kHeads * each, 1);
        if (!c.ssd) add(kHeads, 1);
        add_vector(kHeads, -0.3f), add_vector(kHeads * each, 1);
        if (c.ssd) add_vector(kHeads, 1);
        add(kHeads * c.cols, 1);
        rule.first_head = 1, rule.key_heads = kKeys, rule.group = 2, rule.cycle = c.cycle;
        rule.query_scale = 0.5f, rule.key_scale = 1 / std::sqrt(static_cast<float>(c.dims));
        rule.by_channel = c.by_channel, rule.ssd = c.ssd, rule.floor = c.floor;
        rule.stateless = true;
        Gates(each);
        Rule(each);
    }
    void Gates(int64_t each) {
        const size_t rates = c.ssd ? 4 : 5;
        gates.decay = values[3].data();
        if (!c.ssd) gates.beta = values[4].data();
        gates.a = values[rates].data(), gates.dt = values[rates + 1].data();
        gates.rows = kRows, gates.heads = kHeads, gates.each = each, gates.floor = c.floor;
        fade = Empty(kRows * kHeads * each), strength = Empty(kRows * kHeads);
        gates.fade = fade.data(), gates.strength = strength.data();
        kernels::DeltaGates(gates, 0, 1);
    }
    void Rule(int64_t each) {
        args.q = values[0].data(), args.k = values[1].data(), args.v = values[2].data();
        args.fade = fade.data(), args.strength = strength.data();
        if (c.ssd) args.skip = values[6].data();
        args.heads = kHeads, args.key_heads = kKeys, args.each = each;
        args.key_dim = c.dims, args.value_dim = c.cols;
        args.first_head = 1, args.group = 2, args.cycle = c.cycle;
        args.query_scale = rule.query_scale, args.key_scale = rule.key_scale;
    }
    std::vector<ValueId> Forward() const { return {inputs.begin(), inputs.begin() + 7}; }
    std::vector<ValueId> Backward() const {
        std::vector<ValueId> all = {inputs.back()};
        all.insert(all.end(), inputs.begin(), inputs.begin() + 7);
        return all;
    }
    TrainEmitter& e;
    const RuleCase& c;
    std::vector<Floats> values;
    std::vector<ValueId> inputs;  // then dy
    program::DeltaRule rule;
    kernels::DeltaGatesArgs gates;
    kernels::DeltaRuleArgs args;
    Floats fade, strength;
};

void CheckForward(RuleOperands& r, const std::string& text) {
    const ValueId y = r.e.Place({kTokens, kHeads * r.c.cols}, DType::kF32);
    EXPECT_DONE(r.e.Do(r.rule, r.Forward(), {y}));
    Floats expected = Empty(kRows * kHeads * r.c.cols);
    dense::TrainedDeltaArgs args{kSequences, r.args};
    args.rule.y = expected.data();
    args.rule.scratch_floats = kernels::DeltaScratch(r.c.dims);
    Floats scratch(static_cast<size_t>(args.rule.scratch_floats));
    args.rule.scratch = scratch.data();
    dense::TrainedDelta(kernels::KernelsFor(CpuLevel::kReference), args, 0, 1);
    ExpectEqual(r.e.Read(y), expected, "delta_rule, " + text);
}

void CheckGradients(RuleOperands& r, const std::string& text) {
    const RuleCase& c = r.c;
    const int64_t each = c.by_channel ? c.dims : 1;
    std::vector<int64_t> cols = {kKeys * c.dims, kKeys * c.dims, kHeads * c.cols, kHeads * each};
    if (!c.ssd) cols.push_back(kHeads);  // dbeta
    cols.push_back(kHeads);              // da
    if (c.ssd) cols.push_back(kHeads);   // dskip
    std::vector<ValueId> outputs;
    std::vector<Floats> expected;
    for (const int64_t count : cols) {
        outputs.push_back(r.e.Place({kTokens, count}, DType::kF32));
        expected.push_back(Empty(kRows * count));
    }
    EXPECT_DONE(r.e.Do(program::DeltaRuleGrad{r.rule}, r.Backward(), outputs));
    dense::DeltaGradArgs args;
    args.sequences = kSequences;
    args.rule = r.args;
    args.dy = r.values.back().data();
    args.dq = expected[0].data(), args.dk = expected[1].data(), args.dv = expected[2].data();
    Floats dfade = Empty(kRows * kHeads * each), dstrength = Empty(kRows * kHeads);
    args.dfade = dfade.data(), args.dstrength = dstrength.data();
    if (c.ssd) args.dskip = expected[5].data();
    std::vector<std::byte> scratch(static_cast<size_t>(dense::DeltaGradScratchBytes(args, kRows)));
    args.scratch = scratch.data(), args.scratch_bytes = std::ssize(scratch);
    const int64_t slices = dense::DeltaSlices(args.rule);
    Floats addends = Empty(kRows * slices * 2 * cols[0]);
    args.addends = addends.data();
    dense::DeltaGrad(args, 0, 1);
    if (slices > 1) {
        dense::DeltaKeysGrad({addends.data(), kRows, slices, cols[0], args.dq, args.dk}, 0, 1);
    }
    dense::DeltaGatesGradArgs gates;
    gates.gates = r.gates;
    gates.fade = r.fade.data(), gates.dfade = dfade.data(), gates.dstrength = dstrength.data();
    gates.ddecay = expected[3].data();
    if (!c.ssd) gates.dbeta = expected[4].data();
    gates.da = expected[c.ssd ? 4 : 5].data();
    dense::DeltaGatesGrad(gates, 0, 1);
    for (size_t i = 0; i < outputs.size(); ++i) {
        ExpectEqual(r.e.Read(outputs[i]), expected[i],
                    fmt::format("delta_rule_grad {}, {}", i, text));
    }
}

// Heads of fewer columns than a block, of several blocks and a part of one; keys of more dims than
// a workgroup has invocations.
TEST(VulkanTrainRecurrent, DeltaRules) {
    WEFT_VULKAN(device);
    Random random(52);
    for (const RuleCase& c :
         {RuleCase{5, 7}, RuleCase{16, 37, true}, RuleCase{130, 16}, RuleCase{8, 20, false, true},
          RuleCase{5, 7, true, false, -4, 2}, RuleCase{8, 3, false, false, -2}}) {
        TrainEmitter e(device, TrainShape(kRows));
        e.SetStep(StepOfSequences());
        RuleOperands rule(e, c, random);
        const std::string text =
            fmt::format("{} x {}, {} {} {}", c.dims, c.cols, c.by_channel, c.ssd, c.floor);
        CheckForward(rule, text);
        CheckGradients(rule, text);
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
