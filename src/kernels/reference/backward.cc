#include "kernels/reference/backward.h"

#include <algorithm>
#include <cmath>

namespace weft::kernels::reference {
namespace {

float Dot(const float* a, const float* b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

void AddScaled(const float* x, float scale, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i) y[i] += scale * x[i];
}

// 1 / sqrt(mean(x^2) + eps)
float InverseRms(const float* x, int64_t count, float eps) {
    return 1.0f / std::sqrt(Dot(x, x, count) / static_cast<float>(count) + eps);
}

// The largest logit of a row and the sum of exp(logit - largest).
struct SoftmaxTotals {
    float largest = 0;
    float sum = 0;
    float Probability(float logit) const { return std::exp(logit - largest) / sum; }
};

SoftmaxTotals TotalsOf(const float* logits, int64_t count) {
    SoftmaxTotals totals;
    totals.largest = *std::max_element(logits, logits + count);
    for (int64_t i = 0; i < count; ++i) totals.sum += std::exp(logits[i] - totals.largest);
    return totals;
}

// One query head over one sequence.
struct Head {
    const CausalAttentionArgs& args;
    int64_t first_row, q_column, kv_column;

    Head(const CausalAttentionArgs& a, const Sequence& sequence, int64_t head)
        : args(a),
          first_row(sequence.row_begin),
          q_column(head * a.head_dim),
          kv_column(((a.first_head + head) / a.group - a.first_kv_head) * a.head_dim) {}

    int64_t QAt(int64_t row, int64_t stride) const { return (first_row + row) * stride + q_column; }
    int64_t KvAt(int64_t row, int64_t stride) const {
        return (first_row + row) * stride + kv_column;
    }
    const float* Q(int64_t row) const { return args.q + QAt(row, args.q_stride); }
    const float* K(int64_t row) const { return args.k + KvAt(row, args.k_stride); }
    const float* V(int64_t row) const { return args.v + KvAt(row, args.v_stride); }

    float Score(int64_t row, int64_t at) const {
        return args.scale * Dot(Q(row), K(at), args.head_dim);
    }
    // Softmax of row's scores over rows 0..row.
    SoftmaxTotals Totals(int64_t row) const {
        SoftmaxTotals totals;
        totals.largest = Score(row, 0);
        for (int64_t at = 1; at <= row; ++at) {
            totals.largest = std::max(totals.largest, Score(row, at));
        }
        for (int64_t at = 0; at <= row; ++at) {
            totals.sum += std::exp(Score(row, at) - totals.largest);
        }
        return totals;
    }
};

void AttendRow(const Head& head, int64_t row, float* out) {
    const SoftmaxTotals totals = head.Totals(row);
    std::fill_n(out, head.args.head_dim, 0.0f);
    for (int64_t at = 0; at <= row; ++at) {
        const float p = totals.Probability(head.Score(row, at));
        AddScaled(head.V(at), p, head.args.head_dim, out);
    }
}

void AttendRowGrad(const CausalAttentionGradArgs& args, const Head& head, int64_t row) {
    const int64_t dims = args.forward.head_dim;
    const float* dout = args.dout + head.QAt(row, args.dout_stride);
    float* dq = args.dq + head.QAt(row, args.dq_stride);
    const SoftmaxTotals totals = head.Totals(row);
    float weighted = 0;  // sum of p * dp
    for (int64_t at = 0; at <= row; ++at) {
        weighted += totals.Probability(head.Score(row, at)) * Dot(dout, head.V(at), dims);
    }
    std::fill_n(dq, dims, 0.0f);
    for (int64_t at = 0; at <= row; ++at) {
        const float p = totals.Probability(head.Score(row, at));
        const float ds = args.forward.scale * p * (Dot(dout, head.V(at), dims) - weighted);
        AddScaled(dout, p, dims, args.dv + head.KvAt(at, args.dv_stride));
        AddScaled(head.K(at), ds, dims, dq);
        AddScaled(head.Q(row), ds, dims, args.dk + head.KvAt(at, args.dk_stride));
    }
}

void ClearKvGradients(const CausalAttentionGradArgs& args, const Sequence& sequence,
                      int64_t kv_head) {
    const int64_t column = kv_head * args.forward.head_dim;
    for (int64_t row = sequence.row_begin; row < sequence.row_begin + sequence.row_count; ++row) {
        std::fill_n(args.dk + row * args.dk_stride + column, args.forward.head_dim, 0.0f);
        std::fill_n(args.dv + row * args.dv_stride + column, args.forward.head_dim, 0.0f);
    }
}

}  // namespace

void MatMulGradInput(const MatMulGradInputArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        float* dx = args.dx + row * args.dx_stride;
        std::fill_n(dx, args.k, 0.0f);
        for (int64_t i = 0; i < args.n; ++i) {
            AddScaled(args.weight + i * args.k, args.dy[row * args.dy_stride + i], args.k, dx);
        }
    }
}

void MatMulGradWeight(const MatMulGradWeightArgs& args, int part, int parts) {
    const Range outs = Share(args.n, 1, part, parts);
    for (int64_t i = outs.begin; i < outs.end; ++i) {
        for (int64_t row = 0; row < args.rows; ++row) {
            AddScaled(args.x + row * args.x_stride, args.dy[row * args.dy_stride + i], args.k,
                      args.dw + i * args.k);
        }
    }
}

void BiasGrad(const BiasGradArgs& args, int part, int parts) {
    const Range outs = Share(args.n, 1, part, parts);
    for (int64_t row = 0; row < args.rows; ++row) {
        const float* dy = args.dy + row * args.dy_stride;
        for (int64_t i = outs.begin; i < outs.end; ++i) args.db[i] += dy[i];
    }
}

void RmsNormGradInput(const RmsNormGradArgs& args, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t column = 0; column < args.cols; column += args.group) {
            const float* dy = args.dy + row * args.dy_stride + column;
            const float* x = args.x + row * args.x_stride + column;
            float* dx = args.dx + row * args.dx_stride + column;
            const float scale = InverseRms(x, args.group, args.eps);
            float along = 0;  // sum of dy * w * x
            for (int64_t i = 0; i < args.group; ++i) along += dy[i] * args.weight[i] * x[i];
            const float pull = scale * scale * along / static_cast<float>(args.group);
            for (int64_t i = 0; i < args.group; ++i) {
                dx[i] = scale * (dy[i] * args.weight[i] - x[i] * pull);
            }
        }
    }
}

void RmsNormGradWeight(const RmsNormGradArgs& args, int part, int parts) {
    const Range shares = Share(args.group, 1, part, parts);
    for (int64_t row = 0; row < args.rows; ++row) {
        for (int64_t column = 0; column < args.cols; column += args.group) {
            const float* dy = args.dy + row * args.dy_stride + column;
            const float* x = args.x + row * args.x_stride + column;
            const float scale = InverseRms(x, args.group, args.eps);
            for (int64_t i = shares.begin; i < shares.end; ++i) args.dw[i] += dy[i] * x[i] * scale;
        }
    }
}

void CausalAttention(const CausalAttentionArgs& args, float* out, int64_t out_stride, int part,
                     int parts) {
    const Range heads = Share(args.heads, 1, part, parts);
    for (const Sequence& sequence : args.sequences) {
        for (int64_t h = heads.begin; h < heads.end; ++h) {
            const Head head(args, sequence, h);
            for (int64_t row = 0; row < sequence.row_count; ++row) {
                AttendRow(head, row, out + head.QAt(row, out_stride));
            }
        }
    }
}

void CausalAttentionGrad(const CausalAttentionGradArgs& args, int part, int parts) {
    const CausalAttentionArgs& forward = args.forward;
    const Range kv_heads = Share(forward.kv_heads, 1, part, parts);
    for (const Sequence& sequence : forward.sequences) {
        for (int64_t kv = kv_heads.begin; kv < kv_heads.end; ++kv) {
            ClearKvGradients(args, sequence, kv);
        }
        for (int64_t h = 0; h < forward.heads; ++h) {
            const Head head(forward, sequence, h);
            const int64_t kv = head.kv_column / forward.head_dim;
            if (kv < kv_heads.begin || kv >= kv_heads.end) continue;
            for (int64_t row = 0; row < sequence.row_count; ++row) AttendRowGrad(args, head, row);
        }
    }
}

void GluGrad(const GluGradArgs& args, int part, int parts) {
    WEFT_CHECK(args.activation != Activation::kClampedSilu);
    const bool gelu = args.activation == Activation::kGeluTanh;
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (int64_t i = 0; i < args.cols; ++i) {
            const float dout = args.dout[row * args.dout_stride + i];
            const float gate = args.gate[row * args.gate_stride + i];
            const float up = args.up[row * args.up_stride + i];
            const float root = 0.7978845608f;  // sqrt(2 / pi)
            const float square = 0.044715f * gate * gate;
            const float u = gelu ? 2.0f * root * gate * (1.0f + square) : gate;
            const float slope = gelu ? 2.0f * root * (1.0f + 3.0f * square) : 1.0f;  // of u
            const float sigmoid = 1.0f / (1.0f + std::exp(-u));
            args.dup[row * args.dup_stride + i] = dout * gate * sigmoid;
            args.dgate[row * args.dgate_stride + i] =
                dout * up * sigmoid * (1.0f + gate * slope * (1.0f - sigmoid));
        }
    }
}

void EmbeddingGrad(const EmbeddingGradArgs& args, int part, int parts) {
    const Range columns = Share(args.cols, 1, part, parts);
    for (int64_t i = 0; i < args.count; ++i) {
        const int64_t row = args.tokens[i] - args.first_row;
        if (row < 0 || row >= args.table_rows) continue;
        AddScaled(args.dy + i * args.dy_stride + columns.begin, 1.0f, columns.end - columns.begin,
                  args.dtable + row * args.cols + columns.begin);
    }
}

void SelectRowsGrad(const SelectRowsGradArgs& args, int part, int parts) {
    const Range columns = Share(args.cols, 1, part, parts);
    const int64_t count = columns.end - columns.begin;
    for (int64_t row = 0; row < args.rows; ++row) {
        std::fill_n(args.dx + row * args.dx_stride + columns.begin, count, 0.0f);
    }
    for (int64_t i = 0; i < args.count; ++i) {
        AddScaled(args.dy + i * args.dy_stride + columns.begin, 1.0f, count,
                  args.dx + args.selected[i] * args.dx_stride + columns.begin);
    }
}

float CrossEntropy(const CrossEntropyArgs& args) {
    float loss = 0;
    for (int64_t row = 0; row < args.rows; ++row) {
        if (args.targets[row] < 0) continue;
        const float* logits = args.logits + row * args.logits_stride;
        const SoftmaxTotals totals = TotalsOf(logits, args.cols);
        loss += std::log(totals.sum) + totals.largest - logits[args.targets[row]];
    }
    return loss;
}

void CrossEntropyGrad(const CrossEntropyArgs& args, float dloss, float* dlogits,
                      int64_t dlogits_stride, int part, int parts) {
    const Range rows = Share(args.rows, 1, part, parts);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
        const float* logits = args.logits + row * args.logits_stride;
        float* out = dlogits + row * dlogits_stride;
        std::fill_n(out, args.cols, 0.0f);
        if (args.targets[row] < 0) continue;
        const SoftmaxTotals totals = TotalsOf(logits, args.cols);
        for (int64_t i = 0; i < args.cols; ++i) out[i] = dloss * totals.Probability(logits[i]);
        out[args.targets[row]] -= dloss;
    }
}

}  // namespace weft::kernels::reference
