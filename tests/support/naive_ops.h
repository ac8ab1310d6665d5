// The ops of program.h as naive loops over a real type: the oracle of the tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "base/check.h"
#include "kernels/kernels.h"
#include "program/program.h"

namespace weft::support {

// A value of the step: rows of equal length. A rank-1 value has rows of one column.
template <typename Real>
struct Matrix {
    std::vector<Real>& data;
    int64_t rows = 0;
    int64_t cols() const { return rows == 0 ? 0 : static_cast<int64_t>(data.size()) / rows; }
    Real& operator()(int64_t row, int64_t col) const {
        return data[static_cast<size_t>(row * cols() + col)];
    }
    int64_t Int(int64_t i) const { return static_cast<int64_t>(data[static_cast<size_t>(i)]); }
};

// Operands of one op. Outputs are zero at first, except those that the op adds to.
template <typename Real>
struct OpCall {
    std::vector<Matrix<Real>> in, out;
    std::span<const kernels::Sequence> sequences;
};

namespace naive {

template <typename Real>
void Do(const program::Embedding& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        const int64_t row = c.in[0].Int(i) - a.first_row;
        if (row < 0 || row >= c.in[1].rows) continue;
        for (int64_t j = 0; j < c.out[0].cols(); ++j) c.out[0](i, j) = c.in[1](row, j);
    }
}

template <typename Real>
Real InverseRms(const Matrix<Real>& x, int64_t row, int64_t begin, int64_t group, double eps,
                Real center = 0) {
    Real squares = 0;
    for (int64_t j = begin; j < begin + group; ++j) {
        squares += (x(row, j) - center) * (x(row, j) - center);
    }
    return 1 / std::sqrt(squares / static_cast<Real>(group) + static_cast<Real>(eps));
}

template <typename Real>
void Do(const program::RmsNorm& a, OpCall<Real>& c) {
    const Matrix<Real>& x = c.in[0];
    for (int64_t i = 0; i < x.rows; ++i) {
        for (int64_t j = 0; j < x.cols(); ++j) {
            Real s = 0, center = 0;
            const int64_t begin = j / a.group * a.group;
            for (int64_t k = begin; a.centered && k < begin + a.group; ++k) {
                center += x(i, k) / static_cast<Real>(a.group);
            }
            if (a.whole == 0) {
                s = InverseRms(x, i, begin, a.group, a.eps, center);
            } else {
                const Real mean = c.in[2](i, a.square) / static_cast<Real>(a.whole);
                s = 1 / std::sqrt(mean + static_cast<Real>(a.eps));
            }
            const Real weight = a.plain ? Real{1} : c.in[1](a.apart ? j : j % a.group, 0);
            c.out[0](i, j) = (x(i, j) - center) * s * weight;
        }
    }
}

template <typename Real>
void Do(const program::SumSquares& a, OpCall<Real>& c) {
    for (size_t n = 0; n < a.columns.size(); ++n) {
        const auto [begin, count] = a.columns[n];
        for (int64_t i = 0; i < c.in[n].rows; ++i) {
            for (int64_t j = begin; j < begin + count; ++j) {
                c.out[0](i, static_cast<int64_t>(n)) += c.in[n](i, j) * c.in[n](i, j);
            }
        }
    }
}

template <typename Real>
void Do(const program::MatMul&, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[0], &weight = c.in[1];
    for (int64_t i = 0; i < x.rows; ++i) {
        for (int64_t j = 0; j < weight.rows; ++j) {
            Real sum = c.in.size() == 3 ? c.in[2](j, 0) : Real{0};
            for (int64_t l = 0; l < x.cols(); ++l) sum += x(i, l) * weight(j, l);
            c.out[0](i, j) = sum;
        }
    }
}

template <typename Real>
void Do(const program::Rope& a, OpCall<Real>& c) {
    const Matrix<Real>& x = c.in[0];
    c.out[0].data = x.data;
    for (int64_t i = 0; i < x.rows; ++i) {
        for (int64_t head = 0; head < x.cols() / a.head_dim; ++head) {
            for (int64_t p = 0; p < a.rotary_dim / 2; ++p) {
                const int64_t base = head * a.head_dim + (a.last ? a.head_dim - a.rotary_dim : 0);
                const int64_t one = base + (a.neighbours ? 2 * p : p);
                const int64_t two = base + (a.neighbours ? 2 * p + 1 : p + a.rotary_dim / 2);
                const int64_t position = std::max<int64_t>(c.in[1].Int(i) - a.behind, 0);
                const Real angle = static_cast<Real>(position) *
                                   static_cast<Real>(a.inverse_frequency[static_cast<size_t>(p)]);
                const Real cosine = std::cos(angle) * Real{a.magnitude};
                const Real sine = std::sin(angle) * Real{a.sign} * Real{a.magnitude};
                const Real first = x(i, one), second = x(i, two);
                c.out[0](i, one) = first * cosine - second * sine;
                c.out[0](i, two) = first * sine + second * cosine;
            }
        }
    }
}

// Softmax of one query row of one head over rows [begin, row] of k: zeros outside the window.
// slopes: receives each score's derivative by scale * q . k.
template <typename Real>
std::vector<Real> Probabilities(const program::Attention& a, const Matrix<Real>& q,
                                const Matrix<Real>& k, int64_t begin, int64_t row, int64_t head,
                                const Real* sink = nullptr, std::vector<Real>* slopes = nullptr) {
    const int64_t kv = (a.first_head + head) / a.group - a.first_kv_head;
    std::vector<Real> p;
    for (int64_t at = begin; at <= row; ++at) {
        Real score = 0;
        for (int64_t d = 0; d < a.head_dim; ++d) {
            score += q(row, head * a.head_dim + d) * k(at, kv * a.head_dim + d);
        }
        score *= Real{a.scale};
        if (!a.slopes.empty()) {
            score += Real{a.slopes[static_cast<size_t>(head)]} * static_cast<Real>(at - row);
        }
        const Real tanh = a.soft_cap == 0 ? Real{0} : std::tanh(score / Real{a.soft_cap});
        if (a.soft_cap != 0) score = Real{a.soft_cap} * tanh;
        if (slopes != nullptr) slopes->push_back(1 - tanh * tanh);
        p.push_back(score);
    }
    Real largest = *std::max_element(p.begin(), p.end());
    if (sink != nullptr) largest = std::max(largest, *sink);
    Real sum = sink == nullptr ? Real{0} : std::exp(*sink - largest);
    for (size_t n = 0; n < p.size(); ++n) {
        const int64_t keys_after = row - begin - static_cast<int64_t>(n);
        const int64_t key = static_cast<int64_t>(n);  // rows of a sequence begin at position 0
        const bool chunk = a.chunk == 0 || key / a.chunk == (row - begin) / a.chunk;
        const bool seen = chunk && (a.window == 0 || keys_after < a.window);
        sum += p[n] = seen ? std::exp(p[n] - largest) : Real{0};
    }
    for (Real& value : p) value /= sum;
    return p;
}

template <typename Real>
void Do(const program::Attention& a, OpCall<Real>& c) {
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            for (int64_t head = 0; head < a.heads; ++head) {
                const int64_t kv = (a.first_head + head) / a.group - a.first_kv_head;
                const Real* sink = a.sinks ? &c.in[3](head, 0) : nullptr;
                const auto p = Probabilities(a, c.in[0], c.in[1], s.row_begin, row, head, sink);
                for (int64_t at = s.row_begin; at <= row; ++at) {
                    for (int64_t d = 0; d < a.ValueDim(); ++d) {
                        c.out[0](row, head * a.ValueDim() + d) +=
                            p[static_cast<size_t>(at - s.row_begin)] *
                            c.in[2](at, kv * a.ValueDim() + d);
                    }
                }
            }
        }
    }
}

template <typename Real>
void Do(const program::AttentionGrad& grad, OpCall<Real>& c) {
    const program::Attention& a = grad.forward;
    const Matrix<Real>&dout = c.in[0], &q = c.in[1], &k = c.in[2], &v = c.in[3];
    for (const kernels::Sequence& s : c.sequences) {
        for (int64_t row = s.row_begin; row < s.row_begin + s.row_count; ++row) {
            for (int64_t head = 0; head < a.heads; ++head) {
                const int64_t mine = head * a.head_dim;
                const int64_t kv = ((a.first_head + head) / a.group - a.first_kv_head) * a.head_dim;
                std::vector<Real> slopes;
                const auto p = Probabilities<Real>(a, q, k, s.row_begin, row, head, {}, &slopes);
                std::vector<Real> dp(p.size(), Real{0});
                Real mean = 0;
                for (size_t n = 0; n < p.size(); ++n) {
                    const int64_t at = s.row_begin + static_cast<int64_t>(n);
                    for (int64_t d = 0; d < a.head_dim; ++d) {
                        dp[n] += dout(row, mine + d) * v(at, kv + d);
                    }
                    mean += p[n] * dp[n];
                }
                for (size_t n = 0; n < p.size(); ++n) {
                    const int64_t at = s.row_begin + static_cast<int64_t>(n);
                    const Real ds = p[n] * (dp[n] - mean) * Real{a.scale} * slopes[n];
                    for (int64_t d = 0; d < a.head_dim; ++d) {
                        c.out[0](row, mine + d) += ds * k(at, kv + d);
                        c.out[1](at, kv + d) += ds * q(row, mine + d);
                        c.out[2](at, kv + d) += p[n] * dout(row, mine + d);
                    }
                }
            }
        }
    }
}

template <typename Real>
Real Activate(Activation activation, Real gate, Real up) {
    switch (activation) {
        case Activation::kSilu: return gate / (1 + std::exp(-gate)) * up;
        case Activation::kGeluTanh: {
            const Real u = std::sqrt(2 / Real(3.14159265358979323846)) *
                           (gate + Real(0.044715) * gate * gate * gate);
            return gate * (1 + std::tanh(u)) / 2 * up;
        }
        case Activation::kClampedSilu:
            gate = std::min(gate, Real{7});
            up = std::clamp(up, Real{-7}, Real{7});
            return gate / (1 + std::exp(Real(-1.702) * gate)) * (up + 1);
    }
    return 0;
}

template <typename Real>
void Do(const program::Glu& a, OpCall<Real>& c) {
    const Real limit = a.limit;
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        Real gate = c.in[0].data[i];
        const Real up = c.in[1].data[i];
        if (a.limits_gate) gate = std::min(gate, limit);
        c.out[0].data[i] = a.limit == 0 ? Activate(a.activation, gate, up)
                                        : std::min(Activate(a.activation, gate, Real{1}), limit) *
                                              std::clamp(up, -limit, limit);
    }
}

template <typename Real>
void Do(const program::Activate& a, OpCall<Real>& c) {
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        const Real x = c.in[0].data[i], open = std::max(x, Real{0});
        const Xielu& f = a.xielu;
        Real y = open * open;
        if (a.kind == Ungated::kGeluTanh) y = Activate(Activation::kGeluTanh, x, Real{1});
        if (a.kind == Ungated::kXielu) {
            y = f.beta * x +
                (x > 0 ? f.above * x * x : f.below * (std::expm1(std::min<Real>(x, f.eps)) - x));
        }
        if (a.kind == Ungated::kRelu) y = open;
        if (a.kind == Ungated::kGelu) y = x / 2 * std::erfc(-x / std::sqrt(Real{2}));
        if (a.kind == Ungated::kSilu) y = Activate(Activation::kSilu, x, Real{1});
        if (a.kind == Ungated::kClamp) y = std::clamp<Real>(x, -f.above, f.above);
        c.out[0].data[i] = y;
    }
}

template <typename Real>
void Do(const program::GluGrad& a, OpCall<Real>& c) {
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        const Real dout = c.in[0].data[i], gate = c.in[1].data[i], up = c.in[2].data[i];
        // by finite differences; only the activation defines the rule
        if (a.activation != Activation::kSilu) {
            const Real h = std::is_same_v<Real, double> ? Real(1e-5) : Real(1e-2);
            const Real more = Activate(a.activation, gate + h, Real{1});
            const Real less = Activate(a.activation, gate - h, Real{1});
            c.out[0].data[i] = dout * up * (more - less) / (2 * h);
            c.out[1].data[i] = dout * Activate(a.activation, gate, Real{1});
            continue;
        }
        const Real sigmoid = 1 / (1 + std::exp(-gate));
        c.out[0].data[i] = dout * up * (sigmoid + gate * sigmoid * (1 - sigmoid));
        c.out[1].data[i] = dout * gate * sigmoid;
    }
}

template <typename Real>
void Do(const program::Add&, OpCall<Real>& c) {
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        c.out[0].data[i] = c.in[0].data[i] + c.in[1].data[i];
    }
}

template <typename Real>
void Do(const program::AddBias&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        for (int64_t j = 0; j < c.out[0].cols(); ++j) {
            c.out[0](i, j) = c.in[0](i, j) + c.in[1](j, 0);
        }
    }
}

template <typename Real>
void Do(const program::Scale& a, OpCall<Real>& c) {
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        c.out[0].data[i] = Real{a.factor} * c.in[0].data[i];
    }
}

template <typename Real>
void Do(const program::ScaleByPosition& a, OpCall<Real>& c) {
    const Temperature& t = a.temperature;
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        const Real ratio =
            static_cast<Real>(c.in[1].Int(i) + t.offset) / static_cast<Real>(t.length);
        const Real factor = 1 + Real{t.beta} * std::log(std::floor(ratio) + 1);
        for (int64_t j = 0; j < c.out[0].cols(); ++j) c.out[0](i, j) = factor * c.in[0](i, j);
    }
}

template <typename Real>
void Do(const program::SoftCap& a, OpCall<Real>& c) {
    for (size_t i = 0; i < c.out[0].data.size(); ++i) {
        c.out[0].data[i] = Real{a.cap} * std::tanh(c.in[0].data[i] / Real{a.cap});
    }
}

template <typename Real>
void Do(const program::SelectRows&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        for (int64_t j = 0; j < c.out[0].cols(); ++j) c.out[0](i, j) = c.in[0](c.in[1].Int(i), j);
    }
}

template <typename Real>
void Do(const program::SelectRowsGrad&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) c.out[0](c.in[1].Int(i), j) += c.in[0](i, j);
    }
}

template <typename Real>
void Do(const program::Zero&, OpCall<Real>&) {}

template <typename Real>
void Do(const program::SliceColumns& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.out[0].rows; ++i) {
        for (int64_t j = 0; j < c.out[0].cols(); ++j) c.out[0](i, j) = c.in[0](i, a.begin + j);
    }
}

template <typename Real>
void Do(const program::PadColumns& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) c.out[0](i, a.begin + j) = c.in[0](i, j);
    }
}

template <typename Real>
void Do(const program::SoftCapGrad& a, OpCall<Real>& c) {
    for (size_t i = 0; i < c.in[0].data.size(); ++i) {
        const Real t = std::tanh(c.in[1].data[i] / Real{a.cap});
        c.out[0].data[i] = c.in[0].data[i] * (1 - t * t);
    }
}

template <typename Real>
void Do(const program::SoftmaxStats& a, OpCall<Real>& c) {
    const Matrix<Real>& logits = c.in[0];
    for (int64_t i = 0; i < logits.rows; ++i) {
        Real largest = logits(i, 0), sum = 0;
        for (int64_t j = 1; j < logits.cols(); ++j) largest = std::max(largest, logits(i, j));
        for (int64_t j = 0; j < logits.cols(); ++j) sum += std::exp(logits(i, j) - largest);
        const int64_t target = c.in[1].Int(i) - a.first_row;
        const bool own = c.in[1].Int(i) >= 0 && target >= 0 && target < logits.cols();
        c.out[0](i, 0) = largest;
        c.out[0](i, 1) = sum;
        c.out[0](i, 2) = own ? logits(i, target) : Real{0};
        if (!a.sums) continue;
        c.out[0](i, 3) = 0;
        for (int64_t j = 0; j < logits.cols(); ++j) c.out[0](i, 3) += logits(i, j);
    }
}

// The terms of a loss besides -log softmax(logits)[target].
template <typename Real>
Real MoreTerms(const LossTerms& terms, Real log_sum, Real chosen, Real sum) {
    return Real{terms.smoothing} * chosen - Real{terms.smoothing} / Real(terms.tokens) * sum +
           Real{terms.z_loss} * log_sum * log_sum;
}
// The gradient of a logit with softmax p, for a loss with the gradient 1.
template <typename Real>
Real LogitSlope(const LossTerms& terms, Real log_sum, Real p, bool target) {
    const Real smoothing{terms.smoothing};
    return p * (1 + 2 * Real{terms.z_loss} * log_sum) - (target ? 1 - smoothing : Real{0}) -
           smoothing / Real(terms.tokens);
}

// log(sum(exp(logits))) from the stats of some ranks.
template <typename Real>
Real LogSum(const Matrix<Real>& stats, int64_t i, const LossTerms& terms) {
    Real sum = 0;
    for (int64_t j = 0; j < stats.cols(); j += terms.stats())
        sum += stats(i, j + 1) * std::exp(stats(i, j));
    return std::log(sum);
}

template <typename Real>
void Do(const program::CrossEntropy& a, OpCall<Real>& c) {
    const Matrix<Real>& stats = c.in[0];
    const int64_t each = a.terms.stats();
    for (int64_t i = 0; i < stats.rows; ++i) {
        if (c.in[1].Int(i) < 0) continue;
        Real chosen = 0, sum = 0, largest = stats(i, 0);
        for (int64_t j = 0; j < stats.cols(); j += each) {
            largest = std::max(largest, stats(i, j));
            chosen += stats(i, j + 2);
            if (each > 3) sum += stats(i, j + 3);
        }
        const Real log_sum = LogSum(stats, i, a.terms);
        c.out[0].data[static_cast<size_t>(i)] =
            log_sum - chosen + MoreTerms(a.terms, log_sum, chosen, sum);
        c.out[1].data[static_cast<size_t>(i)] = chosen >= largest ? Real{1} : Real{0};
    }
}

template <typename Real>
void Do(const program::CrossEntropyGrad& a, OpCall<Real>& c) {
    Matrix<Real>& logits = c.out[0];
    for (int64_t i = 0; i < logits.rows; ++i) {
        for (int64_t j = 0; j < logits.cols(); ++j) {
            const Real log_sum = LogSum(c.in[1], i, a.terms), p = std::exp(logits(i, j) - log_sum);
            const bool target = a.first_row + j == c.in[2].Int(i);
            const Real slope = LogitSlope(a.terms, log_sum, p, target);
            logits(i, j) = c.in[2].Int(i) < 0 ? Real{0} : c.in[0](i, 0) * slope;
        }
    }
}

// Logits of row i over the whole vocabulary on one rank, and their slopes in the product.
template <typename Real>
struct RowLogits {
    std::vector<Real> logits, slopes;
};
template <typename Real>
RowLogits<Real> LogitsOf(const program::LinearCrossEntropy& a, const Matrix<Real>& x,
                         const Matrix<Real>& weight, int64_t i,
                         const Matrix<Real>* bias = nullptr) {
    WEFT_CHECK(a.cut == program::Cut::kNone);
    RowLogits<Real> row;
    for (int64_t j = 0; j < weight.rows; ++j) {
        Real logit = bias == nullptr ? Real{0} : (*bias)(j, 0), slope = Real{a.scale};
        for (int64_t l = 0; l < x.cols(); ++l) logit += x(i, l) * weight(j, l);
        logit *= Real{a.scale};
        if (a.soft_cap != 0) {
            const Real t = std::tanh(logit / Real{a.soft_cap});
            logit = Real{a.soft_cap} * t;
            slope *= 1 - t * t;
        }
        row.logits.push_back(logit);
        row.slopes.push_back(slope);
    }
    return row;
}

template <typename Real>
Real SumOfExp(const std::vector<Real>& logits) {
    Real sum = 0;
    for (const Real logit : logits) sum += std::exp(logit);
    return sum;
}

template <typename Real>
void Do(const program::LinearCrossEntropy& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        if (c.in[2].Int(i) < 0) continue;
        const std::vector<Real> logits =
            LogitsOf(a, c.in[0], c.in[1], i, a.biased ? &c.in[3] : nullptr).logits;
        c.out[0](i, 0) = std::log(SumOfExp(logits)) - logits[static_cast<size_t>(c.in[2].Int(i))];
    }
}

template <typename Real>
void Do(const program::LinearCrossEntropyGrad& a, OpCall<Real>& c) {
    const Matrix<Real>&x = c.in[1], &weight = c.in[2];
    for (int64_t i = 0; i < x.rows; ++i) {
        if (c.in[3].Int(i) < 0) continue;
        const RowLogits<Real> row =
            LogitsOf(a.forward, x, weight, i, a.forward.biased ? &c.in[4] : nullptr);
        const Real log_sum = std::log(SumOfExp(row.logits));
        LossTerms terms = a.forward.terms;
        terms.tokens = weight.rows;
        for (int64_t j = 0; j < weight.rows; ++j) {
            const auto at = static_cast<size_t>(j);
            const Real p = std::exp(row.logits[at] - log_sum);
            const Real slope =
                c.in[0](i, 0) * row.slopes[at] * LogitSlope(terms, log_sum, p, j == c.in[3].Int(i));
            for (int64_t l = 0; l < x.cols(); ++l) {
                c.out[0](i, l) += slope * weight(j, l);
                if (a.trains_weight) c.out[1](j, l) += slope * x(i, l);
            }
            if (a.trains_bias) c.out.back()(j, 0) += slope;
        }
    }
}

// For one rank that has all parts.
template <typename Real>
void Do(const program::ZeroAllGather& a, OpCall<Real>& c) {
    WEFT_CHECK(a.parts.size() == 1);
    c.out[0].data = c.in[0].data;
}

template <typename Real>
void Do(const program::ZeroReduceScatter& a, OpCall<Real>& c) {
    WEFT_CHECK(a.parts.size() == 1);
    for (size_t i = 0; i < c.out[0].data.size(); ++i) c.out[0].data[i] += c.in[0].data[i];
}

template <typename Real>
void Do(const program::MatMulGradInput&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) {
            for (int64_t l = 0; l < c.in[1].cols(); ++l) {
                c.out[0](i, l) += c.in[0](i, j) * c.in[1](j, l);
            }
        }
    }
}

template <typename Real>
void Do(const program::MatMulGradWeight&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) {
            for (int64_t l = 0; l < c.in[1].cols(); ++l) {
                c.out[0](j, l) += c.in[0](i, j) * c.in[1](i, l);
            }
        }
    }
}

template <typename Real>
void Do(const program::BiasGrad&, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        for (int64_t j = 0; j < c.in[0].cols(); ++j) c.out[0](j, 0) += c.in[0](i, j);
    }
}

template <typename Real>
void Do(const program::RmsNormGradInput& a, OpCall<Real>& c) {
    const Matrix<Real>&dy = c.in[0], &x = c.in[1], &weight = c.in[2];
    for (int64_t i = 0; i < x.rows; ++i) {
        for (int64_t j = 0; j < x.cols(); ++j) {
            // d y_m / d x_j = w_m (s [m == j] - x_m x_j s^3 / n), summed over m of the group
            const int64_t begin = j / a.group * a.group;
            const Real s = InverseRms(x, i, begin, a.group, a.eps);
            for (int64_t m = begin; m < begin + a.group; ++m) {
                const Real same = m == j ? s : Real{0};
                const Real pull = x(i, m) * x(i, j) * s * s * s / static_cast<Real>(a.group);
                c.out[0](i, j) += dy(i, m) * weight(m - begin, 0) * (same - pull);
            }
        }
    }
}

template <typename Real>
void Do(const program::RmsNormGradWeight& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[1].rows; ++i) {
        for (int64_t j = 0; j < c.in[1].cols(); ++j) {
            const Real s = InverseRms(c.in[1], i, j / a.group * a.group, a.group, a.eps);
            c.out[0](j % a.group, 0) += c.in[0](i, j) * c.in[1](i, j) * s;
        }
    }
}

template <typename Real>
void Do(const program::EmbeddingGrad& a, OpCall<Real>& c) {
    for (int64_t i = 0; i < c.in[0].rows; ++i) {
        const int64_t row = c.in[1].Int(i) - a.first_row;
        if (row < 0 || row >= c.out[0].rows) continue;
        for (int64_t j = 0; j < c.in[0].cols(); ++j) c.out[0](row, j) += c.in[0](i, j);
    }
}

// The interpreter itself runs these ops, because they need the other ranks.
template <typename Real>
void Do(const program::AllReduce&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::AllGather&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::GatherRows&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::ReduceScatterRows&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::SliceRows&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::AllToAll&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::Send&, OpCall<Real>&) {
    std::abort();
}
template <typename Real>
void Do(const program::Recv&, OpCall<Real>&) {
    std::abort();
}

}  // namespace naive
}  // namespace weft::support
