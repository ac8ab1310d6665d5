// A kernel that computes rows and also encodes them as int8 gives the same bits as a separate
// encoding kernel, and replaces it.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "backend/gpu/lower/fuse.h"
#include "backend/gpu/lower/products.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

constexpr int64_t kOut = 19;  // outputs of the products that read the rows

// A value whose producer is tested, and a product that reads it.
struct Reader {
    ValueId made = 0, product = 0;
    size_t op = 0;
};

// The producer's values and the ops it lowers, which are the same each time.
class Maker {
  public:
    virtual ~Maker() = default;
    virtual Status Lower() = 0;
    BenchEmitter& emitter() { return e_; }
    // A product of `made` by a random weight, not lowered yet.
    Reader AddReader(ValueId made, int64_t cols, uint32_t seed) {
        const RandomWeight weight(DType::kQ8_0, kOut, cols, seed);
        const ValueId w = e_.AddWeight(DType::kQ8_0, {kOut, cols}, weight.blocks);
        const ValueId y = e_.AddFloats({kTokens, kOut});
        const size_t op = e_.AddOp(program::MatMul{}, {made, w}, {y});
        return readers.emplace_back(Reader{made, y, op});
    }
    std::vector<Reader> readers;

  protected:
    Maker(const std::shared_ptr<gpu::Device>& device, int64_t rows)
        : e_(device, StepShape{.rows = static_cast<int32_t>(rows)}) {
        e_.set_arithmetic({.integer = true});
    }
    BenchEmitter e_;
};

struct Outcome {
    std::vector<std::vector<float>> floats;  // the produced value, and each product of it
    size_t dispatches = 0;
};

Outcome RunOf(Maker& maker, bool fuses) {
    BenchEmitter& e = maker.emitter();
    e.set_fuses(fuses);
    e.ForgetDerived();
    for (const Reader& reader : maker.readers) {
        e.Poison(reader.made);
        e.Poison(reader.product);
    }
    EXPECT_TRUE(maker.Lower().ok());
    for (const Reader& reader : maker.readers) EXPECT_TRUE(e.LowerNumber(reader.op).ok());
    Outcome outcome;
    outcome.dispatches = e.dispatch_count();
    const Status run = e.Run();
    EXPECT_TRUE(run.ok()) << run.error().message;
    for (const Reader& reader : maker.readers) {
        outcome.floats.push_back(e.Floats(reader.made));
        outcome.floats.push_back(e.Floats(reader.product));
    }
    return outcome;
}

// fewer: the number of dispatches saved.
void ExpectBitsKept(Maker& maker, size_t fewer) {
    const Outcome want = RunOf(maker, false);
    for (int again = 0; again < 2; ++again) {
        const Outcome got = RunOf(maker, true);
        EXPECT_EQ(got.dispatches + fewer, want.dispatches);
        for (size_t v = 0; v < want.floats.size(); ++v) {
            size_t numbers = 0;
            for (size_t i = 0; i < want.floats[v].size(); ++i) {
                const float a = got.floats[v][i], b = want.floats[v][i];
                ASSERT_EQ(std::isnan(a), std::isnan(b)) << "value " << v << ", element " << i;
                if (std::isnan(b)) continue;
                ASSERT_EQ(std::bit_cast<uint32_t>(a), std::bit_cast<uint32_t>(b))
                    << "value " << v << ", element " << i << ": " << a << ", not " << b;
                ++numbers;
            }
            EXPECT_GT(numbers, 0u);
        }
    }
}

#define WEFT_INTEGERS(opened)               \
    WEFT_VULKAN(opened);                    \
    if (!opened->description().integer_dot) \
    GTEST_SKIP() << opened->description().name << " has no integer dot products"

constexpr int64_t kWidths[] = {32, 96, 160, 1024, 1056, 2080};

// Blocks of zeros, with a tiny peak, with infinity and with NaN, each in one row of several.
std::vector<float> HostileValues(int64_t rows, int64_t cols, uint32_t seed) {
    std::vector<float> values = RandomValues(rows * cols, seed);
    std::fill_n(values.begin(), 32, 0.0f);
    if (rows < 4) return values;
    const auto row = [&](int64_t r) { return values.begin() + r * cols; };
    std::transform(row(1), row(1) + 32, row(1), [](float x) { return x * 0x1p-110f; });
    *(row(2) + cols - 1) = std::numeric_limits<float>::infinity();
    *(row(3) + cols / 2) = std::numeric_limits<float>::quiet_NaN();
    return values;
}

// ---- Norms --------------------------------------------------------------------------------------

class NormMaker : public Maker {
  public:
    NormMaker(const std::shared_ptr<gpu::Device>& device, int64_t rows, int64_t cols, bool plain,
              uint32_t seed)
        : Maker(device, rows) {
        const ValueId x = e_.AddFloats({kTokens, cols}, HostileValues(rows, cols, seed));
        const ValueId y = e_.AddFloats({kTokens, cols});
        program::RmsNorm norm{1e-5f, cols};
        norm.plain = plain;
        std::vector<ValueId> inputs = {x};
        if (!plain) inputs.push_back(e_.AddVector(RandomValues(cols, seed + 1)));
        op_ = e_.AddOp(norm, std::move(inputs), {y});
        AddReader(y, cols, seed + 2);
    }
    Status Lower() override { return e_.LowerNumber(op_); }

  private:
    size_t op_ = 0;
};

TEST(VulkanEncodes, Norms) {
    WEFT_INTEGERS(device);
    uint32_t seed = 20;
    for (const int64_t cols : kWidths) {
        for (const int64_t rows : {1, 5, 8}) {
            SCOPED_TRACE(fmt::format("{} x {}", rows, cols));
            ++seed;
            NormMaker maker(device, rows, cols, seed % 2 == 0, seed);
            ExpectBitsKept(maker, 1);
        }
    }
}

// Excluded: steps of more rows, products in float32 (--exact), --reference, steps with a probe.
TEST(VulkanEncodes, OnlyWhereFewRowsAreReadAsIntegers) {
    WEFT_INTEGERS(device);
    NormMaker many(device, 9, 96, true, 50);
    ExpectBitsKept(many, 0);
    NormMaker exact(device, 3, 96, true, 51);
    exact.emitter().set_arithmetic({});
    ExpectBitsKept(exact, 0);
    NormMaker reference(device, 3, 96, true, 52);
    reference.emitter().set_reference(true);
    ExpectBitsKept(reference, 0);
}

// ---- Residuals ----------------------------------------------------------------------------------

struct ResidualCase {
    bool next = true;                           // whether a norm of the sum follows
    bool reads_sum = false, reads_next = true;  // which of the two products are read
    size_t fewer = 1;
};

class ResidualMaker : public Maker {
  public:
    ResidualMaker(const std::shared_ptr<gpu::Device>& device, int64_t rows, int64_t cols,
                  const ResidualCase& c, uint32_t seed)
        : Maker(device, rows) {
        const auto value = [&](uint32_t s) {
            return e_.AddFloats({kTokens, cols}, HostileValues(rows, cols, s));
        };
        const ValueId m = value(seed), x = value(seed + 1);
        const ValueId scaled = e_.AddFloats({kTokens, cols}), sum = e_.AddFloats({kTokens, cols});
        const ValueId out = e_.AddFloats({kTokens, cols});
        const ValueId w = e_.AddVector(RandomValues(cols, seed + 2));
        ResidualRun run;
        run.scale = Number(program::Scale{0.75f}, {m}, {scaled});
        run.add = Number(program::Add{}, {x, scaled}, {sum});
        if (c.next) run.next = Number(program::RmsNorm{1e-5f, cols}, {sum, w}, {out});
        run_.what = run;
        if (c.reads_sum) AddReader(sum, cols, seed + 3);
        if (c.reads_next) AddReader(out, cols, seed + 4);
    }
    Status Lower() override { return LowerRun(e_, run_); }

  private:
    template <typename Attributes>
    int32_t Number(const Attributes& a, std::vector<ValueId> in, std::vector<ValueId> out) {
        run_.ops.push_back(static_cast<int32_t>(e_.AddOp(a, std::move(in), std::move(out))));
        return run_.ops.back();
    }
    FusedRun run_;
};

TEST(VulkanEncodes, Residuals) {
    WEFT_INTEGERS(device);
    const ResidualCase cases[] = {{},
                                  {.next = false, .reads_sum = true, .reads_next = false},
                                  {.reads_sum = true, .reads_next = false},
                                  // One of the two is encoded by a separate kernel.
                                  {.reads_sum = true}};
    uint32_t seed = 60;
    for (const ResidualCase& c : cases) {
        for (const int64_t cols : kWidths) {
            const int64_t rows = 1 + ++seed % 8;
            SCOPED_TRACE(
                fmt::format("{} x {}: {}{}{}", rows, cols, c.next, c.reads_sum, c.reads_next));
            ResidualMaker maker(device, rows, cols, c, seed);
            ExpectBitsKept(maker, c.fewer);
        }
    }
}

// ---- Gates --------------------------------------------------------------------------------------

struct GateCase {
    DType dtype = DType::kQ4_0;
    int64_t rows = 1, n = 64, cols = 64;
    Activation activation = Activation::kSilu;
    int64_t all = 0, used = 0, first = 0, held = 0;  // experts, as in glu_test.cc
    bool gate_made = false;
};

class GateMaker : public Maker {
  public:
    GateMaker(const std::shared_ptr<gpu::Device>& device, const GateCase& c, uint32_t seed)
        : Maker(device, c.rows), c_(c) {
        x_ = e_.AddFloats({kTokens, c.cols}, HostileValues(c.rows, c.cols, seed));
        if (c.all > 0) ids_ = e_.AddInts({kTokens, c.used}, Ids());
        const ValueId gate = e_.AddFloats(RowShape()), up = e_.AddFloats(RowShape());
        gated_ = e_.AddFloats(RowShape());
        const auto gate_op = static_cast<int32_t>(AddProduct(gate, seed + 1));
        const auto up_op = static_cast<int32_t>(AddProduct(up, seed + 2));
        const auto glu =
            static_cast<int32_t>(e_.AddOp(program::Glu{c.activation}, {gate, up}, {gated_}));
        if (c.gate_made) {
            run_ = {GluRun{.up = up_op, .glu = glu}, {up_op, glu}};
        } else {
            run_ = {GluRun{.gate = gate_op, .up = up_op, .glu = glu}, {gate_op, up_op, glu}};
        }
        if (c.all == 0) AddReader(gated_, c.n, seed + 3);
        if (c.all > 0) AddSum(seed + 3);
    }
    Status Lower() override {
        if (c_.gate_made) {
            WEFT_TRY(e_.LowerNumber(0));
        }
        return LowerRun(e_, run_);
    }

  private:
    program::Shape RowShape() const {
        return c_.all > 0 ? program::Shape{kTokens, c_.used, c_.n} : program::Shape{kTokens, c_.n};
    }
    std::vector<int32_t> Ids() const {
        std::vector<int32_t> ids;
        for (int64_t i = 0; i < c_.rows * c_.used; ++i) {
            ids.push_back(static_cast<int32_t>((i % c_.used + 3 * (i / c_.used)) % c_.all));
        }
        return ids;
    }
    size_t AddProduct(ValueId y, uint32_t seed) {
        const int64_t matrices = c_.all > 0 ? c_.held : 1;
        const RandomWeight weight(c_.dtype, matrices * c_.n, c_.cols, seed);
        if (c_.all == 0) {
            return e_.AddOp(program::MatMul{},
                            {x_, e_.AddWeight(c_.dtype, {c_.n, c_.cols}, weight.blocks)}, {y});
        }
        return e_.AddOp(
            program::ExpertMatMul{.first_expert = c_.first},
            {x_, ids_, e_.AddWeight(c_.dtype, {matrices, c_.n, c_.cols}, weight.blocks)}, {y});
    }
    // Nobody reads rows of experts that this rank does not hold: only the sums matter.
    void AddSum(uint32_t seed) {
        const RandomWeight weight(DType::kQ8_0, c_.held * kOut, c_.n, seed);
        const ValueId y = e_.AddFloats({kTokens, kOut});
        const ValueId weights =
            e_.AddFloats({kTokens, c_.used}, RandomValues(c_.rows * c_.used, seed));
        program::ExpertSum sum;
        sum.first_expert = c_.first;
        const size_t op =
            e_.AddOp(sum,
                     {gated_, ids_, weights,
                      e_.AddWeight(DType::kQ8_0, {c_.held, kOut, c_.n}, weight.blocks)},
                     {y});
        readers.push_back({gated_, y, op});
    }
    const GateCase c_;
    ValueId x_ = 0, ids_ = 0, gated_ = 0;
    FusedRun run_;
};

TEST(VulkanEncodes, GatesOfTypes) {
    WEFT_INTEGERS(device);
    uint32_t seed = 100;
    for (const DType dtype : {DType::kF16, DType::kQ6_K, DType::kIQ2_S, DType::kMXFP4}) {
        GateCase c{dtype, 1 + 2 * (++seed % 3)};
        SCOPED_TRACE(fmt::format("{}, {} rows", Info(dtype).name, c.rows));
        c.cols = std::max<int64_t>(64, Info(dtype).block_elements);
        c.activation = static_cast<Activation>(seed % 3);
        GateMaker maker(device, c, seed);
        ExpectBitsKept(maker, 1);
        if (HasFailure()) return;
    }
}

TEST(VulkanEncodes, GatesOfAllShapes) {
    WEFT_INTEGERS(device);
    uint32_t seed = 200;
    for (const int64_t rows : {1, 8}) {
        for (const int64_t n : {32, 96, 4128}) {  // for the largest, a workgroup has more than one
            if (rows > 1 && n > 96) continue;
            SCOPED_TRACE(fmt::format("{} rows of {}", rows, n));
            GateCase c{++seed % 2 == 0 ? DType::kQ4_0 : DType::kF32, rows, n};
            c.gate_made = seed % 3 == 0;
            GateMaker maker(device, c, seed);
            ExpectBitsKept(maker, 1);
        }
    }
    // More rows are encoded one by one.
    GateMaker many(device, {.rows = 9}, 300);
    ExpectBitsKept(many, 0);
}

TEST(VulkanEncodes, GatesOfExperts) {
    WEFT_INTEGERS(device);
    uint32_t seed = 400;
    for (const int64_t rows : {1, 3, 8}) {
        for (const bool some : {false, true}) {
            SCOPED_TRACE(fmt::format("{} rows, {}", rows, some ? "some held" : "all held"));
            GateCase c{++seed % 2 == 0 ? DType::kQ4_K : DType::kQ8_0, rows, 96, 256};
            c.all = 7;
            c.used = 3;
            c.first = some ? 2 : 0;
            c.held = some ? 4 : 7;
            c.gate_made = seed % 3 == 0;
            GateMaker maker(device, c, seed);
            ExpectBitsKept(maker, 1);
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
