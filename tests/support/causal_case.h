// A random problem of causal attention in training, forward and backward, with its result as sums
// in double and error bounds: packed sequences, strides, head groups, windows, soft caps.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "kernels/kernels.h"
#include "support/dense_elements.h"

namespace weft::kernels::dense::causal_case {

inline constexpr float kUntouched = -777.0f;
inline const double kUnit = std::ldexp(1.0, -24);

// A matrix with a stride. For narrow types, `data` holds the same numbers as floats.
struct Floats {
    int64_t stride = 0;
    std::vector<float> data;
    Element type = Element::kF32;
    std::vector<uint16_t> halves;

    // Rounds to the type and stores in both places.
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

// Expected numbers and their error bounds.
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
    // rows of each sequence; a row between two sequences belongs to none
    std::vector<int32_t> counts;
    Compute compute;
    Element type = Element::kF32;
    int64_t window = 0;
    float soft_cap = 0;
    float slope = 0;      // of ALiBi in the first head; the next one has half of it, and so on
    int64_t padding = 3;  // elements between rows
};

// Relative errors. A probability has the error `exp`, plus exp_slope per unit of the exponential's
// argument; a hyperbolic tangent has the error `tanh`. Defaults: the CPU's.
struct Arithmetic {
    double exp = std::ldexp(1.0, -19), exp_slope = 0, tanh = 8 * kUnit;
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
        forward_.window = c.window, forward_.soft_cap = c.soft_cap;
        for (int64_t head = 0; head < c.heads; ++head) {
            slopes_.push_back(std::ldexp(c.slope, -static_cast<int>(head)));
        }
        if (c.slope != 0) forward_.slopes = slopes_.data();
    }

    const std::vector<Sequence>& sequences() const { return sequences_; }
    int64_t rows() const { return rows_; }
    const CausalArgs& forward() const { return forward_; }
    const Floats& q() const { return q_; }
    const Floats& k() const { return k_; }
    const Floats& v() const { return v_; }
    const Floats& dout() const { return dout_; }

    // Sets the first `rows` keys and values of the first sequence to NaN.
    void Poison(int64_t rows) {
        for (Floats* floats : {&k_, &v_}) {
            std::fill_n(floats->data.begin() + sequences_[0].row_begin * floats->stride,
                        rows * floats->stride, NAN);
            floats->Store();
        }
    }

    // The last sequence alone, starting at row 1.
    Problem Last() const {
        Case alone = case_;
        alone.counts = {case_.counts.back()};
        Problem part(0, alone);
        const auto from = static_cast<size_t>(sequences_.back().row_begin - 1);
        for (const auto& [to, all] :
             {std::pair{&part.q_, &q_}, {&part.k_, &k_}, {&part.v_, &v_}, {&part.dout_, &dout_}}) {
            const auto width = static_cast<size_t>(all->stride);
            std::copy_n(all->data.begin() + static_cast<int64_t>(from * width), to->data.size(),
                        to->data.begin());
            to->Store();
        }
        return part;
    }

    struct Results {
        Floats out, dq, dk, dv;
        std::vector<float> lse;
        bool operator==(const Results& other) const {
            return out.data == other.out.data && dq.data == other.dq.data &&
                   dk.data == other.dk.data && dv.data == other.dv.data && lse == other.lse;
        }
    };

    Results Empty() const {
        Results r{MatrixOf(case_.heads),
                  MatrixOf(case_.heads),
                  MatrixOf(case_.kv_heads),
                  MatrixOf(case_.kv_heads),
                  {}};
        r.lse.assign(static_cast<size_t>(case_.heads * rows_), kUntouched);
        return r;
    }
    Results Run(const Kernels& kernels, int parts) const {
        Results r = Empty();
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

    void Expect(const Results& r, const Arithmetic& arithmetic = {}) const {
        Expected out(rows_, case_.heads * case_.dims), dq = out;
        Expected dk(rows_, case_.kv_heads * case_.dims), dv = dk, lse(case_.heads, rows_);
        for (const Sequence& sequence : sequences_) {
            for (int64_t head = 0; head < case_.heads; ++head) {
                for (int64_t i = 0; i < sequence.row_count; ++i) {
                    Row(sequence, head, i, arithmetic, out, dq, dk, dv, lse);
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
        Floats made = MatrixOf(heads);
        std::normal_distribution<float> normal;
        for (float& x : made.data) x = normal(engine_);
        made.Store();
        return made;
    }
    Floats MatrixOf(int64_t heads) const {
        const int64_t stride = heads * case_.dims + case_.padding;
        Floats made{stride,
                    std::vector<float>(static_cast<size_t>(rows_ * stride), kUntouched),
                    case_.type,
                    {}};
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

    // Error of a stored result: the type's rounding of its size and error.
    double OfType(double value, double error) const {
        return error + Rounding(case_.type, std::abs(value) + error);
    }

    // A score and its derivative by scale * q . k, with their errors. tanh adds its argument's
    // error and `rounding` of itself.
    struct Capped {
        double score, error, slope, slope_error;
    };
    Capped Cap(double score, double error, double rounding) const {
        const double cap = case_.soft_cap;
        if (cap == 0) return {score, error, 1, 0};
        const double tanh = std::tanh(score / cap), off = error / cap + rounding;
        return {cap * tanh, error + cap * std::abs(tanh) * rounding, 1 - tanh * tanh,
                2 * off + off * off + kUnit};
    }

    // Two roundings to bfloat16 give a product an error of 2^-8 of its size. A float sum of n terms
    // has an error of n units of the sum of sizes.
    double OfOperands() const { return case_.compute == Compute::kBf16 ? std::ldexp(1.01, -8) : 0; }

    // Weights of the keys that a row sees, from `first` on, and the relative error of a
    // probability.
    struct Weights {
        int64_t first = 0;
        std::vector<double> p, dp, dp_error;
        std::vector<Capped> scores;
        double p_error = 0, lse = 0, lse_error = 0;
    };
    // The sum of a row's exponentials has the same relative error as one of them.
    Weights WeightsOf(const Sequence& sequence, int64_t head, int64_t i,
                      const Arithmetic& arithmetic) const {
        const double in_dims = OfOperands() + static_cast<double>(case_.dims + 8) * kUnit;
        const int64_t row = sequence.row_begin + i;
        const int64_t kv = (case_.first_head + head) / case_.group - forward_.first_kv_head;
        Weights w;
        double largest = -INFINITY, least = INFINITY, total = 0, score_error = 0;
        w.first = case_.window == 0 ? 0 : std::max<int64_t>(0, i + 1 - case_.window);
        for (int64_t at = w.first; at <= i; ++at) {
            const Dot score = DotOf(q_, row, head, k_, sequence.row_begin + at, kv);
            const Dot product = DotOf(dout_, row, head, v_, sequence.row_begin + at, kv);
            const double scale = forward_.scale;
            const double bias = double{slopes_[static_cast<size_t>(head)]} *
                                static_cast<double>(at - i);  // (without a soft cap)
            const Capped capped =
                Cap(score.sum * scale + bias,
                    score.sizes * scale * in_dims + 4 * kUnit * std::fabs(bias), arithmetic.tanh);
            w.scores.push_back(capped);
            w.p.push_back(capped.score);
            w.dp.push_back(product.sum);
            w.dp_error.push_back(product.sizes * in_dims);
            largest = std::max(largest, capped.score);
            least = std::min(least, capped.score);
            score_error = std::max(score_error, capped.error);
        }
        for (double& x : w.p) total += x = std::exp(x - largest);
        for (double& x : w.p) x /= total;
        w.lse = largest + std::log(total);
        const double exp_error = arithmetic.exp + arithmetic.exp_slope * (w.lse - least);
        w.p_error = std::expm1(2 * score_error) + exp_error;
        w.lse_error = score_error + exp_error * (1 + std::abs(largest));
        return w;
    }

    void Row(const Sequence& sequence, int64_t head, int64_t i, const Arithmetic& arithmetic,
             Expected& out, Expected& dq, Expected& dk, Expected& dv, Expected& lse) const {
        const double in_rows = OfOperands() + static_cast<double>(sequence.row_count + 300) * kUnit;
        // The sums of p * dp use the values that the forward pass stored.
        const double stored = Rounding(case_.type, 1.01);
        const int64_t row = sequence.row_begin + i, dims = case_.dims;
        const int64_t kv = (case_.first_head + head) / case_.group - forward_.first_kv_head;
        const double scale = forward_.scale;
        const auto [first, p, dp, dp_error, scores, p_error, row_lse, lse_error] =
            WeightsOf(sequence, head, i, arithmetic);
        lse.Add(head, row, row_lse, lse_error);
        double weighted = 0, weighted_error = 0;
        for (size_t at = 0; at < p.size(); ++at) {
            weighted += p[at] * dp[at];
            const int64_t key = sequence.row_begin + first + static_cast<int64_t>(at);
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
            const double steep = p[at] * (dp[at] - weighted) * scale;
            const double steep_error =
                (1 + p_error) * p[at] * scale * (dp_error[at] + weighted_error) +
                std::abs(steep) * (p_error + in_rows * 3);
            const auto [score, error, slope, slope_error] = scores[at];
            const double ds = steep * slope;
            const double ds_error =
                steep_error * (slope + slope_error) + std::abs(steep) * slope_error;
            const int64_t key = sequence.row_begin + first + static_cast<int64_t>(at);
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
                const double bound =
                    turned ? expected.error[at] : OfType(expected.value[at], expected.error[at]);
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
    std::vector<float> slopes_;
    CausalArgs forward_;
};

}  // namespace weft::kernels::dense::causal_case
