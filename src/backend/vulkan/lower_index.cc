// The indexers of sparse attention: write index keys into their cache; then, for some rows at a
// time, score all positions or blocks and choose the highest.
#include <algorithm>
#include <cstdint>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_parts.h"

namespace weft::backend::vulkan {
namespace {

using program::ValueId;

// Constants of index_scores.comp and index_choose.comp.
constexpr uint32_t kScoreGroup = 128, kChooseGroup = 256;
constexpr int64_t kTileKeys = 32;
constexpr int64_t kMostIndexDims = 224;  // a tile in 32 KiB of shared memory
// Scratch memory for the scores of the rows at a time.
constexpr uint64_t kScoreBytes = 64 << 20;

struct IndexScoresShaderArgs {
    uint64_t q = 0, weights = 0, cache = 0, scores = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0;
    uint32_t heads = 0, top = 0, page_tokens = 0, stride = 0, first_row = 0;
};
struct IndexChooseShaderArgs {
    uint64_t scores = 0, chosen = 0, row_sequence = 0, sequences = 0;
    uint32_t top = 0, stride = 0, first_row = 0;
};

struct BlockScoresShaderArgs {
    uint64_t q = 0, cache = 0, scores = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0;
    uint32_t top = 0, block = 0, local = 0, page_tokens = 0, stride = 0, first_row = 0;
};
struct ScaleHeadsShaderArgs {
    uint64_t x = 0, positions = 0, slope = 0, offset = 0, y = 0;
    uint32_t cols = 0, heads = 0;
};
struct BlockChooseShaderArgs {
    uint64_t scores = 0, chosen = 0, row_sequence = 0, sequences = 0;
    uint32_t heads = 0, top = 0, block = 0, local = 0, stride = 0, first_row = 0;
};

Status CheckIndexKeys(const program::Op& op, const CachePlace& cache) {
    if (cache.head_dim <= kMostIndexDims) return {};
    return MakeError(ErrorCode::kUnsupported, "{}: keys of {} dims; at most {} are supported",
                     program::OpName(op.kind()), cache.head_dim, kMostIndexDims);
}

}  // namespace

Status Lower(Emitter& e, const program::Op& op, const program::IndexBlocks& a) {
    const ValueId q = op.inputs[0], chosen = op.outputs[0];
    const CachePlace& cache = e.Cache(op.inputs[2]);
    WEFT_ASSIGN(const uint32_t type, CacheType(op, cache));
    WEFT_TRY(CheckIndexKeys(op, cache));
    WEFT_TRY(WriteRow(e, op, op.inputs[1], cache));
    const int64_t rows = e.shape().rows, positions = std::max(e.shape().positions, 1);
    const int64_t blocks = (positions + a.block - 1) / a.block;
    const int64_t top = e.Cols(chosen) / a.heads;
    const uint64_t row_bytes = sizeof(float) * static_cast<uint64_t>(blocks * a.heads);
    const int64_t turn =
        std::clamp<int64_t>(static_cast<int64_t>(kScoreBytes / row_bytes), 1, rows);
    WEFT_ASSIGN(const Region scores,
                e.Scratch("index scores", row_bytes * static_cast<uint64_t>(turn)));
    BlockScoresShaderArgs score;
    score.q = e.Address(q);
    score.cache = cache.address;
    score.scores = scores.address;
    score.row_sequence = e.tables().row_sequence;
    score.sequences = e.tables().sequences;
    score.pages = e.tables().pages;
    score.top = static_cast<uint32_t>(top);
    score.block = static_cast<uint32_t>(a.block);
    score.local = static_cast<uint32_t>(a.local);
    score.page_tokens = static_cast<uint32_t>(cache.page_tokens);
    score.stride = static_cast<uint32_t>(blocks);
    BlockChooseShaderArgs choose{scores.address,
                                 e.Address(chosen),
                                 score.row_sequence,
                                 score.sequences,
                                 static_cast<uint32_t>(a.heads),
                                 score.top,
                                 score.block,
                                 score.local,
                                 score.stride,
                                 0};
    for (int64_t first = 0; first < rows; first += turn) {
        const int64_t count = std::min(turn, rows - first);
        score.first_row = choose.first_row = static_cast<uint32_t>(first);
        if (blocks > top) {
            WEFT_TRY(e.Run("block_scores",
                           {kScoreGroup, type, static_cast<uint32_t>(cache.head_dim),
                            static_cast<uint32_t>(a.heads)},
                           score, {blocks, count, 1}, {e.All(q), cache.All()}, {scores}));
        }
        WEFT_TRY(e.Run("block_choose", {kChooseGroup}, choose, {a.heads, count, 1}, {scores},
                       {e.All(chosen)}));
    }
    return {};
}

Status Lower(Emitter& e, const program::Op& op, const program::ScaleHeads&) {
    const ValueId x = op.inputs[0], slope = op.inputs[2], offset = op.inputs[3];
    const ValueId y = op.outputs[0];
    ScaleHeadsShaderArgs args;
    args.x = e.Address(x);
    args.positions = e.tables().positions;
    args.slope = e.Address(slope);
    args.offset = e.Address(offset);
    args.y = e.Address(y);
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.heads = static_cast<uint32_t>(e.program().value(slope).shape[0]);
    return e.Run("scale_heads", {kScoreGroup}, args,
                 {(e.Cols(x) + kScoreGroup - 1) / kScoreGroup, e.shape().rows, 1},
                 {e.All(x), e.All(slope), e.All(offset)}, {e.All(y)});
}

Status Lower(Emitter& e, const program::Op& op, const program::IndexTopK& a) {
    if (a.stride != 1) {
        return MakeError(ErrorCode::kUnsupported, "index_top_k: no GPU kernel chooses windows");
    }
    const ValueId q = op.inputs[0], key = op.inputs[1], weights = op.inputs[2];
    const ValueId chosen = op.outputs[0];
    const CachePlace& cache = e.Cache(op.inputs[3]);
    WEFT_ASSIGN(const uint32_t type, CacheType(op, cache));
    if (cache.head_dim > kMostIndexDims) {
        return MakeError(ErrorCode::kUnsupported,
                         "index_top_k: keys of {} dims; at most {} are supported", cache.head_dim,
                         kMostIndexDims);
    }
    WEFT_TRY(WriteRow(e, op, key, cache));
    const int64_t rows = e.shape().rows, positions = std::max(e.shape().positions, 1);
    const auto top = static_cast<uint32_t>(e.Cols(chosen));
    const uint64_t row_bytes = sizeof(float) * static_cast<uint64_t>(positions);
    const int64_t turn =
        std::clamp<int64_t>(static_cast<int64_t>(kScoreBytes / row_bytes), 1, rows);
    WEFT_ASSIGN(const Region scores,
                e.Scratch("index scores", row_bytes * static_cast<uint64_t>(turn)));
    IndexScoresShaderArgs score;
    score.q = e.Address(q);
    score.weights = e.Address(weights);
    score.cache = cache.address;
    score.scores = scores.address;
    score.row_sequence = e.tables().row_sequence;
    score.sequences = e.tables().sequences;
    score.pages = e.tables().pages;
    score.heads = static_cast<uint32_t>(e.Cols(weights));
    score.top = top;
    score.page_tokens = static_cast<uint32_t>(cache.page_tokens);
    score.stride = static_cast<uint32_t>(positions);
    IndexChooseShaderArgs choose{
        scores.address, e.Address(chosen), score.row_sequence, score.sequences, top,
        score.stride,   score.first_row};
    for (int64_t first = 0; first < rows; first += turn) {
        const int64_t count = std::min(turn, rows - first);
        score.first_row = choose.first_row = static_cast<uint32_t>(first);
        if (positions > int64_t{top}) {
            const int64_t tiles = (positions + kTileKeys - 1) / kTileKeys;
            WEFT_TRY(e.Run("index_scores",
                           {kScoreGroup, type, static_cast<uint32_t>(cache.head_dim)}, score,
                           {tiles, count, 1}, {e.All(q), e.All(weights), cache.All()}, {scores}));
        }
        WEFT_TRY(e.Run("index_choose", {kChooseGroup}, choose, {count, 1, 1}, {scores},
                       {e.All(chosen)}));
    }
    return {};
}

}  // namespace weft::backend::vulkan
