#include <algorithm>
#include <cmath>

#include "kernels/reference/elements.h"
#include "kernels/reference/latent.h"
#include "kernels/reference/ops.h"
#include "tensor/quant.h"

namespace weft::kernels::reference {
namespace {

// sum over heads of weight * max(0, q . key), for positions [begin, begin + count).
void Score(const IndexRows& rows, const Sequence& sequence, int64_t row, int64_t begin,
           int64_t count, float* out) {
    float key[kMostLatentColumns];
    for (int64_t i = 0; i < count; ++i) {
        const int64_t slot = rows.windows.Row(begin + i);
        const auto page = static_cast<size_t>(slot / rows.cache.page_tokens);
        ReadValue(rows.cache, sequence.pages[page], 0, slot % rows.cache.page_tokens, key);
        out[i] = 0;
        for (int64_t h = 0; h < rows.heads; ++h) {
            const float* q = rows.q + (row * rows.heads + h) * rows.dim;
            float dot = 0;
            for (int64_t d = 0; d < rows.dim; ++d) dot += q[d] * key[d];
            out[i] += rows.weights[row * rows.heads + h] * std::max(dot, 0.0f);
        }
    }
}

void IndexScores(const IndexScoresArgs& args, int part, int parts) {
    RunIndexScores(args, part, parts, [&](auto&&... of) { Score(args.rows, of...); });
}

void IndexChoose(const IndexChooseArgs& args, int part, int parts) {
    RunIndexChoose(args, part, parts, [&](auto&&... of) { Score(args.rows, of...); });
}

void SparseLatent(const SparseLatentArgs& args, int part, int parts) {
    ForIndexRows(args.all.sequences,
                 [&](int64_t, const Sequence& sequence, int64_t row, int64_t keys) {
                     const int32_t* chosen = args.chosen + row * args.top;
                     const Range heads = Share(args.all.heads, 1, part, parts);
                     int64_t listed = std::min(keys, args.top);
                     while (chosen[listed - 1] < 0) --listed;
                     LatentRow(args.all, sequence, row, heads, listed, chosen);
                 });
}

// max of q . key over the positions of each block, per head.
void ScoreBlocks(const IndexRows& rows, const Sequence& sequence, int64_t row, int64_t begin,
                 int64_t count, int64_t block, float* out, int64_t pitch) {
    float key[kMostLatentColumns];
    for (int64_t i = 0; i < count; ++i) {
        const int64_t position = begin + i;
        const auto page = static_cast<size_t>(position / rows.cache.page_tokens);
        ReadValue(rows.cache, sequence.pages[page], 0, position % rows.cache.page_tokens, key);
        for (int64_t h = 0; h < rows.heads; ++h) {
            const float* q = rows.q + (row * rows.heads + h) * rows.dim;
            float dot = 0;
            for (int64_t d = 0; d < rows.dim; ++d) dot += q[d] * key[d];
            float& best = out[h * pitch + i / block];
            best = i % block == 0 ? dot : std::max(best, dot);
        }
    }
}

void BlockScores(const BlockScoresArgs& args, int part, int parts) {
    RunBlockScores(args, part, parts, [&](auto&&... of) { ScoreBlocks(args.rows, of...); });
}

void BlockChoose(const BlockChooseArgs& args, int part, int parts) {
    RunBlockChoose(args, part, parts, [&](auto&&... of) { ScoreBlocks(args.scores.rows, of...); });
}

void AttendWindows(const WindowAttentionArgs& args, int part, int parts) {
    const Range heads = Share(args.heads, 1, part, parts);
    ForIndexRows(
        args.sequences, [&](int64_t, const Sequence& sequence, int64_t row, int64_t positions) {
            const WindowRows rows(args, sequence, row, positions - 1);
            for (int64_t head = heads.begin; head < heads.end; ++head) {
                const int64_t at = (row * args.heads + head) * args.width;
                float* out = args.out + at;
                std::fill_n(out, args.width, 0.0f);
                float peak = args.sinks[head], total = 1;
                float values[kMostLatentColumns];
                for (int64_t i = 0; i < rows.count(); ++i) {
                    DequantizeRow(args.cache.dtype,
                                  {rows.At(i), static_cast<size_t>(args.cache.RowStride())},
                                  {values, static_cast<size_t>(args.width)});
                    float score = 0;
                    for (int64_t d = 0; d < args.width; ++d) score += args.q[at + d] * values[d];
                    score *= args.scale;
                    const float above = std::fmax(peak, score);
                    const float fade = std::exp(peak - above), weight = std::exp(score - above);
                    for (int64_t d = 0; d < args.width; ++d) {
                        out[d] = out[d] * fade + weight * values[d];
                    }
                    total = total * fade + weight;
                    peak = above;
                }
                for (int64_t d = 0; d < args.width; ++d) out[d] /= total;
            }
        });
}

}  // namespace

const SparseKernels kSparse = {IndexScores, IndexChoose,    SparseLatent, BlockScores,
                               BlockChoose, BlockAttention, AttendWindows};

}  // namespace weft::kernels::reference
