// Ops of training that only some models need, on a GPU, against formulas in float64 or the CPU's
// kernels: activations and gated units with limits, gates of heads, columns of heads, norms with
// means or of a part of a row, biases of experts, products by head.
//
// Bounds are relative to the largest element. A sum of n products of numbers of size 1 has an error
// of n 2^-24, and n is at most 100 here; exp of an argument of at most 20 is off by 43 2^-23.
#include <numeric>

#include "kernels/dense/experts.h"
#include "kernels/dense/gated.h"
#include "kernels/dense/norms.h"
#include "kernels/ungated.h"
#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;
namespace dense = kernels::dense;
using Floats = std::vector<float>;

constexpr double kBound = 1e-4;

// Types of a result of 16 bits add its rounding.
template <typename T>
void ExpectEqual(const Floats& got, const std::vector<T>& expected, DType dtype,
                 const std::string& what) {
    ASSERT_EQ(got.size(), expected.size()) << what;
    double largest = 0, error = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double off = std::fabs(double{got[i]} - static_cast<double>(expected[i]));
        error = std::isnan(off) ? INFINITY : std::max(error, off);
        largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
    }
    EXPECT_GT(largest, 0) << what;
    EXPECT_TRUE(error <= (kBound + StoreError(dtype, 1)) * largest)
        << what << ": " << error << " of " << largest;
}

dense::Matrix View(Floats& values, int64_t cols) {
    return {values.data(), cols};
}
const kernels::Kernels& Reference() {
    return kernels::KernelsFor(CpuLevel::kReference);
}

// A case's emitter, and operands of its narrow type or of float32.
struct Form {
    int32_t rows;
    int64_t cols, skip;
    DType dtype;
};
const Form kForms[] = {{9, 64, 0, DType::kF32}, {5, 96, 0, DType::kBF16}, {33, 36, 1, DType::kF32}};

struct Prepared {
    Prepared(const std::shared_ptr<gpu::Device>& device, const Form& of, uint32_t seed)
        : form(of), random(seed), e(device, TrainShape(of.rows), of.skip) {
        for (int32_t row = 0; row < form.rows; ++row) step.positions.push_back(row * 3);
        e.SetStep(step);
    }
    // Adds an operand with random contents, which `host` gets.
    ValueId Narrow(Floats& host, const program::Shape& shape, float deviation = 1) {
        return Add(host, shape, form.dtype, deviation);
    }
    ValueId Wide(Floats& host, const program::Shape& shape, float deviation = 1) {
        return Add(host, shape, DType::kF32, deviation);
    }
    ValueId Add(Floats& host, const program::Shape& shape, DType dtype, float deviation) {
        host = RoundedTo(dtype, random.Normals(shape.Elements(form.rows, 1), deviation));
        return e.Place(shape, dtype, host);
    }
    ValueId Result(const program::Shape& shape) { return e.Place(shape, form.dtype); }
    ValueId WideResult(const program::Shape& shape) { return e.Place(shape, DType::kF32); }
    void ExpectNarrow(ValueId id, const auto& expected, const std::string& what) const {
        ExpectEqual(e.Read(id), expected, form.dtype, what);
    }
    void ExpectWide(ValueId id, const auto& expected, const std::string& what) const {
        ExpectEqual(e.Read(id), expected, DType::kF32, what);
    }
    const Form& form;
    Random random;
    TrainEmitter e;
    StepContents step;
};
#define FOR_FORMS(name, seed)       \
    WEFT_VULKAN(device);            \
    for (const Form& form : kForms) \
        if (Prepared name(device, form, seed); true)

Floats Empty(size_t count) {
    return Floats(count, std::numeric_limits<float>::quiet_NaN());
}

TEST(VulkanTrainForms, ActivationsOfOneOperand) {
    FOR_FORMS(o, 61) {
        const program::Shape shape = {kTokens, form.cols};
        Floats dy, x;
        const ValueId in_dy = o.Narrow(dy, shape), in_x = o.Narrow(x, shape, 3);
        const Xielu xielu{0.8f, 0.7f, 0.5f, -1e-6f};
        for (const Ungated kind : kEveryUngated) {
            const ValueId dx = o.Result(shape);
            program::ActivateGrad a;
            a.kind = kind, a.xielu = xielu;
            EXPECT_DONE(o.e.Do(a, {in_dy, in_x}, {dx}));
            Floats expected = Empty(x.size());
            kernels::ActivateGrad(
                {dy.data(), x.data(), expected.data(), form.rows, form.cols, kind, xielu}, 0, 1);
            o.ExpectNarrow(dx, expected, UngatedName(kind));
        }
    }
}

TEST(VulkanTrainForms, GatedUnitsWithLimits) {
    FOR_FORMS(o, 62) {
        const program::Shape shape = {kTokens, 2, form.cols};
        Floats dout, gate, up;
        const ValueId in_dout = o.Narrow(dout, shape), in_gate = o.Narrow(gate, shape, 5);
        const ValueId in_up = o.Narrow(up, shape, 5);
        for (const auto& [activation, limit, limits_gate] :
             {std::tuple{Activation::kClampedSilu, 0.0f, false},
              {Activation::kSilu, 2.5f, false},
              {Activation::kSilu, 2.5f, true}}) {
            const ValueId dgate = o.Result(shape), dup = o.Result(shape);
            EXPECT_DONE(o.e.Do(program::GluGrad{activation, limit, limits_gate},
                               {in_dout, in_gate, in_up}, {dgate, dup}));
            Floats of_gate = Empty(gate.size()), of_up = Empty(gate.size());
            dense::LimitedGluGradArgs args;
            args.glu.dout = View(dout, form.cols), args.glu.gate = View(gate, form.cols);
            args.glu.up = View(up, form.cols);
            args.glu.dgate = View(of_gate, form.cols), args.glu.dup = View(of_up, form.cols);
            args.glu.rows = 2 * form.rows, args.glu.cols = form.cols;
            args.glu.activation = activation;
            args.limit = limit, args.limits_gate = limits_gate;
            std::vector<std::byte> scratch(
                static_cast<size_t>(dense::LimitedGluGradScratchBytes(args)));
            args.scratch = scratch.data(), args.scratch_bytes = std::ssize(scratch);
            dense::LimitedGluGrad(Reference(), args, 0, 1);
            const std::string what = fmt::format("limit {} {}", limit, limits_gate);
            o.ExpectNarrow(dgate, of_gate, what);
            o.ExpectNarrow(dup, of_up, what);
        }
    }
}

TEST(VulkanTrainForms, GatesOfHeads) {
    FOR_FORMS(o, 63) {
        for (const int64_t gates : {int64_t{1}, int64_t{4}, form.cols}) {
            const program::Shape shape = {kTokens, form.cols};
            Floats dy, x, gate;
            const ValueId in_dy = o.Narrow(dy, shape), in_x = o.Narrow(x, shape);
            const ValueId in_gate = o.Wide(gate, {kTokens, gates}, 3);
            for (const auto kind : {program::RowGate::kSigmoid, program::RowGate::kSoftplus,
                                    program::RowGate::kProduct}) {
                const ValueId dx = o.Result(shape), dgate = o.WideResult({kTokens, gates});
                EXPECT_DONE(
                    o.e.Do(program::GateRowsGrad{kind}, {in_dy, in_x, in_gate}, {dx, dgate}));
                Doubles of_x, of_gate(gate.size());
                for (size_t i = 0; i < x.size(); ++i) {
                    const size_t at = i / static_cast<size_t>(form.cols / gates);
                    const double g = gate[at], open = 1 / (1 + std::exp(-g));
                    const bool soft = kind == program::RowGate::kSoftplus;
                    const bool product = kind == program::RowGate::kProduct;
                    of_x.push_back(dy[i] * (product ? g : soft ? std::log1p(std::exp(g)) : open));
                    of_gate[at] += double{dy[i]} * x[i] *
                                   (product ? 1
                                    : soft  ? open
                                            : open * (1 - open));
                }
                o.ExpectNarrow(dx, of_x, "dx");
                o.ExpectWide(dgate, of_gate, "dgate");
            }
        }
    }
}

TEST(VulkanTrainForms, ColumnsOfHeads) {
    FOR_FORMS(o, 64) {
        const int64_t heads = 4, dims = form.cols / heads;
        const auto size = static_cast<size_t>(dims);
        const program::Shape shape = {kTokens, form.cols};
        Floats dy, x, rest;
        const ValueId in_dy = o.Narrow(dy, shape), in_x = o.Narrow(x, shape);
        const ValueId dslope = o.WideResult({kTokens, heads});
        const ValueId doffset = o.WideResult({kTokens, heads}), ints = o.e.AddInts({kTokens});
        EXPECT_DONE(o.e.Do(program::ScaleHeadsGrad{}, {in_dy, in_x, ints}, {dslope, doffset}));
        Doubles slopes(static_cast<size_t>(form.rows * heads)), offsets(slopes.size());
        for (size_t i = 0; i < x.size(); ++i) offsets[i / size] += double{dy[i]} * x[i];
        for (size_t i = 0; i < slopes.size(); ++i) {
            slopes[i] = offsets[i] * std::log(o.step.positions[i / heads] + 1);
        }
        o.ExpectWide(dslope, slopes, "dslope");
        o.ExpectWide(doffset, offsets, "doffset");

        // With further columns after those of x, and without.
        const int64_t rests = 3, wide = dims + rests + 2;
        const ValueId in_rest = o.Narrow(rest, {kTokens, heads * rests});
        for (const bool both : {true, false}) {
            const ValueId y = o.Result({kTokens, heads * wide});
            std::vector<ValueId> inputs = {in_x};
            if (both) inputs.push_back(in_rest);
            EXPECT_DONE(o.e.Do(program::PadHeads{heads, 1}, inputs, {y}));
            Floats expected(static_cast<size_t>(form.rows * heads * wide), 0.0f);
            for (int64_t i = 0; i < form.rows * heads; ++i) {
                float* const to = expected.data() + i * wide + 1;
                std::copy_n(x.data() + i * dims, dims, to);
                if (both) std::copy_n(rest.data() + i * rests, rests, to + dims);
            }
            EXPECT_EQ(o.e.Read(y), expected) << both;
        }
    }
}

// A product of each head with its matrix, and the gradients of both operands.
TEST(VulkanTrainForms, ProductsByHead) {
    FOR_FORMS(o, 65) {
        const int64_t heads = 3, n = 20, k = form.cols / 4;
        Floats x, w, y, dw;
        const ValueId in_x = o.Narrow(x, {kTokens, heads * k}), in_w = o.Narrow(w, {heads, n, k});
        const ValueId in_y = o.Narrow(y, {kTokens, heads * n}), out_w = o.Wide(dw, {heads, n, k});
        const ValueId to_y = o.Result({kTokens, heads * n}), to_x = o.Result({kTokens, heads * k});
        EXPECT_DONE(o.e.Do(program::HeadMatMul{}, {in_x, in_w}, {to_y}));
        EXPECT_DONE(o.e.Do(program::HeadMatMul{true}, {in_y, in_w}, {to_x}));
        Doubles right_y(y.size()), right_x(x.size()), right_w(dw.begin(), dw.end());
        for (int64_t row = 0; row < form.rows; ++row) {
            for (int64_t i = 0; i < heads * n; ++i) {
                for (int64_t j = 0; j < k; ++j) {
                    const auto at_y = static_cast<size_t>(row * heads * n + i);
                    const auto at_x = static_cast<size_t>(row * heads * k + i / n * k + j);
                    const auto at_w = static_cast<size_t>(i * k + j);
                    right_y[at_y] += double{x[at_x]} * w[at_w];
                    right_x[at_x] += double{y[at_y]} * w[at_w];
                    right_w[at_w] += double{y[at_y]} * x[at_x];
                }
            }
        }
        o.ExpectNarrow(to_y, right_y, "y");
        o.ExpectNarrow(to_x, right_x, "dx");
        EXPECT_DONE(o.e.Do(program::HeadMatMulGradWeight{}, {in_y, in_x, out_w}, {out_w}));
        o.ExpectWide(out_w, right_w, "dw");
    }
}

// ---- Norms --------------------------------------------------------------------------------------

struct NormKind {
    int64_t groups;
    bool plain, centered, apart;
};

// The gradients by float64; apart: each group has its own weights.
struct NormGrads {
    NormGrads(const Form& form, const NormKind& n, const Floats& dy, const Floats& x,
              const Floats& weight, const Floats& before)
        : dx(x.size()), dw(before.begin(), before.end()) {
        const auto group = static_cast<size_t>(form.cols / n.groups);
        for (size_t begin = 0; begin < x.size(); begin += group) {
            const size_t own = n.apart ? begin % static_cast<size_t>(form.cols) : 0;
            double mean = 0, squares = 0, along = 0, sum = 0;
            for (size_t i = 0; i < group && n.centered; ++i) mean += x[begin + i] / double(group);
            for (size_t i = 0; i < group; ++i) squares += std::pow(x[begin + i] - mean, 2);
            const double s = 1 / std::sqrt(squares / double(group) + 1e-5);
            const auto slope = [&](size_t i) {
                return double{dy[begin + i]} * (n.plain ? 1.0 : double{weight[own + i]});
            };
            for (size_t i = 0; i < group; ++i) {
                along += slope(i) * (x[begin + i] - mean) * s / double(group);
                if (n.centered) sum += slope(i) / double(group);
            }
            for (size_t i = 0; i < group; ++i) {
                const double normed = (x[begin + i] - mean) * s;
                dx[begin + i] = s * (slope(i) - sum - normed * along);
                dw[own + i] += dy[begin + i] * normed;
            }
        }
    }
    Doubles dx, dw;
};

TEST(VulkanTrainForms, Norms) {
    FOR_FORMS(o, 66) {
        for (const NormKind& n : {NormKind{1, false, true, false},
                                  {4, false, true, false},
                                  {2, true, false, false},
                                  {4, false, false, true},
                                  {2, false, true, true},
                                  {1, true, true, false}}) {
            const program::Shape shape = {kTokens, form.cols};
            const int64_t group = form.cols / n.groups, weights = n.apart ? form.cols : group;
            Floats dy, x, weight, before;
            const ValueId in_dy = o.Narrow(dy, shape), in_x = o.Narrow(x, shape, 2);
            const ValueId in_weight = o.Wide(weight, {weights});
            const ValueId dw = o.Wide(before, {weights}), dx = o.Result(shape);
            std::vector<ValueId> inputs = {in_dy, in_x};
            if (!n.plain) inputs.push_back(in_weight);
            program::RmsNormGradInput of_input{1e-5f, group, n.plain, n.centered, n.apart};
            EXPECT_DONE(o.e.Do(of_input, inputs, {dx}));
            const NormGrads right(form, n, dy, x, weight, before);
            const std::string what = fmt::format("{} groups, centered {}", n.groups, n.centered);
            o.ExpectNarrow(dx, right.dx, what);
            for (const bool alone : {false, true}) {
                if (alone) o.e.ForgetDerived();
                const ValueId to = o.e.Place({weights}, DType::kF32, before);
                program::RmsNormGradWeight of_weight{1e-5f, group, n.centered, n.apart};
                EXPECT_DONE(o.e.Do(of_weight, {in_dy, in_x, to}, {to}));
                o.ExpectWide(to, right.dw, what);
            }
            EXPECT_EQ(o.e.Read(dw), before);
        }
    }
}

// A norm of a part of a row, whose sum of squares is in one of three columns.
TEST(VulkanTrainForms, NormsOfAPartOfARow) {
    FOR_FORMS(o, 67) {
        const program::Shape shape = {kTokens, form.cols};
        const int64_t whole = 3 * form.cols;
        Floats dy, x, weight, squares, dw;
        const ValueId in_dy = o.Narrow(dy, shape), in_x = o.Narrow(x, shape, 2);
        const ValueId in_weight = o.Wide(weight, {form.cols}), to_w = o.Wide(dw, {form.cols});
        squares = o.random.Normals(form.rows * 3);
        for (float& square : squares) square = 1 + std::fabs(square) * static_cast<float>(whole);
        const ValueId in_squares = o.e.Place({kTokens, 3}, DType::kF32, squares);
        const ValueId dx = o.Result(shape), dsquares = o.WideResult({kTokens, 3});
        program::RmsNormGradInput a{1e-5f, form.cols, false, false, false, whole, 1};
        EXPECT_DONE(o.e.Do(a, {in_dy, in_x, in_weight, in_squares}, {dx, dsquares}));
        program::RmsNormGradWeight of_weight{1e-5f, form.cols, false, false, whole, 1};
        Doubles right_x, right_squares(squares.size()), right_w(dw.begin(), dw.end());
        const auto cols = static_cast<size_t>(form.cols);
        for (size_t i = 0; i < x.size(); ++i) {
            const size_t row = i / cols;
            const double s =
                1 / std::sqrt(double{squares[3 * row + 1]} / double(whole) + double{1e-5f});
            const double slope = double{dy[i]} * weight[i % cols];
            right_x.push_back(s * slope);
            right_squares[3 * row + 1] -= s * s * s * slope * x[i] / (2 * double(whole));
            right_w[i % cols] += double{dy[i]} * x[i] * s;
        }
        o.ExpectNarrow(dx, right_x, "dx");
        o.ExpectWide(dsquares, right_squares, "dsquares");
        EXPECT_DONE(o.e.Do(of_weight, {in_dy, in_x, in_squares, to_w}, {to_w}));
        o.ExpectWide(to_w, right_w, "dw");

        Floats wide, of_sums;
        const ValueId in_wide = o.Wide(wide, shape), in_sums = o.Wide(of_sums, {kTokens, 3});
        const ValueId to = o.WideResult(shape);
        EXPECT_DONE(
            o.e.Do(program::SumSquaresGrad{2, {5, form.cols - 7}}, {in_sums, in_wide}, {to}));
        Floats expected(wide.size());
        for (size_t i = 0; i < wide.size(); ++i) {
            const size_t column = i % cols;
            if (column < 5 || column >= cols - 2) continue;
            expected[i] = 2 * of_sums[3 * (i / cols) + 2] * wide[i];
        }
        EXPECT_EQ(o.e.Read(to), expected);
    }
}

// ---- Experts ------------------------------------------------------------------------------------

constexpr int64_t kUsed = 3, kExperts = 7, kFirst = 2, kHeld = 4;

// Ids, of which a rank holds experts 2 to 5.
struct Choice {
    Choice(Prepared& o) {
        for (int32_t row = 0; row < o.form.rows; ++row) {
            std::vector<int32_t> all(kExperts);
            std::iota(all.begin(), all.end(), 0);
            o.random.Shuffle(all);
            ids.insert(ids.end(), all.begin(), all.begin() + kUsed);
        }
        in_ids = o.e.AddInts({kTokens, kUsed}, ids);
        in_weights = o.Wide(weights, {kTokens, kUsed});
    }
    // The number of a slot's expert among those of this rank; -1: another rank's.
    int64_t Of(size_t slot) const {
        const int64_t e = ids[slot] - kFirst;
        return e >= 0 && e < kHeld ? e : -1;
    }
    std::vector<int32_t> ids;
    Floats weights;
    ValueId in_ids, in_weights;
};

TEST(VulkanTrainForms, WeighedInputsOfExperts) {
    FOR_FORMS(o, 68) {
        const Choice c(o);
        const program::Shape slots = {kTokens, kUsed, form.cols}, shape = {kTokens, form.cols};
        const auto cols = static_cast<size_t>(form.cols);
        Floats x, dy;
        const ValueId in_x = o.Narrow(x, shape), in_dy = o.Narrow(dy, slots);
        const program::WeighRows forward{kFirst, kHeld};
        const ValueId y = o.Result(slots), rest = o.WideResult({kTokens, kUsed});
        EXPECT_DONE(o.e.Do(forward, {in_x, c.in_ids, c.in_weights}, {y, rest}));
        const ValueId dx = o.Result(shape), dweights = o.WideResult({kTokens, kUsed});
        EXPECT_DONE(o.e.Do(program::WeighRowsGrad{forward}, {in_dy, in_x, c.in_ids, c.in_weights},
                           {dx, dweights}));
        Doubles right_y(dy.size()), right_x(x.size()), right_weights(c.ids.size());
        for (size_t i = 0; i < dy.size(); ++i) {
            const size_t slot = i / cols, at = slot / kUsed * cols + i % cols;
            right_y[i] = double{c.weights[slot]} * x[at];
            if (c.Of(slot) < 0) continue;
            right_x[at] += double{c.weights[slot]} * dy[i];
            right_weights[slot] += double{dy[i]} * x[at];
        }
        o.ExpectNarrow(y, right_y, "y");
        o.ExpectNarrow(dx, right_x, "dx");
        o.ExpectWide(dweights, right_weights, "dweights");
    }
}

TEST(VulkanTrainForms, BiasesOfExperts) {
    FOR_FORMS(o, 69) {
        const Choice c(o);
        const program::Shape slots = {kTokens, kUsed, form.cols}, shape = {kTokens, form.cols};
        const program::Shape stack = {kHeld, 1, form.cols};
        const auto cols = static_cast<size_t>(form.cols);
        Floats x, bias, base, dy, db, other;
        const ValueId in_x = o.Narrow(x, slots), in_bias = o.Wide(bias, stack);
        const ValueId in_base = o.Wide(base, shape), in_dy = o.Wide(dy, shape);
        const ValueId y = o.Result(slots), sum = o.WideResult(shape);
        const ValueId dweights = o.WideResult({kTokens, kUsed});
        const ValueId to_db = o.Wide(db, stack), to_other = o.Wide(other, stack);
        EXPECT_DONE(o.e.Do(program::ExpertBias{kFirst}, {in_x, c.in_ids, in_bias}, {y}));
        EXPECT_DONE(o.e.Do(program::ExpertBiasSum{kFirst},
                           {in_base, c.in_ids, c.in_weights, in_bias}, {sum}));
        EXPECT_DONE(
            o.e.Do(program::ExpertBiasSumGrad{kFirst}, {in_dy, c.in_ids, in_bias}, {dweights}));
        EXPECT_DONE(o.e.Do(program::ExpertBiasGrad{kFirst}, {in_x, c.in_ids, to_db}, {to_db}));
        EXPECT_DONE(o.e.Do(program::ExpertBiasGrad{kFirst, true},
                           {in_dy, c.in_ids, c.in_weights, to_other}, {to_other}));
        Doubles right_y(x.begin(), x.end()), right_sum(base.begin(), base.end());
        Doubles right_weights(c.ids.size()), right_db(db.begin(), db.end());
        Doubles right_other(other.begin(), other.end());
        for (size_t i = 0; i < x.size(); ++i) {
            const size_t slot = i / cols, at = slot / kUsed * cols + i % cols;
            if (c.Of(slot) < 0) continue;
            const size_t own = static_cast<size_t>(c.Of(slot)) * cols + i % cols;
            right_y[i] += bias[own];
            right_sum[at] += double{c.weights[slot]} * bias[own];
            right_weights[slot] += double{dy[at]} * bias[own];
            right_db[own] += x[i];
            right_other[own] += double{c.weights[slot]} * dy[at];
        }
        o.ExpectNarrow(y, right_y, "expert_bias");
        o.ExpectWide(sum, right_sum, "expert_bias_sum");
        o.ExpectWide(dweights, right_weights, "expert_bias_sum_grad");
        o.ExpectWide(to_db, right_db, "expert_bias_grad");
        o.ExpectWide(to_other, right_other, "expert_bias_grad of a sum");
    }
}

// The factors of experts, beside the CPU's kernels.
TEST(VulkanTrainForms, FactorsOfExperts) {
    FOR_FORMS(o, 70) {
        const Choice c(o);
        Floats logits, factors, dweights, dfactors;
        const ValueId in_logits = o.Wide(logits, {kTokens, kExperts}, 2);
        const ValueId in_factors = o.Wide(factors, {kExperts});
        const ValueId in_dweights = o.Wide(dweights, {kTokens, kUsed});
        for (const bool sigmoid : {false, true}) {
            for (const bool renormalise : {false, true}) {
                program::Route route;
                route.factors = true, route.renormalise = renormalise, route.scale = 1.7f;
                if (sigmoid) route.score = program::GateScore::kSigmoid;
                const ValueId dlogits = o.WideResult({kTokens, kExperts});
                const ValueId to = o.Wide(dfactors, {kExperts});
                EXPECT_DONE(o.e.Do(program::RouteGrad{route},
                                   {in_dweights, in_logits, c.in_ids, in_factors}, {dlogits}));
                EXPECT_DONE(o.e.Do(program::RouteFactorsGrad{route},
                                   {in_dweights, in_logits, c.in_ids, to}, {to}));
                Floats right = Empty(logits.size());
                dense::RouteGradArgs args;
                args.dweights = dweights.data(), args.logits = logits.data();
                args.ids = c.ids.data(), args.factors = factors.data();
                args.rows = form.rows, args.experts = kExperts, args.used = kUsed;
                args.sigmoid = sigmoid, args.renormalise = renormalise, args.scale = 1.7f;
                args.dlogits = right.data(), args.dfactors = dfactors.data();
                dense::RouteGrad(args, 0, 1);
                dense::RouteFactorsGrad(args, 0, 1);
                o.ExpectWide(dlogits, right, "dlogits");
                o.ExpectWide(to, dfactors, "dfactors");
            }
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
