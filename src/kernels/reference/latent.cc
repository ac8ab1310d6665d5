#include "kernels/reference/latent.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/reference/ops.h"

namespace weft::kernels::reference {
namespace {

float DotOf(const float* a, const float* b, int64_t count) {
    float sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

// One head of one row over positions [0, keys), or the positions of a list.
void OneQuery(const LatentAttentionArgs& args, const Sequence& sequence, int64_t keys,
              const int32_t* list, const float* latent, const float* key, const float* sink,
              float* out) {
    float row[kMostLatentColumns];
    float peak = sink == nullptr ? -std::numeric_limits<float>::infinity() : *sink;
    float total = sink == nullptr ? 0.0f : 1.0f;
    std::fill_n(out, args.rank, 0.0f);
    for (int64_t i = 0; i < keys; ++i) {
        const int64_t p = list == nullptr ? i : list[i];
        const int32_t page = sequence.pages[static_cast<size_t>(p / args.cache.page_tokens)];
        ReadValue(args.cache, page, 0, p % args.cache.page_tokens, row);
        const float score =
            args.scale * (DotOf(latent, row, args.rank) + DotOf(key, row + args.rank, args.rope));
        const float above = std::fmax(peak, score);
        const float fade = std::exp(peak - above), weight = std::exp(score - above);
        for (int64_t d = 0; d < args.rank; ++d) out[d] = out[d] * fade + weight * row[d];
        total = total * fade + weight;
        peak = above;
    }
    for (int64_t d = 0; d < args.rank; ++d) out[d] /= total;
}

}  // namespace

void LatentRow(const LatentAttentionArgs& args, const Sequence& sequence, int64_t row,
               const Range& heads, int64_t keys, const int32_t* list) {
    for (int64_t head = heads.begin; head < heads.end; ++head) {
        const int64_t at = row * args.heads + head;
        OneQuery(args, sequence, keys, list, args.q_latent + at * args.rank,
                 args.q_key + at * args.rope, args.sinks == nullptr ? nullptr : args.sinks + head,
                 args.out + at * args.rank);
    }
}

void LatentAttention(const LatentAttentionArgs& args, int part, int parts) {
    for (const Sequence& sequence : args.sequences) {
        const Range share = Share(sequence.row_count * args.heads, 1, part, parts);
        for (int64_t unit = share.begin; unit < share.end; ++unit) {
            const int64_t row = unit / args.heads, head = unit % args.heads;
            LatentRow(args, sequence, sequence.row_begin + row, {head, head + 1},
                      sequence.position + row + 1, nullptr);
        }
    }
}

}  // namespace weft::kernels::reference
