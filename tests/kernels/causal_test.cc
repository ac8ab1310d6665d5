// Causal attention of training, forward and backward, of every level against sums in double over
// packed sequences, strides, groups of heads, and parts.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/dense/dense.h"
#include "support/dense_elements.h"

namespace weft::kernels::dense {
namespace {

constexpr float kUntouched = -777.0f;
const double kUnit = std::ldexp(1.0, -24);

// A matrix with a stride. Of narrow types, `data` holds the same numbers as floats.
struct Floats {
    int64_t stride = 0;
    std::vector<float> data;
    Element type = Element::kF32;
    std::vector<uint16_t> halves;

    // Numbers that the type can hold, in both places.
    void Store() {
        halves.clear();
        for (float& x : data) {
            halves.push_back(Narrowed(type, x));
            x = Stored(type, x);
        }
    }
    void Fetch() {
        for (size_t i = 0; i < data.size() && type != Element::kF32; ++i) {
            data[i] = Widened(type, halves[i]);
        }
    }
    Matrix View() {
        if (type == Element::kF32) return {data.data(), stride, type};
        return {halves.data(), stride, type};
    }
    float At(int64_t row, int64_t col) const {
        return data[static_cast<size_t>(row * stride + col)];
    }
};

// Expected numbers, and how far off a result may be.
struct Expected {
    int64_t cols;
    std::vector<double> value, error;
    Expected(int64_t rows, int64_t col_count)
        : cols(col_count), value(static_cast<size_t>(rows * cols)), error(value) {}
    void Add(int64_t row, int64_t col, double x, double e) {
        value[static_cast<size_t>(row * cols + col)] += x;
        error[static_cast<size_t>(row * cols + col)] += e;
    }
};

struct Case {
    int64_t heads, kv_heads, dims, first_head, group;
    std::vector<int32_t> counts;  // rows of each sequence; one row between two belongs to none
    Compute compute;
    Element type = Element::kF32;
};

class Problem {
  public:
    Problem(uint32_t seed, const Case& c) : engine_(seed), case_(c) {
        int32_t row = 1;
        for (int32_t count : c.counts) {
            sequences_.push_back({row, count, 0, {}});
            row += count + 1;
        }
        rows_ = row;
        q_ = Make(c.heads), k_ = Make(c.kv_heads), v_ = Make(c.kv_heads), dout_ = Make(c.heads);
        forward_.sequences = sequences_;
        forward_.q = q_.View(), forward_.k = k_.View(), forward_.v = v_.View();
        forward_.heads = c.heads, forward_.kv_heads = c.kv_heads, forward_.head_dim = c.dims;
        forward_.first_head = c.first_head, forward_.group = c.group;
        forward_.first_kv_head = c.first_head / c.group;
        forward_.scale = 1 / std::sqrt(static_cast<float>(c.dims));
        forward_.compute = c.compute;
    }

    struct Results {
        Floats out, dq, dk, dv;
        std::vector<float> lse;
        bool operator==(const Results& other) const {
            return out.data == other.out.data && dq.data == other.dq.data &&
                   dk.data == other.dk.data && dv.data == other.dv.data && lse == other.lse;
        }
    };

    Results Run(const DenseKernels& kernels, int parts) const {
        Results r{Empty(case_.heads),
                  Empty(case_.heads),
                  Empty(case_.kv_heads),
                  Empty(case_.kv_heads),
                  {}};
        r.lse.assign(static_cast<size_t>(case_.heads * rows_), kUntouched);
        CausalArgs forward = forward_;
        forward.out = r.out.View();
        forward.lse = r.lse.data(), forward.lse_stride = rows_;
        for (int part = parts - 1; part >= 0; --part) {
            std::vector<std::byte> scratch(
                static_cast<size_t>(kernels.causal_scratch_bytes(forward)), std::byte{0xff});
            kernels.causal(forward, scratch, part, parts);
        }
        Floats dout = dout_;
        const CausalGradArgs backward{forward, dout.View(), r.dq.View(), r.dk.View(), r.dv.View()};
        for (int part = parts - 1; part >= 0; --part) {
            std::vector<std::byte> scratch(
                static_cast<size_t>(kernels.causal_grad_scratch_bytes(backward)), std::byte{0xff});
            kernels.causal_grad(backward, scratch, part, parts);
        }
        for (Floats* floats : {&r.out, &r.dq, &r.dk, &r.dv}) floats->Fetch();
        return r;
    }

    void Expect(const Results& r) const {
        Expected out(rows_, case_.heads * case_.dims), dq = out;
        Expected dk(rows_, case_.kv_heads * case_.dims), dv = dk, lse(case_.heads, rows_);
        for (const Sequence& sequence : sequences_) {
            for (int64_t head = 0; head < case_.heads; ++head) {
                for (int64_t i = 0; i < sequence.row_count; ++i) {
                    Row(sequence, head, i, out, dq, dk, dv, lse);
                }
            }
        }
        Compare(r.out, out, "out");
        Compare(r.dq, dq, "dq");
        Compare(r.dk, dk, "dk");
        Compare(r.dv, dv, "dv");
        Floats log_sums;
        log_sums.stride = rows_;
        log_sums.data = r.lse;
        Compare(log_sums, lse, "lse");
    }

  private:
    Floats Make(int64_t heads) {
        Floats made = Empty(heads);
        std::normal_distribution<float> normal;
        for (float& x : made.data) x = normal(engine_);
        made.Store();
        return made;
    }
    Floats Empty(int64_t heads) const {
        const int64_t stride = heads * case_.dims + 3;
        Floats made{stride, std::vector<float>(static_cast<size_t>(rows_ * stride), kUntouched),
                    case_.type, {}};
        made.Store();
        return made;
    }

    struct Dot {
        double sum = 0, sizes = 0;
    };
    Dot DotOf(const Floats& a, int64_t a_row, int64_t a_head, const Floats& b, int64_t b_row,
              int64_t b_head) const {
        Dot dot;
        for (int64_t d = 0; d < case_.dims; ++d) {
            const double product = static_cast<double>(a.At(a_row, a_head * case_.dims + d)) *
                                   b.At(b_row, b_head * case_.dims + d);
            dot.sum += product;
            dot.sizes += std::abs(product);
        }
        return dot;
    }

    // A result that is stored errs by what the type rounds of its own size and of what it errs by.
    double OfType(double value, double error) const {
        return error + Rounding(case_.type, std::abs(value) + error);
    }

    // Two roundings to bfloat16 make a product err by 2^-8 of it; a float sum of n errs by n units
    // of the sum of sizes. The exponential and its argument add 2^-19. From these: what a score
    // errs by, by which part a probability does (its own sum errs as much), and so on.
    void Row(const Sequence& sequence, int64_t head, int64_t i, Expected& out, Expected& dq,
             Expected& dk, Expected& dv, Expected& lse) const {
        const double operands = case_.compute == Compute::kBf16 ? std::ldexp(1.01, -8) : 0;
        const double in_dims = operands + static_cast<double>(case_.dims + 8) * kUnit;
        const double in_rows = operands + static_cast<double>(sequence.row_count + 300) * kUnit;
        // The sums of p * dp are made with what the forward stored.
        const double stored = Rounding(case_.type, 1.01);
        const int64_t row = sequence.row_begin + i, dims = case_.dims;
        const int64_t kv = (case_.first_head + head) / case_.group - forward_.first_kv_head;
        const double scale = forward_.scale;
        std::vector<double> p, dp, dp_error;
        double largest = -INFINITY, total = 0, score_error = 0;
        for (int64_t at = 0; at <= i; ++at) {
            const Dot score = DotOf(q_, row, head, k_, sequence.row_begin + at, kv);
            const Dot product = DotOf(dout_, row, head, v_, sequence.row_begin + at, kv);
            p.push_back(score.sum * scale);
            dp.push_back(product.sum);
            dp_error.push_back(product.sizes * in_dims);
            largest = std::max(largest, p.back());
            score_error = std::max(score_error, score.sizes * scale * in_dims);
        }
        for (double& x : p) total += x = std::exp(x - largest);
        const double p_error = std::expm1(2 * score_error) + std::ldexp(1.0, -19);
        lse.Add(head, row, largest + std::log(total),
                score_error + std::ldexp(1.0, -19) * (1 + std::abs(largest)));
        double weighted = 0, weighted_error = 0;
        for (size_t at = 0; at < p.size(); ++at) {
            p[at] /= total;
            weighted += p[at] * dp[at];
            const int64_t key = sequence.row_begin + static_cast<int64_t>(at);
            for (int64_t d = 0; d < dims; ++d) {
                const double v = v_.At(key, kv * dims + d);
                const double dout = dout_.At(row, head * dims + d);
                out.Add(row, head * dims + d, p[at] * v, p[at] * std::abs(v) * (p_error + in_rows));
                dv.Add(key, kv * dims + d, p[at] * dout,
                       p[at] * std::abs(dout) * (p_error + in_rows * 3));
                weighted_error += p[at] * std::abs(v * dout) *
                                  (p_error + in_rows + static_cast<double>(dims) * kUnit + stored);
            }
        }
        for (size_t at = 0; at < p.size(); ++at) {
            const double ds = p[at] * (dp[at] - weighted) * scale;
            const double ds_error =
                (1 + p_error) * p[at] * scale * (dp_error[at] + weighted_error) +
                std::abs(ds) * (p_error + in_rows * 3);
            const int64_t key = sequence.row_begin + static_cast<int64_t>(at);
            for (int64_t d = 0; d < dims; ++d) {
                const double k = k_.At(key, kv * dims + d), q = q_.At(row, head * dims + d);
                dq.Add(row, head * dims + d, ds * k, ds_error * std::abs(k));
                dk.Add(key, kv * dims + d, ds * q, ds_error * std::abs(q));
            }
        }
    }

    bool OfSequence(int64_t row) const {
        for (const Sequence& s : sequences_) {
            if (row >= s.row_begin && row < s.row_begin + s.row_count) return true;
        }
        return false;
    }

    void Compare(const Floats& floats, const Expected& expected, const char* what) const {
        const int64_t rows = static_cast<int64_t>(expected.value.size()) / expected.cols;
        const bool turned = rows == case_.heads;  // lse: rows are columns
        const float untouched = Stored(floats.type, kUntouched);
        for (int64_t i = 0; i < rows; ++i) {
            for (int64_t j = 0; j < floats.stride; ++j) {
                if (j >= expected.cols || !OfSequence(turned ? j : i)) {
                    ASSERT_EQ(floats.At(i, j), untouched) << what;
                    continue;
                }
                const auto at = static_cast<size_t>(i * expected.cols + j);
                const double bound = turned ? expected.error[at]
                                            : OfType(expected.value[at], expected.error[at]);
                ASSERT_LE(std::abs(floats.At(i, j) - expected.value[at]), bound)
                    << what << " [" << i << ", " << j << "]";
            }
        }
    }

    std::mt19937 engine_;
    const Case case_;
    std::vector<Sequence> sequences_;
    int64_t rows_ = 0;
    Floats q_, k_, v_, dout_;
    CausalArgs forward_;
};

const std::vector<Case>& Cases() {
    static const std::vector<Case> cases = {
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kF32},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kBf16},
        {3, 3, 72, 0, 1, {5, 128, 64}, Compute::kF32},
        {3, 3, 72, 0, 1, {5, 141, 64}, Compute::kBf16},
        // Heads 4 to 6 of a model with groups of three: a KV head's group is cut.
        {3, 2, 80, 4, 3, {31, 33}, Compute::kF32},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16},
        {1, 1, 256, 0, 1, {65}, Compute::kF32},
        {1, 1, 256, 0, 1, {65}, Compute::kBf16},
        {2, 1, 64, 0, 2, {300, 1, 17}, Compute::kBf16, Element::kBf16},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16, Element::kBf16},
        {3, 3, 72, 0, 1, {5, 128, 64}, Compute::kF32, Element::kBf16},
        {3, 3, 72, 0, 1, {5, 141, 64}, Compute::kF32, Element::kF16},
        {3, 2, 80, 4, 3, {31, 33}, Compute::kBf16, Element::kF16},
        // Several blocks of keys and queries for parts to cut.
        {2, 1, 16, 0, 2, {700, 90}, Compute::kBf16, Element::kBf16},
    };
    return cases;
}

template <typename F>
void ForLevels(const F& test) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    for (CpuLevel level : kCpuLevels) {
        if (level > best) continue;
        for (size_t i = 0; i < Cases().size(); ++i) {
            SCOPED_TRACE(testing::Message() << CpuLevelName(level) << ", case " << i);
            test(DenseKernelsFor(level), Problem(static_cast<uint32_t>(i), Cases()[i]));
            if (testing::Test::HasFatalFailure()) return;
        }
    }
}

TEST(Causal, ForwardAndGradients) {
    ForLevels([](const DenseKernels& kernels, const Problem& problem) {
        problem.Expect(problem.Run(kernels, 1));
    });
}

TEST(Causal, BitsDoNotDependOnParts) {
    ForLevels([](const DenseKernels& kernels, const Problem& problem) {
        if (kernels.level == CpuLevel::kReference) return;
        const Problem::Results whole = problem.Run(kernels, 1);
        for (int parts : {2, 3, 5, 40}) EXPECT_TRUE(problem.Run(kernels, parts) == whole) << parts;
    });
}

}  // namespace
}  // namespace weft::kernels::dense
