// The indexers of sparse attention: write index keys into their cache; then, for some rows at a
// time, score all positions or blocks and choose the highest.
#include <algorithm>
#include <cstdint>
#include <string_view>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

// Constants of index_tile.glsl and index_choose.comp.
constexpr uint32_t kScoreGroup = 128, kChooseGroup = 256;
constexpr int64_t kTileKeys = 32;
constexpr int64_t kMostIndexDims = 224;  // a tile in 32 KiB of shared memory
// Scratch memory for scores. It limits the number of rows that are scored at a time.
constexpr uint64_t kScoreBytes = 64 << 20;

struct IndexScoresArgs {
    uint64_t q = 0, weights = 0, cache = 0, scores = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0;
    uint32_t heads = 0, top = 0, block = 1, local = 0, page_tokens = 0, stride = 0, first_row = 0;
};
struct IndexChooseArgs {
    uint64_t scores = 0, chosen = 0, row_sequence = 0, sequences = 0;
    uint32_t heads = 0, top = 0, block = 1, local = 0, stride = 0, first_row = 0, columns = 0;
};

// heads: number of heads of q. For each of `lists` lists, a row chooses blocks of positions, among
// them always the `local` last blocks. A workgroup of the shader scores `each` blocks. windows: a
// block has one key, at its last position, and a row sees a block only from there on. positions:
// the list has positions of blocks, and positions in no block yet.
struct Indexer {
    std::string_view shader;
    ValueId q, key, weights, cache, chosen;
    int64_t heads = 1, lists = 1, block = 1, local = 0, each = 1;
    bool windows = false, positions = false;
};

Status EmitIndexer(Emitter& e, const Op& op, const Indexer& index) {
    const CachePlace& cache = e.Cache(index.cache);
    WEFT_ASSIGN(const uint32_t type, CacheType(op, cache));
    if (cache.head_dim > kMostIndexDims) {
        return MakeError(ErrorCode::kUnsupported, "{}: keys of {} dims; at most {} are supported",
                         program::OpName(op.kind()), cache.head_dim, kMostIndexDims);
    }
    const int64_t stride = index.windows ? index.block : 1;
    WEFT_TRY(WriteRow(e, op, index.key, cache, stride));
    const int64_t rows = e.shape().rows, positions = std::max(e.shape().positions, 1);
    const int64_t blocks = CeilDiv(positions, index.block);
    const int64_t columns = e.Cols(index.chosen) / index.lists;
    const int64_t top = program::IndexTopK{index.block, index.positions}.Windows(columns);
    const uint64_t row_bytes = sizeof(float) * static_cast<uint64_t>(blocks * index.lists);
    const int64_t turn =
        std::clamp<int64_t>(static_cast<int64_t>(kScoreBytes / row_bytes), 1, rows);
    WEFT_ASSIGN(const Region scores,
                e.Scratch("index scores", row_bytes * static_cast<uint64_t>(turn)));
    Operands score_io(e), choose_io(e);
    IndexScoresArgs score;
    score.q = score_io.Reads(index.q);
    score.weights = score_io.Reads(index.weights);
    score.cache = score_io.Reads(cache.All());
    score.scores = score_io.Writes(scores);
    score.row_sequence = e.tables().row_sequence;
    score.sequences = e.tables().sequences;
    score.pages = e.tables().pages;
    score.heads = static_cast<uint32_t>(index.heads);
    score.top = static_cast<uint32_t>(top);
    score.block = static_cast<uint32_t>(index.block);
    score.local = static_cast<uint32_t>(index.local);
    score.page_tokens = static_cast<uint32_t>(cache.page_tokens);
    score.stride = static_cast<uint32_t>(blocks);
    IndexChooseArgs choose{choose_io.Reads(scores), choose_io.Writes(index.chosen),
                           score.row_sequence, score.sequences};
    choose.heads = static_cast<uint32_t>(index.lists);
    choose.top = score.top;
    choose.block = score.block;
    choose.local = score.local;
    choose.stride = score.stride;
    choose.columns = static_cast<uint32_t>(columns);
    for (int64_t first = 0; first < rows; first += turn) {
        const int64_t count = std::min(turn, rows - first);
        score.first_row = choose.first_row = static_cast<uint32_t>(first);
        if (blocks > top) {
            WEFT_TRY(score_io.Run(index.shader,
                                  {kScoreGroup, type, cache.head_dim, index.heads, stride}, score,
                                  {CeilDiv(blocks, index.each), count, 1}, 0, Parts::kAlongY));
        }
        WEFT_TRY(choose_io.Run("index_choose", {kChooseGroup, index.windows, index.positions},
                               choose, {index.lists, count, 1}, 0, Parts::kAlongY));
    }
    return {};
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::IndexBlocks& a) {
    Indexer index{"block_scores", op.inputs[0],  op.inputs[1], program::kNoValue,
                  op.inputs[2],   op.outputs[0], a.heads,      a.heads};
    index.block = a.block;
    index.local = a.local;
    return EmitIndexer(e, op, index);
}

Status Lower(Emitter& e, const Op& op, const program::IndexTopK& a) {
    Indexer index{"index_scores", op.inputs[0], op.inputs[1],
                  op.inputs[2],   op.inputs[3], op.outputs[0]};
    index.heads = e.Cols(op.inputs[2]);
    index.block = a.stride;
    index.windows = a.stride != 1;
    index.positions = a.positions;
    index.each = kTileKeys;
    return EmitIndexer(e, op, index);
}

}  // namespace weft::backend::on_gpu
