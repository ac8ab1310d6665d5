#include "kernels/reference/causal.h"

#include <cmath>

namespace weft::kernels::reference {
namespace {

double LogSum(const CausalAttentionArgs& args, const Sequence& sequence, int64_t head,
              int64_t row) {
    const int64_t kv = (args.first_head + head) / args.group - args.first_kv_head;
    const float* q = args.q + (sequence.row_begin + row) * args.q_stride + head * args.head_dim;
    double largest = -INFINITY, sum = 0;
    for (int64_t at = 0; at <= row; ++at) {
        const float* k = args.k + (sequence.row_begin + at) * args.k_stride + kv * args.head_dim;
        double score = 0;
        for (int64_t d = 0; d < args.head_dim; ++d) score += static_cast<double>(q[d]) * k[d];
        score *= args.scale;
        const double most = std::max(largest, score);
        sum = sum * std::exp(largest - most) + std::exp(score - most);
        largest = most;
    }
    return largest + std::log(sum);
}

}  // namespace

int64_t CausalScratchBytes(const dense::CausalArgs& /*args*/) {
    return 0;
}

int64_t CausalGradScratchBytes(const dense::CausalGradArgs& /*args*/) {
    return 0;
}

void Causal(const dense::CausalArgs& args, std::span<std::byte> /*scratch*/, int part, int parts) {
    CausalAttention(args.args, args.out, args.out_stride, part, parts);
    const Range heads = Share(args.args.heads, 1, part, parts);
    for (const Sequence& sequence : args.args.sequences) {
        for (int64_t head = heads.begin; head < heads.end; ++head) {
            for (int64_t row = 0; row < sequence.row_count; ++row) {
                args.lse[head * args.lse_stride + sequence.row_begin + row] =
                    static_cast<float>(LogSum(args.args, sequence, head, row));
            }
        }
    }
}

void CausalGrad(const dense::CausalGradArgs& args, std::span<std::byte> /*scratch*/, int part,
                int parts) {
    CausalAttentionGrad(args.args, part, parts);
}

}  // namespace weft::kernels::reference
