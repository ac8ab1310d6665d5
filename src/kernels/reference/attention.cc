#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {
namespace {

// One query over the keys at positions `first` to `last`, with a running maximum and a running sum
// of exponentials; `out` is the sum of values under those weights, rescaled when the maximum grows.
// blocks: null, or restricts the query to `chosen` blocks.
void Attend(const AttentionArgs& args, const Sequence& sequence, int64_t kv_head, int64_t first,
            int64_t last, const float* q, const float* sink, float slope, float* scratch,
            float* out, const BlockAttentionArgs* blocks, const int32_t* chosen) {
    const KvCache& keys = args.k_cache;
    const int64_t head_dim = keys.head_dim, value_dim = args.v_cache.head_dim;
    float* row = scratch;
    float largest = sink == nullptr ? -std::numeric_limits<float>::infinity() : *sink;
    float sum = sink == nullptr ? 0.0f : 1.0f;
    std::fill(out, out + value_dim, 0.0f);
    for (int64_t position = first; position <= last; ++position) {
        if (blocks != nullptr) {
            const int32_t* const end = chosen + blocks->top;
            if (std::find(chosen, end, position / blocks->block) == end) continue;
        }
        const int64_t page = sequence.pages[static_cast<size_t>(position / keys.page_tokens)];
        const int64_t slot = position % keys.page_tokens;
        ReadKey(keys, page, kv_head, slot, row);
        float score = 0;
        for (int64_t d = 0; d < head_dim; ++d) score += q[d] * row[d];
        score *= args.scale;
        score += slope * static_cast<float>(position - last);
        if (args.soft_cap != 0) score = args.soft_cap * std::tanh(score / args.soft_cap);
        if (score > largest) {
            const float shrink = std::exp(largest - score);
            sum *= shrink;
            for (int64_t d = 0; d < value_dim; ++d) out[d] *= shrink;
            largest = score;
        }
        const float weight = std::exp(score - largest);
        sum += weight;
        ReadValue(args.v_cache, page, kv_head, slot, row);
        for (int64_t d = 0; d < value_dim; ++d) out[d] += weight * row[d];
    }
    for (int64_t d = 0; d < value_dim; ++d) out[d] /= sum;
}

void AttendAll(const AttentionArgs& args, const BlockAttentionArgs* blocks, int part, int parts) {
    const int64_t head_dim = args.k_cache.head_dim;
    float* scratch = args.scratch + part * args.scratch_floats;
    for (const Sequence& sequence : args.sequences) {
        // Units are interleaved, so that each part gets early (short) and late (long) rows.
        for (int64_t unit = part; unit < sequence.row_count * args.heads; unit += parts) {
            const int64_t index = unit / args.heads;
            const int64_t head = unit % args.heads;
            const int64_t row = sequence.row_begin + index;
            const int64_t kv_head = (args.first_head + head) / args.group - args.first_kv_head;
            Attend(args, sequence, kv_head, args.FirstKey(sequence.position + index),
                   args.LastKey(sequence, index), args.q + row * args.q_stride + head * head_dim,
                   args.sinks == nullptr ? nullptr : args.sinks + head,
                   args.slopes == nullptr ? 0.0f : args.slopes[head], scratch,
                   args.out + row * args.out_stride + head * args.v_cache.head_dim, blocks,
                   blocks == nullptr ? nullptr : blocks->Chosen(row, kv_head));
        }
    }
}

}  // namespace

int64_t AttentionScratch(int64_t head_dim, int64_t /*group*/) {
    return head_dim;
}

void Attention(const AttentionArgs& args, int part, int parts) {
    AttendAll(args, nullptr, part, parts);
}

void BlockAttention(const BlockAttentionArgs& args, int part, int parts) {
    AttendAll(args.all, &args, part, parts);
}

}  // namespace weft::kernels::reference
