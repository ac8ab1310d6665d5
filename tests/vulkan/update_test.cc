// Optimizer updates on a GPU against float64.
//
// Bounds: u = 2^-24; the error of GLSL's division and square root is 5u.
#include "tensor/dynamic_codes.h"
#include "vulkan/train_case.h"

namespace weft::backend::on_gpu {
namespace {

using namespace test;
using program::UpdateRun;

// Parts of a unit of `count` elements: tails, and beginnings that are not aligned to a quad.
struct UpdateCase {
    int64_t count, kept, skip;
    std::vector<UpdateRun> runs;
    DType gradient = DType::kF32, copy = DType::kBF16;
    bool has_copy = true;
    int64_t number = 1;
};
const UpdateCase kUpdates[] = {
    {1, 1, 0, {{0, 0, 1, true}}},
    {9000, 9000, 0, {{0, 0, 5000, true}, {5000, 5000, 4000, false}}, DType::kBF16},
    {5003, 3001, 1, {{7, 0, 13, false}, {2000, 13, 2988, true}}, DType::kF16, DType::kF16, true, 7},
    {4100, 4097, 0, {{3, 0, 4097, true}}, DType::kF32, DType::kF32, false, 1000},
};

// An element of a run: its index in the weights, and in the optimizer's state.
struct ElementPlace {
    int64_t own, kept;
    bool decays;
};
std::vector<ElementPlace> PlacesOf(const UpdateCase& c) {
    std::vector<ElementPlace> places;
    for (const UpdateRun& run : c.runs) {
        for (int64_t i = 0; i < run.count; ++i) {
            places.push_back({run.begin + i, run.kept + i, run.decays});
        }
    }
    return places;
}

// The values of an optimizer, and the operands of its op.
struct Optimizer {
    Optimizer(const std::shared_ptr<gpu::Device>& device, const UpdateCase& of, Random& random)
        : c(of), e(device, TrainShape(1), of.skip), places(PlacesOf(of)) {
        gradient = RoundedTo(c.gradient, random.Normals(c.count, 0.3f));
        weights = random.Normals(c.count);
        m = random.Normals(c.kept, 0.1f);
        for (const float x : random.Normals(c.kept, 0.1f)) v.push_back(x * x);
        e.SetUpdate({c.number, rate, scale});
        in_gradient = e.Place({c.count}, c.gradient, gradient);
        in_weights = e.Place({c.count}, DType::kF32, weights);
        in_m = e.Place({c.kept}, DType::kF32, m);
        in_v = e.Place({c.kept}, DType::kF32, v);
        in_copy = e.Place({c.count}, c.copy, std::vector<float>(weights.size(), 5.0f));
    }
    template <typename Attributes>
    Status Do(const Attributes& a, std::vector<ValueId> kept) {
        std::vector<ValueId> inputs = {in_gradient, in_weights};
        inputs.insert(inputs.end(), kept.begin(), kept.end());
        if (c.has_copy) inputs.push_back(in_copy);
        const std::vector<ValueId> outputs(inputs.begin() + 1, inputs.end());
        return e.Do(a, inputs, outputs);
    }
    double Gradient(const ElementPlace& at, double l2) const {
        const auto own = static_cast<size_t>(at.own);
        return scale * gradient[own] + (at.decays ? l2 : 0) * weights[own];
    }
    // Elements outside all runs keep their bits; a copy is the rounded weight.
    void ExpectOthersKept() const {
        std::vector<bool> touched(weights.size());
        for (const ElementPlace& at : places) touched[static_cast<size_t>(at.own)] = true;
        const auto now = e.Read(in_weights), copies = e.Read(in_copy);
        for (size_t i = 0; i < weights.size(); ++i) {
            ASSERT_TRUE(touched[i] || now[i] == weights[i]) << i;
            const bool copied = touched[i] && c.has_copy;
            ASSERT_EQ(copies[i], copied ? RoundedTo(c.copy, now[i]) : 5.0f) << i;
        }
    }
    const UpdateCase& c;
    TrainEmitter e;
    const std::vector<ElementPlace> places;
    const double rate = 0.01, scale = 0.25;
    std::vector<float> gradient, weights, m, v;
    ValueId in_gradient, in_weights, in_m, in_v, in_copy;
};

TEST(VulkanUpdate, Adam) {
    WEFT_VULKAN(device);
    Random random(31);
    for (const UpdateCase& c : kUpdates) {
        for (const bool decoupled : {true, false}) {
            Optimizer o(device, c, random);
            program::AdamUpdate a;
            a.beta1 = 0.9;
            a.beta2 = 0.95;
            a.l2 = decoupled ? 0 : 0.1;
            a.decay = decoupled ? 0.1 : 0;
            a.runs = c.runs;
            EXPECT_DONE(o.Do(a, {o.in_m, o.in_v}));
            const auto m = o.e.Read(o.in_m), v = o.e.Read(o.in_v), p = o.e.Read(o.in_weights);
            const auto t = static_cast<double>(c.number);
            for (const ElementPlace& at : o.places) {
                const auto own = static_cast<size_t>(at.own), kept = static_cast<size_t>(at.kept);
                // Constants are rounded to float32, like the arguments of a kernel.
                const double g = o.Gradient(at, a.l2);
                const double g_size =
                    std::fabs(o.scale * o.gradient[own]) + a.l2 * std::fabs(double{o.weights[own]});
                const double right_m = a.beta1 * o.m[kept] + (1 - a.beta1) * g;
                const double right_v = a.beta2 * o.v[kept] + (1 - a.beta2) * g * g;
                // g is off by 4u of its magnitude, 1 - beta by u of 1.
                const double m_error = 8 * kUlp * (std::fabs(double{o.m[kept]}) + g_size);
                const double v_error = 16 * kUlp * (o.v[kept] + g_size * g_size);
                ASSERT_LE(std::fabs(m[kept] - right_m), m_error);
                ASSERT_LE(std::fabs(v[kept] - right_v), v_error);
                const double first = right_m / (1 - std::pow(a.beta1, t));
                const double second = right_v / (1 - std::pow(a.beta2, t));
                const double size = std::sqrt(second) + a.eps;
                const double weight = o.weights[own];
                const double decay = at.decays ? a.decay : 0;
                const double right = weight - o.rate * (decay * weight + first / size);
                const double relative = 30 * kUlp + v_error / right_v;
                const double error =
                    4 * kUlp * std::fabs(weight) +
                    o.rate * (std::fabs(first / size) * relative +
                              m_error / std::fabs(right_m) * std::fabs(first / size));
                ASSERT_LE(std::fabs(p[own] - right), error) << at.own;
            }
            o.ExpectOthersKept();
        }
    }
}

TEST(VulkanUpdate, Sgd) {
    WEFT_VULKAN(device);
    Random random(32);
    int number = 0;
    for (const UpdateCase& c : kUpdates) {
        for (const double momentum : {0.0, 0.9}) {
            Optimizer o(device, c, random);
            program::SgdUpdate a;
            a.momentum = momentum;
            a.nesterov = momentum > 0 && number++ % 2 == 0;
            a.dampening = a.nesterov ? 0 : 0.25;
            a.l2 = 0.1;
            a.runs = c.runs;
            EXPECT_DONE(o.Do(a, momentum > 0 ? std::vector{o.in_m} : std::vector<ValueId>{}));
            const auto m = o.e.Read(o.in_m), p = o.e.Read(o.in_weights);
            const double taken = c.number == 1 ? 1 : 1 - a.dampening;
            for (const ElementPlace& at : o.places) {
                const auto own = static_cast<size_t>(at.own), kept = static_cast<size_t>(at.kept);
                const double g = o.Gradient(at, a.l2);
                double change = g, size = std::fabs(o.scale * o.gradient[own]) +
                                          a.l2 * std::fabs(double{o.weights[own]});
                if (momentum > 0) {
                    const double moved = momentum * o.m[kept] + taken * g;
                    change = a.nesterov ? g + momentum * moved : moved;
                    size = 2 * size + std::fabs(double{o.m[kept]});
                    ASSERT_LE(std::fabs(m[kept] - moved), 8 * kUlp * size);
                }
                const double weight = o.weights[own];
                const double error = 4 * kUlp * std::fabs(weight) + o.rate * 16 * kUlp * size;
                ASSERT_LE(std::fabs(p[own] - (weight - o.rate * change)), error) << at.own;
            }
            o.ExpectOthersKept();
        }
    }
}

TEST(VulkanUpdate, Lion) {
    WEFT_VULKAN(device);
    Random random(35);
    for (const UpdateCase& c : kUpdates) {
        Optimizer o(device, c, random);
        program::LionUpdate a{0.9, 0.99, 0.1, c.runs};
        EXPECT_DONE(o.Do(a, {o.in_m}));
        const auto m = o.e.Read(o.in_m), p = o.e.Read(o.in_weights);
        for (const ElementPlace& at : o.places) {
            const auto own = static_cast<size_t>(at.own), kept = static_cast<size_t>(at.kept);
            const double g = o.Gradient(at, 0), weight = o.weights[own];
            const double way = a.beta1 * o.m[kept] + (1 - a.beta1) * g;
            const double size = std::fabs(double{o.m[kept]}) + std::fabs(g);
            ASSERT_LE(std::fabs(m[kept] - (a.beta2 * o.m[kept] + (1 - a.beta2) * g)),
                      8 * kUlp * size);
            if (std::fabs(way) <= 8 * kUlp * size) continue;  // either sign
            const double sign = way > 0 ? 1 : -1, decay = at.decays ? a.decay : 0;
            const double right = weight - o.rate * (sign + decay * weight);
            ASSERT_LE(std::fabs(p[own] - right), 4 * kUlp * (std::fabs(weight) + o.rate));
        }
        o.ExpectOthersKept();
    }
}

TEST(VulkanUpdate, ScheduleFree) {
    WEFT_VULKAN(device);
    Random random(36);
    for (const UpdateCase& c : kUpdates) {
        Optimizer o(device, c, random);
        const double share = 0.25, rate = o.rate;
        o.e.SetUpdate({c.number, o.rate, o.scale, share});
        program::ScheduleFreeUpdate a{0.9, 0.95, 1e-8, 0.1, c.runs};
        EXPECT_DONE(o.Do(a, {o.in_m, o.in_v}));
        const auto z = o.e.Read(o.in_m), v = o.e.Read(o.in_v), y = o.e.Read(o.in_weights);
        for (const ElementPlace& at : o.places) {
            const auto own = static_cast<size_t>(at.own), kept = static_cast<size_t>(at.kept);
            const double g = o.Gradient(at, 0), before = o.weights[own], old = o.m[kept];
            const double second = a.beta2 * o.v[kept] + (1 - a.beta2) * g * g;
            const double corrected =
                second / (1 - std::pow(a.beta2, static_cast<double>(c.number)));
            const double step =
                g / (std::sqrt(corrected) + a.eps) + (at.decays ? a.decay : 0) * before;
            const double size = std::fabs(before) + std::fabs(old);
            const double error = 8 * kUlp * size + rate * 60 * kUlp * (std::fabs(step) + size);
            ASSERT_LE(std::fabs(v[kept] - second), 16 * kUlp * second);
            ASSERT_LE(std::fabs(z[kept] - (old - rate * step)), error);
            const double right =
                before + share * (old - before) + rate * (a.beta1 * (1 - share) - 1) * step;
            ASSERT_LE(std::fabs(y[own] - right), error);
        }
        o.ExpectOthersKept();
        // The average, in the copy or in the weights, and again the weights.
        for (const bool averaged : {true, false}) {
            program::ScheduleFreeView view{a.beta1, averaged, c.runs};
            std::vector<ValueId> written = {o.in_weights, o.in_gradient};
            if (c.has_copy) written.push_back(o.in_copy);
            std::vector<ValueId> read = {o.in_m};
            read.insert(read.end(), written.begin(), written.end());
            EXPECT_DONE(o.e.Do(view, read, written));
            const auto seen = o.e.Read(c.has_copy ? o.in_copy : o.in_weights);
            for (const ElementPlace& at : o.places) {
                const auto own = static_cast<size_t>(at.own), kept = static_cast<size_t>(at.kept);
                const double x = y[own] + (1 - 1 / a.beta1) * (double{z[kept]} - y[own]);
                const double size = std::fabs(double{y[own]}) + std::fabs(double{z[kept]});
                const double round = c.has_copy && c.copy == DType::kBF16 ? 0x1p-8 : 0x1p-11;
                if (!averaged) {
                    ASSERT_EQ(seen[own], c.has_copy ? RoundedTo(c.copy, y[own]) : y[own]);
                } else {
                    ASSERT_LE(std::fabs(seen[own] - x),
                              (c.has_copy ? round * std::fabs(x) : 0) + 8 * kUlp * size);
                }
            }
        }
    }
}

double DistanceOfNearest(const DynamicCodes& codes, double x) {
    double best = 2;
    for (int code = 0; code < 256; ++code) {
        best = std::min(best, std::fabs(codes.value(static_cast<uint8_t>(code)) - x));
    }
    return best;
}

// Codes of a run of whole blocks and a tail; the tail's last word has bytes outside the run.
// Muon beside the CPU's steps in float64: each of 15 products of up to 70 terms of size 1 is off by
// some 70 u, and five steps of the iteration enlarge errors by up to 3.4^5.
TEST(VulkanUpdate, Muon) {
    WEFT_VULKAN(device);
    Random random(36);
    for (const auto& [rows, cols, nesterov, adam_size] :
         {std::tuple{20, 70, true, true}, {70, 20, false, false}, {1, 9, true, false}}) {
        const int64_t count = rows * cols, begin = 6;
        const UpdateCase c = {count + 11, count + 4, 1, {}, DType::kBF16, DType::kBF16};
        Optimizer o(device, c, random);
        program::MuonUpdate a;
        a.decay = 0.1, a.nesterov = nesterov, a.adam_size = adam_size;
        a.matrices = {{begin, 3, rows, cols}};
        EXPECT_DONE(o.Do(a, {o.in_m}));
        Doubles x(static_cast<size_t>(count)), m(x);
        double squares = 0;
        for (size_t i = 0; i < x.size(); ++i) {
            const double g = o.scale * o.gradient[i + begin], old = o.m[i + 3];
            m[i] = old + (1 - a.momentum) * (g - old);
            x[i] = nesterov ? g + a.momentum * (m[i] - g) : m[i];
            squares += x[i] * x[i];
        }
        for (double& value : x) value /= std::sqrt(squares);
        // x [r, c], with c summed first: as (x x^T) x = x (x^T x), the order does not matter.
        const auto r = static_cast<size_t>(rows), n = static_cast<size_t>(cols);
        for (int step = 0; step < 5; ++step) {
            Doubles gram(r * r), once(x.size()), twice(x.size());
            for (size_t i = 0; i < r * r; ++i) {
                for (size_t k = 0; k < n; ++k) gram[i] += x[i / r * n + k] * x[i % r * n + k];
            }
            const auto multiply = [&](const Doubles& from, Doubles& to) {
                for (size_t i = 0; i < to.size(); ++i) {
                    for (size_t k = 0; k < r; ++k)
                        to[i] += gram[i / n * r + k] * from[k * n + i % n];
                }
            };
            multiply(x, once), multiply(once, twice);
            for (size_t i = 0; i < x.size(); ++i) {
                x[i] = 3.4445 * x[i] - 4.7750 * once[i] + 2.0315 * twice[i];
            }
        }
        const double size = adam_size ? 0.2 * std::sqrt(std::max(rows, cols))
                                      : std::sqrt(std::max(1.0, double(rows) / cols));
        const auto weights = o.e.Read(o.in_weights), copies = o.e.Read(o.in_copy);
        const auto momentum = o.e.Read(o.in_m);
        for (size_t i = 0; i < o.weights.size(); ++i) {
            const bool own = i >= begin && i < x.size() + begin;
            const double before = o.weights[i];
            const double right =
                own ? before * (1 - o.rate * a.decay) - o.rate * size * x[i - begin] : before;
            ASSERT_TRUE(std::fabs(weights[i] - right) <= (own ? 1e-6 : 0.0))
                << i << ": " << weights[i] << ", expected " << right;
            ASSERT_EQ(copies[i], own ? RoundedTo(DType::kBF16, weights[i]) : 5.0f) << i;
        }
        for (size_t i = 0; i < o.m.size(); ++i) {
            const bool own = i >= 3 && i < x.size() + 3;
            ASSERT_TRUE(std::fabs(momentum[i] - (own ? m[i - 3] : o.m[i])) <= (own ? 1e-6 : 0.0));
        }
    }
}

TEST(VulkanUpdate, AdamWith8BitMoments) {
    WEFT_VULKAN(device);
    Random random(33);
    UpdateCase c{1536, 1536, 0, {{0, 0, 513, true}, {768, 768, 258, false}}, DType::kBF16};
    c.number = 3;
    const auto size = static_cast<size_t>(c.count), blocks = size / kStateBlock;
    Optimizer o(device, c, random);
    std::vector<uint8_t> m_codes(size), v_codes(size);
    std::vector<float> m_scales(blocks), v_scales(blocks), m(size), v(size);
    for (size_t b = 0; b < blocks; ++b) {
        const auto block = [&](auto& of) {
            return std::span(of).subspan(b * kStateBlock, kStateBlock);
        };
        m_scales[b] = Narrow(SignedCodes(), block(o.m), block(m_codes));
        v_scales[b] = Narrow(UnsignedCodes(), block(o.v), block(v_codes));
        Widen(SignedCodes(), block(m_codes), m_scales[b], block(m));
        Widen(UnsignedCodes(), block(v_codes), v_scales[b], block(v));
    }
    const auto words = [&](const std::vector<uint8_t>& codes) {
        return o.e.AddValues({c.count / 4}, DType::kI32, std::as_bytes(std::span(codes)));
    };
    const auto scales = [&](const std::vector<float>& of) {
        return o.e.AddFloats({static_cast<int64_t>(of.size())}, of);
    };
    const ValueId in_m = words(m_codes), in_v = words(v_codes);
    const ValueId in_ms = scales(m_scales), in_vs = scales(v_scales);
    program::Adam8bitUpdate a;
    a.adam.decay = 0.1;
    a.adam.runs = c.runs;
    EXPECT_DONE(o.Do(a, {in_m, in_v, in_ms, in_vs}));
    const auto now_m = o.e.Ints(in_m), now_v = o.e.Ints(in_v);
    const auto now_ms = o.e.Floats(in_ms), now_vs = o.e.Floats(in_vs);
    const auto code_of = [](const std::vector<int32_t>& in, size_t i) {
        return static_cast<uint8_t>(static_cast<uint32_t>(in[i / 4]) >> (8 * (i % 4)));
    };
    std::vector<bool> touched(size);
    Doubles m_most(blocks), v_most(blocks), right_m(size), right_v(size);
    for (const ElementPlace& at : o.places) {
        const auto i = static_cast<size_t>(at.own);
        const double g = o.Gradient(at, 0);
        touched[i] = true;
        right_m[i] = a.adam.beta1 * m[i] + (1 - a.adam.beta1) * g;
        right_v[i] = a.adam.beta2 * v[i] + (1 - a.adam.beta2) * g * g;
        m_most[i / kStateBlock] = std::max(m_most[i / kStateBlock], std::fabs(right_m[i]));
        v_most[i / kStateBlock] = std::max(v_most[i / kStateBlock], right_v[i]);
    }
    for (size_t i = 0; i < size; ++i) {
        const size_t b = i / kStateBlock;
        if (!touched[i]) {
            ASSERT_EQ(code_of(now_m, i), m_codes[i]) << i;
            ASSERT_EQ(code_of(now_v, i), v_codes[i]) << i;
            continue;
        }
        ASSERT_NEAR(now_ms[b], m_most[b], 16 * kUlp * m_most[b]);
        ASSERT_NEAR(now_vs[b], v_most[b], 32 * kUlp * v_most[b]);
        // No other code is nearer by more than the error of float32.
        const double of_m = right_m[i] / m_most[b], of_v = right_v[i] / v_most[b];
        const double m_off = std::fabs(SignedCodes().value(code_of(now_m, i)) - of_m);
        const double v_off = std::fabs(UnsignedCodes().value(code_of(now_v, i)) - of_v);
        ASSERT_LE(m_off, DistanceOfNearest(SignedCodes(), of_m) + 64 * kUlp) << i;
        ASSERT_LE(v_off, DistanceOfNearest(UnsignedCodes(), of_v) + 64 * kUlp) << i;
    }
    o.ExpectOthersKept();
}

// A sum of 3 million squares in two floats is as exact as one in float64, in any order.
TEST(VulkanUpdate, SquaresAreAddedUpInTwoFloats) {
    WEFT_VULKAN(device);
    Random random(34);
    for (const DType dtype : kFloatTypes) {
        const int64_t skip = dtype == DType::kF32 ? 1 : 0;
        const int64_t count = dtype == DType::kF32 ? 3000001 : 40000;
        TrainEmitter e(device, TrainShape(1), skip);
        auto x = random.Normals(count);
        for (size_t i = 0; i < x.size(); i += 97) x[i] *= 100;
        x = RoundedTo(dtype, x);
        program::AddSquares a;
        a.ranges = {{0, count / 3}, {count / 3, count / 3}, {count / 2, count - 1}};
        double expected = 0.0;
        for (const auto& range : a.ranges) {
            for (int64_t i = range.begin; i < range.end; ++i) {
                expected += double{x[static_cast<size_t>(i)]} * x[static_cast<size_t>(i)];
            }
        }
        const ValueId in = e.Place({count}, dtype, x);
        std::vector<float> first;
        for (int time = 0; time < 2; ++time) {
            const ValueId sum = e.Place({2}, DType::kF32, {1e6f, 0.015625f});
            EXPECT_DONE(e.Do(a, {in, sum}, {sum}));
            const auto got = e.Read(sum);
            const double all = 1e6 + 0.015625 + expected;
            EXPECT_NEAR(double{got[0]} + double{got[1]}, all, 0x1p-28 * all) << NameOf(dtype);
            EXPECT_TRUE(time == 0 || got == first);
            first = got;
        }
    }
}

TEST(VulkanUpdate, ScalarsDependOnTheUpdate) {
    std::vector<float> memory(UpdateScalars::kMost, -1.0f);
    UpdateScalars scalars(memory, 4096);
    using enum UpdateScalarKind;
    EXPECT_EQ(scalars.Address(kRate, 0), 4096u);
    EXPECT_EQ(scalars.Address(kCorrection, 0.9), 4100u);
    EXPECT_EQ(scalars.Address(kCorrection, 0.999), 4104u);
    EXPECT_EQ(scalars.Address(kCorrection, 0.9), 4100u);  // the same as before
    EXPECT_EQ(scalars.Address(kPower, -0.8), 4108u);
    EXPECT_EQ(scalars.Address(kFirst, 0), 4112u);
    EXPECT_EQ(scalars.Address(kGradientScale, 0), 4116u);
    scalars.Fill({1, 3e-4, 0.5});
    EXPECT_EQ(memory[0], 3e-4f);
    EXPECT_EQ(memory[1], static_cast<float>(1 - 0.9));
    EXPECT_EQ(memory[3], 1.0f);
    EXPECT_EQ(memory[4], 1.0f);
    EXPECT_EQ(memory[5], 0.5f);
    scalars.Fill({5, 1e-4, 2});
    EXPECT_EQ(memory[0], 1e-4f);
    EXPECT_EQ(memory[2], static_cast<float>(1 - std::pow(0.999, 5)));
    EXPECT_EQ(memory[3], static_cast<float>(std::pow(5, -0.8)));
    EXPECT_EQ(memory[4], 0.0f);
    EXPECT_EQ(memory[6], -1.0f);  // not requested
}

TEST(VulkanUpdate, RefusesUnsupportedState) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(1));
    const ValueId x = e.Place({8}, DType::kF32);
    program::AddSquares squares;
    squares.ranges = {{0, 8}};
    const ValueId wide = e.AddValues({1}, DType::kF64);
    const Status status = e.Do(squares, {x, wide}, {wide});
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("F64"), std::string::npos) << status.error().message;
    program::AdamUpdate adam;
    adam.runs = {{0, 0, 8}};
    const ValueId half = e.Place({8}, DType::kBF16);
    EXPECT_FALSE(e.Do(adam, {x, half, x, x}, {half, x, x}).ok());
}

TEST(VulkanUpdate, AnUpdateOfNothingDoesNothing) {
    WEFT_VULKAN(device);
    TrainEmitter e(device, TrainShape(1));
    const ValueId x = e.Place({8}, DType::kF32), sum = e.Place({2}, DType::kF32, {1, 2});
    EXPECT_DONE(e.Do(program::AddSquares{}, {x, sum}, {sum}));
    EXPECT_DONE(e.Do(program::AdamUpdate{}, {x, x, x, x}, {x, x, x}));
    EXPECT_EQ(e.Read(sum), (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace weft::backend::on_gpu
