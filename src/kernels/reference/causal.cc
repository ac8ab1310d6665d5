// Causal attention for training and its gradient, row by row. Sums of a row, and of dk and dv, are
// kept in scratch as float32.
#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"

namespace weft::kernels::reference {
namespace {

using dense::CausalArgs;
using dense::CausalGradArgs;
using dense::ConstMatrix;
using dense::Matrix;

int64_t LongestOf(const CausalArgs& args) {
    int64_t longest = 0;
    for (const Sequence& s : args.sequences) longest = std::max<int64_t>(longest, s.row_count);
    return longest;
}

int64_t ScratchBytes(const CausalArgs& args) {
    return args.head_dim * 4;
}

int64_t GradScratchBytes(const CausalGradArgs& args) {
    return (1 + 2 * LongestOf(args.forward)) * args.forward.head_dim * 4;
}

float Dot(const ConstMatrix& a, int64_t a_row, const ConstMatrix& b, int64_t b_row, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += Get(a, a_row, i) * Get(b, b_row, i);
    return sum;
}

void AddScaledRow(const ConstMatrix& x, int64_t row, float scale, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += scale * Get(x, row, i);
}

void PutRow(const float* x, int64_t count, const Matrix& y, int64_t row) {
    for (int64_t i = 0; i < count; ++i) Put(y, row, i, x[i]);
}

// One query head over one sequence: its parts of the matrices.
struct Head {
    ConstMatrix q, k, v;
    const CausalArgs& args;
    int64_t number, first_row, q_column, kv_column, dims;

    Head(const CausalArgs& a, const Sequence& sequence, int64_t head)
        : args(a),
          number(head),
          first_row(sequence.row_begin),
          q_column(head * a.head_dim),
          kv_column(a.KvHead(head) * a.head_dim),
          dims(a.head_dim) {
        q = a.q.From(first_row, q_column);
        k = a.k.From(first_row, kv_column);
        v = a.v.From(first_row, kv_column);
    }

    struct Scored {
        float score;
        float slope;  // derivative of the score by scale * q . k
    };
    Scored ScoreOf(int64_t row, int64_t at) const {
        float score = args.scale * Dot(q, row, k, at, dims);
        if (args.slopes != nullptr) score += args.slopes[number] * static_cast<float>(at - row);
        if (args.soft_cap == 0) return {score, 1};
        const float tanh = std::tanh(score / args.soft_cap);
        return {args.soft_cap * tanh, 1 - tanh * tanh};
    }
    float Score(int64_t row, int64_t at) const { return ScoreOf(row, at).score; }

    // Softmax of row's scores over the keys that it sees.
    struct Totals {
        float largest = 0;
        double sum = 0;
        float Probability(float score) const {
            return static_cast<float>(static_cast<double>(std::exp(score - largest)) / sum);
        }
    };
    Totals TotalsOf(int64_t row) const {
        const int64_t first = args.FirstKey(row);
        Totals totals{Score(row, first), 0};
        for (int64_t at = first + 1; at <= row; ++at) {
            totals.largest = std::max(totals.largest, Score(row, at));
        }
        for (int64_t at = first; at <= row; ++at) {
            totals.sum += static_cast<double>(std::exp(Score(row, at) - totals.largest));
        }
        if (args.sinks == nullptr) return totals;
        const float sink = args.sinks[number], before = totals.largest;
        totals.largest = std::max(before, sink);
        totals.sum = totals.sum * static_cast<double>(std::exp(before - totals.largest)) +
                     static_cast<double>(std::exp(sink - totals.largest));
        return totals;
    }
};

void Causal(const CausalArgs& args, std::span<std::byte> scratch, int part, int parts) {
    auto* sums = reinterpret_cast<float*>(scratch.data());
    const Range heads = Share(args.heads, 1, part, parts);
    for (const Sequence& sequence : args.sequences) {
        for (int64_t h = heads.begin; h < heads.end; ++h) {
            const Head head(args, sequence, h);
            const Matrix out = args.out.From(head.first_row, head.q_column);
            for (int64_t row = 0; row < sequence.row_count; ++row) {
                const Head::Totals totals = head.TotalsOf(row);
                std::fill_n(sums, head.dims, 0.0f);
                for (int64_t at = args.FirstKey(row); at <= row; ++at) {
                    const float p = totals.Probability(head.Score(row, at));
                    AddScaledRow(head.v, at, p, head.dims, sums);
                }
                PutRow(sums, head.dims, out, row);
                if (args.lse == nullptr) continue;
                args.lse[h * args.lse_stride + head.first_row + row] =
                    totals.largest + static_cast<float>(std::log(totals.sum));
            }
        }
    }
}

// Adds one query row's contributions to dk and dv [rows, dims], and computes its dq [dims].
void RowGrad(const Head& head, const ConstMatrix& dout, int64_t row, float* dq, float* dk,
             float* dv) {
    const Head::Totals totals = head.TotalsOf(row);
    const int64_t first = head.args.FirstKey(row);
    float weighted = 0;  // sum of p * dp
    for (int64_t at = first; at <= row; ++at) {
        weighted += totals.Probability(head.Score(row, at)) * Dot(dout, row, head.v, at, head.dims);
    }
    std::fill_n(dq, head.dims, 0.0f);
    for (int64_t at = first; at <= row; ++at) {
        const Head::Scored scored = head.ScoreOf(row, at);
        const float p = totals.Probability(scored.score);
        const float dp = Dot(dout, row, head.v, at, head.dims);
        const float ds = head.args.scale * p * (dp - weighted) * scored.slope;
        AddScaledRow(dout, row, p, head.dims, dv + at * head.dims);
        AddScaledRow(head.k, at, ds, head.dims, dq);
        AddScaledRow(head.q, row, ds, head.dims, dk + at * head.dims);
    }
}

// Recomputes everything, without reading the forward's out and lse.
void CausalGrad(const CausalGradArgs& args, std::span<std::byte> scratch, int part, int parts) {
    const CausalArgs& forward = args.forward;
    const int64_t dims = forward.head_dim;
    auto* dq = reinterpret_cast<float*>(scratch.data());
    float *dk = dq + dims, *dv = dk + LongestOf(forward) * dims;
    const Range kv_heads = Share(forward.kv_heads, 1, part, parts);
    for (const Sequence& sequence : forward.sequences) {
        for (int64_t kv = kv_heads.begin; kv < kv_heads.end; ++kv) {
            std::fill_n(dk, sequence.row_count * dims, 0.0f);
            std::fill_n(dv, sequence.row_count * dims, 0.0f);
            for (int64_t h = 0; h < forward.heads; ++h) {
                if (forward.KvHead(h) != kv) continue;
                const Head head(forward, sequence, h);
                const ConstMatrix dout = args.dout.From(head.first_row, head.q_column);
                for (int64_t row = 0; row < sequence.row_count; ++row) {
                    RowGrad(head, dout, row, dq, dk, dv);
                    PutRow(dq, dims, args.dq.From(head.first_row, head.q_column), row);
                }
            }
            for (int64_t row = 0; row < sequence.row_count; ++row) {
                PutRow(dk + row * dims, dims, args.dk.From(sequence.row_begin, kv * dims), row);
                PutRow(dv + row * dims, dims, args.dv.From(sequence.row_begin, kv * dims), row);
            }
        }
    }
}

}  // namespace

const dense::CausalKernels kCausal = {ScratchBytes, Causal, GradScratchBytes, CausalGrad};

}  // namespace weft::kernels::reference
