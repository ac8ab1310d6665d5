// The causal convolution, the gated delta rule, SSD and pooled windows against the plain formulas
// in double, over random shapes and sequences; neither the division of a sequence into steps nor
// other sequences in a step change a row's bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "kernels/pool_windows.h"
#include "kernels/recurrent.h"
#include "support/kernel_levels.h"
#include "support/naive_recurrent.h"

namespace weft::kernels::test {
namespace {

using support::Matrix;
using support::OpCall;

constexpr int32_t kSlots = 12;

bool SameFloats(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Sequences of random lengths, one after another; sequence i ends in slot i.
std::vector<StateSequence> RandomSequences(Random& random) {
    std::vector<StateSequence> sequences;
    int32_t row = 0;
    const auto count = static_cast<int32_t>(random.Int(1, 4));
    for (int32_t i = 0; i < count; ++i) {
        StateSequence s;
        s.row_begin = row;
        s.row_count = static_cast<int32_t>(random.Int(1, 20));
        s.to = i;
        row += s.row_count;
        sequences.push_back(s);
    }
    return sequences;
}

int32_t RowsOf(const std::vector<StateSequence>& sequences) {
    return sequences.back().row_begin + sequences.back().row_count;
}

// The sequences in the interpreter's form.
std::vector<Sequence> PlainSequences(const std::vector<StateSequence>& sequences) {
    std::vector<Sequence> plain;
    for (const StateSequence& s : sequences) plain.push_back({s.row_begin, s.row_count, 0, {}});
    return plain;
}

std::vector<double> AsDoubles(const std::vector<float>& values) {
    return {values.begin(), values.end()};
}

// One op over rows of sequences, with its own slots of state. Memory that a kernel must not touch
// holds a number that would be noticed.
class RecurrentCase {
  public:
    virtual ~RecurrentCase() = default;
    // Runs `sequences` over `slots`, in `parts` parts, and writes their rows of y.
    virtual void Run(const Ops& ops, std::span<const StateSequence> sequences,
                     std::vector<float>& slots, int parts, std::vector<float>& y) const = 0;
    // y of all rows, starting from zeros.
    virtual std::vector<double> Expected() const = 0;
    virtual double Bound() const = 0;
    virtual int64_t slot_floats() const = 0;
    virtual int64_t width() const = 0;  // of y

    std::vector<float> NewSlots() const {
        return std::vector<float>(static_cast<size_t>(kSlots * slot_floats()), 1e30f);
    }
    std::vector<float> NewY() const {
        return std::vector<float>(static_cast<size_t>(RowsOf(sequences) * width()), 1e30f);
    }
    std::vector<float> Slot(const std::vector<float>& slots, int32_t slot) const {
        const auto begin = slots.begin() + slot * slot_floats();
        return {begin, begin + slot_floats()};
    }

    std::vector<StateSequence> sequences;
};

class ConvCase final : public RecurrentCase {
  public:
    explicit ConvCase(Random& random)
        : cols_(random.Int(1, 70)), taps_(random.Int(2, kMostTaps)), silu_(random.Int(0, 1) == 1) {
        sequences = RandomSequences(random);
        x_ = random.Normals(RowsOf(sequences) * cols_);
        weight_ = random.Normals(cols_ * taps_);
        if (random.Int(0, 1) == 1) bias_ = random.Normals(cols_);
        if (random.Int(0, 1) == 0) return;
        inner_ = random.Normals(RowsOf(sequences) * cols_, 0.3f);
        outer_ = random.Normals(RowsOf(sequences) * cols_, 0.3f);
    }
    void Run(const Ops& ops, std::span<const StateSequence> parts_of, std::vector<float>& slots,
             int parts, std::vector<float>& y) const override {
        CausalConvArgs args;
        args.sequences = parts_of;
        args.x = x_.data(), args.weight = weight_.data();
        args.bias = bias_.empty() ? nullptr : bias_.data();
        if (!inner_.empty()) args.inner = inner_.data(), args.outer = outer_.data();
        args.cols = cols_, args.taps = taps_, args.silu = silu_;
        args.state = {slots.data(), slot_floats()};
        args.y = y.data();
        RunParts(ops.causal_conv, args, parts);
    }
    std::vector<double> Expected() const override {
        std::vector<double> x = AsDoubles(x_), weight = AsDoubles(weight_), bias = AsDoubles(bias_);
        std::vector<double> inner = AsDoubles(inner_), outer = AsDoubles(outer_);
        std::vector<double> y(x.size()), none;
        const int64_t rows = RowsOf(sequences);
        const std::vector<Sequence> plain = PlainSequences(sequences);
        OpCall<double> call{{{x, rows}, {weight, cols_}}, {{y, rows}}, plain};
        if (!bias_.empty()) call.in.push_back({bias, cols_});
        if (!inner.empty()) call.in.push_back({inner, rows});
        if (!inner.empty()) call.in.push_back({outer, rows});
        call.in.push_back({none, 0});
        support::naive::Do(program::CausalConv{silu_, !inner.empty()}, call);
        return y;
    }
    // Each tap's product and sum is rounded, then exp, a sum and a quotient; x, weights and gates
    // are at most 6, and silu's derivative is below 1.1.
    double Bound() const override { return kUlp * 36 * static_cast<double>(taps_ * taps_ + 8); }
    int64_t slot_floats() const override { return (taps_ - 1) * cols_; }
    int64_t width() const override { return cols_; }

  private:
    int64_t cols_, taps_;
    bool silu_;
    std::vector<float> x_, weight_, bias_, inner_, outer_;  // inner_ empty: no gates
};

class DeltaCase : public RecurrentCase {
  public:
    explicit DeltaCase(Random& random, bool ssd = false) {
        rule_.ssd = ssd;
        sequences = RandomSequences(random);
        rule_.key_heads = random.Int(1, 3);
        rule_.group = random.Int(1, 3);
        heads_ = random.Int(1, 2) * rule_.group;
        rule_.first_head = random.Int(0, 3) * rule_.group;
        if (random.Int(0, 1) == 1) {
            rule_.cycle = rule_.key_heads;
        } else {
            rule_.first_key_head = rule_.first_head / rule_.group;
            rule_.key_heads = std::max(rule_.key_heads, heads_ / rule_.group);
        }
        rule_.by_channel = random.Int(0, 2) == 0;
        if (!ssd && random.Int(0, 2) == 0) rule_.floor = -5;
        dim_ = random.Pick<int64_t>({random.Int(1, 40), 64, 128});
        cols_ = random.Pick<int64_t>({random.Int(1, 40), 16, 64});
        const int64_t rows = RowsOf(sequences), each = rule_.by_channel && !ssd ? dim_ : 1;
        const int64_t rates = rule_.by_channel && ssd ? dim_ : 1;
        // Keys with a length of about 1, as the models' norms give.
        rule_.key_scale = rule_.query_scale = 1 / std::sqrt(static_cast<float>(dim_));
        q_ = random.Normals(rows * rule_.key_heads * dim_);
        k_ = random.Normals(rows * rule_.key_heads * dim_, 0.5f);
        v_ = random.Normals(rows * heads_ * cols_);
        decay_ = random.Normals(rows * heads_ * each, 3);
        if (!ssd) beta_ = random.Normals(rows * heads_);
        if (ssd) skip_ = random.Normals(heads_);
        dt_ = random.Normals(heads_ * each);
        for (int64_t i = 0; i < heads_ * rates; ++i) a_.push_back(-std::fabs(random.Normal()));
    }
    void Run(const Ops& ops, std::span<const StateSequence> parts_of, std::vector<float>& slots,
             int parts, std::vector<float>& y) const override {
        DeltaGatesArgs gates;
        gates.decay = decay_.data(), gates.beta = rule_.ssd ? nullptr : beta_.data();
        gates.floor = rule_.floor;
        gates.a = a_.data(), gates.dt = dt_.data();
        gates.rows = RowsOf(sequences), gates.heads = heads_;
        gates.each = rule_.by_channel ? dim_ : 1;
        gates.rates = rule_.ssd && rule_.by_channel;
        const int64_t cells = RowsOf(sequences) * heads_;
        std::vector<float> fade(static_cast<size_t>(cells * gates.each));
        std::vector<float> strength(static_cast<size_t>(cells));
        gates.fade = fade.data(), gates.strength = strength.data();
        RunParts(DeltaGates, gates, parts);
        DeltaRuleArgs args;
        args.sequences = parts_of;
        args.q = q_.data(), args.k = k_.data(), args.v = v_.data();
        args.fade = fade.data(), args.strength = strength.data();
        args.skip = rule_.ssd ? skip_.data() : nullptr;
        args.heads = heads_, args.key_heads = rule_.key_heads;
        args.key_dim = dim_, args.value_dim = cols_, args.each = gates.each;
        args.first_head = rule_.first_head, args.first_key_head = rule_.first_key_head;
        args.group = rule_.group, args.cycle = rule_.cycle;
        args.query_scale = rule_.query_scale, args.key_scale = rule_.key_scale;
        args.state = {slots.data(), slot_floats()};
        args.scratch_floats = DeltaScratch(dim_);
        std::vector<float> scratch(static_cast<size_t>(parts * args.scratch_floats));
        args.scratch = scratch.data();
        args.y = y.data();
        RunParts(ops.delta_rule, args, parts);
    }
    std::vector<double> Expected() const override {
        std::vector<double> q = AsDoubles(q_), k = AsDoubles(k_), v = AsDoubles(v_);
        std::vector<double> decay = AsDoubles(decay_), beta = AsDoubles(beta_), a = AsDoubles(a_);
        std::vector<double> dt = AsDoubles(dt_), skip = AsDoubles(skip_), y(v.size()), none;
        const int64_t rows = RowsOf(sequences);
        const auto dts = static_cast<int64_t>(dt.size());
        const std::vector<Sequence> plain = PlainSequences(sequences);
        OpCall<double> call{{{q, rows}, {k, rows}, {v, rows}, {decay, rows}}, {{y, rows}}, plain};
        if (!rule_.ssd) call.in.push_back({beta, rows});
        call.in.push_back({a, heads_});
        call.in.push_back({dt, dts});
        if (rule_.ssd) call.in.push_back({skip, heads_});
        call.in.push_back({none, 0});
        support::naive::Do(rule_, call);
        return y;
    }
    // For each row, the state, whose columns barely exceed v (below 6; keys are short), is rounded
    // a few times, and so are sums of dim products; at most 20 rows add up. SSD multiplies v by
    // steps of up to 18, and skip is below 6.
    double Bound() const override {
        return kUlp * 6 * (rule_.ssd ? 18 : 1) * 20 * static_cast<double>(dim_ + 16);
    }
    int64_t slot_floats() const override { return heads_ * dim_ * cols_; }
    int64_t width() const override { return heads_ * cols_; }

  private:
    program::DeltaRule rule_;
    int64_t heads_ = 1, dim_ = 1, cols_ = 1;
    std::vector<float> q_, k_, v_, decay_, beta_, a_, dt_, skip_;
};

class SsdCase final : public DeltaCase {
  public:
    explicit SsdCase(Random& random) : DeltaCase(random, true) {}
};

class PoolCase final : public RecurrentCase {
  public:
    explicit PoolCase(Random& random)
        : overlaps_(random.Int(0, 1) == 1),
          window_(random.Int(1, 6)),
          cols_(random.Int(1, 40) * (overlaps_ ? 2 : 1)) {
        sequences = RandomSequences(random);
        const int64_t rows = RowsOf(sequences);
        values_ = random.Normals(rows * cols_);
        gates_ = random.Normals(rows * cols_, 3);
        bias_ = random.Normals(window_ * cols_);
        for (const StateSequence& s : sequences) {
            for (int32_t row = 0; row < s.row_count; ++row) positions_.push_back(row);
        }
    }
    void Run(const Ops&, std::span<const StateSequence> parts_of, std::vector<float>& slots,
             int parts, std::vector<float>& y) const override {
        PoolWindowsArgs args;
        args.sequences = parts_of;
        args.values = values_.data(), args.gates = gates_.data(), args.bias = bias_.data();
        args.positions = positions_.data();
        args.width = width(), args.window = window_, args.overlaps = overlaps_;
        args.state = {slots.data(), slot_floats()};
        args.y = y.data();
        RunParts(PoolWindows, args, parts);
    }
    std::vector<double> Expected() const override {
        std::vector<double> values = AsDoubles(values_), gates = AsDoubles(gates_);
        std::vector<double> bias = AsDoubles(bias_), none;
        std::vector<double> positions(positions_.begin(), positions_.end());
        const int64_t rows = RowsOf(sequences);
        std::vector<double> y(static_cast<size_t>(rows * width()));
        const std::vector<Sequence> plain = PlainSequences(sequences);
        OpCall<double> call{
            {{values, rows}, {gates, rows}, {positions, rows}, {bias, window_}, {none, 0}},
            {{y, rows}},
            plain};
        support::naive::Do(program::PoolWindows{overlaps_}, call);
        return y;
    }
    // A mean of numbers below 6; gates, below 25, are rounded, and so are their powers and sums.
    double Bound() const override { return kUlp * 6 * static_cast<double>(2 * 12 + 2 * 60); }
    int64_t slot_floats() const override { return 3 * cols_; }
    int64_t width() const override { return overlaps_ ? cols_ / 2 : cols_; }

  private:
    bool overlaps_;
    int64_t window_, cols_;
    std::vector<float> values_, gates_, bias_;
    std::vector<int32_t> positions_;
};

template <typename Case>
class Recurrent : public testing::Test {};
using RecurrentOps = testing::Types<ConvCase, DeltaCase, SsdCase, PoolCase>;
TYPED_TEST_SUITE(Recurrent, RecurrentOps);

TYPED_TEST(Recurrent, EqualsTheFormula) {
    for (const Ops& ops : OpLevels()) {
        Random random(1);
        for (int number = 0; number < 60; ++number) {
            const TypeParam problem(random);
            std::vector<float> slots = problem.NewSlots(), y = problem.NewY();
            problem.Run(ops, problem.sequences, slots, static_cast<int>(random.Int(1, 5)), y);
            const std::vector<double> expected = problem.Expected();
            for (size_t i = 0; i < y.size(); ++i) {
                ASSERT_LE(std::fabs(y[i] - expected[i]), problem.Bound())
                    << ops.name << " case " << number << " element " << i;
            }
        }
    }
}

// The same rows, with each sequence in pieces that continue from slot to slot, pieces of several
// sequences in a step, and any number of parts: the same bits in rows and in the final states.
TYPED_TEST(Recurrent, NoCutChangesBits) {
    for (const Ops& ops : OpLevels()) {
        Random random(2);
        for (int number = 0; number < 40; ++number) {
            const TypeParam problem(random);
            std::vector<float> slots = problem.NewSlots(), y = problem.NewY();
            problem.Run(ops, problem.sequences, slots, 1, y);
            std::vector<float> cut_slots = problem.NewSlots(), cut_y = problem.NewY();
            std::vector<StateSequence> left = problem.sequences;
            const int32_t most = static_cast<int32_t>(random.Int(1, 6));
            while (!left.empty()) {
                std::vector<StateSequence> step;
                for (StateSequence& s : left) {
                    StateSequence piece = s;
                    piece.row_count =
                        std::min(s.row_count, static_cast<int32_t>(random.Int(1, most)));
                    step.push_back(piece);
                    s.row_begin += piece.row_count;
                    s.row_count -= piece.row_count;
                    s.from = s.to;
                }
                std::erase_if(left, [](const StateSequence& s) { return s.row_count == 0; });
                const int parts = static_cast<int>(random.Int(1, 4));
                problem.Run(ops, step, cut_slots, parts, cut_y);
            }
            ASSERT_TRUE(SameFloats(cut_y, y)) << ops.name << " case " << number;
            ASSERT_TRUE(SameFloats(cut_slots, slots)) << ops.name << " case " << number;
        }
    }
}

// The state stored after a row equals that of a step that ends there; other slots do not change.
TYPED_TEST(Recurrent, StoresTheStateAfterRows) {
    for (const Ops& ops : OpLevels()) {
        Random random(3);
        for (int number = 0; number < 40; ++number) {
            TypeParam problem(random);
            problem.sequences.resize(1);
            StateSequence whole = problem.sequences[0];
            std::vector<StateWrite> writes;
            for (int32_t row = 0; row < whole.row_count && writes.size() < 6; ++row) {
                const int64_t here = random.Int(0, 4);
                for (int64_t n = 3; n <= here; ++n) {
                    writes.push_back({row, 2 + static_cast<int32_t>(writes.size())});
                }
            }
            std::vector<float> slots = problem.NewSlots(), y = problem.NewY();
            whole.writes = writes;
            problem.Run(ops, std::span(&whole, 1), slots, static_cast<int>(random.Int(1, 4)), y);
            for (const StateWrite& write : writes) {
                StateSequence part = problem.sequences[0];
                part.row_count = write.row + 1;
                std::vector<float> own = problem.NewSlots(), own_y = problem.NewY();
                problem.Run(ops, std::span(&part, 1), own, 1, own_y);
                ASSERT_TRUE(SameFloats(problem.Slot(slots, write.slot), problem.Slot(own, 0)))
                    << ops.name << " case " << number << " row " << write.row;
            }
            const auto used = static_cast<int32_t>(2 + writes.size());
            ASSERT_TRUE(SameFloats(problem.Slot(slots, used), problem.Slot(problem.NewSlots(), 0)));
            std::vector<float> plain = problem.NewSlots(), plain_y = problem.NewY();
            problem.Run(ops, problem.sequences, plain, 1, plain_y);
            ASSERT_TRUE(SameFloats(y, plain_y));
            ASSERT_TRUE(SameFloats(problem.Slot(slots, 0), problem.Slot(plain, 0)));
        }
    }
}

}  // namespace
}  // namespace weft::kernels::test
