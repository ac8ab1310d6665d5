// Attention: writes rows into the KV cache, then runs queries over its pages. Also copies pages.
//
// Steps of at most kMostSplitRows rows: a workgroup has a chunk of a row's keys (attention.comp,
// kSplit), so that one row uses the whole device. A second kernel merges the chunks. The chunks
// depend only on the row's position, so its bits do not depend on other rows. Larger steps: a
// workgroup has a block of rows and all their keys, on matrix units if the step's products use them
// (attention_matrix.comp).
#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/attention_matrix.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"
#include "base/hash.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::OpName;
using program::ValueId;

// Constants of attention.comp and cache.glsl.
constexpr int64_t kMostSplitRows = 8, kChunkKeys = 128, kMostChunks = 128;
constexpr uint32_t kAttentionGroup = 128;
constexpr uint32_t kInChunks = 1u << 31;    // bit of `window`: the value is a chunk size
constexpr uint32_t kListed = 1u << 30;      // bit of `window`: the value is a list's capacity
constexpr uint32_t kFewBit = 1u << 31;      // bit of a row: skip rows that fit the list
constexpr uint32_t kPooled = 1u << 31;      // bit of `block`: the list has positions of windows
constexpr int64_t kMostQueryFloats = 4608;  // per tile, in shared memory
constexpr int64_t kMostPairs = 64;          // of a workgroup on matrix units
constexpr int64_t kMostSplitPairs = 8, kLeastBlockPairs = 4, kMostBlockPairs = 16;
// Scratch memory for the chunks of rows that are split together.
constexpr uint64_t kPartialBytes = 64 << 20;

// A window or chunk of `keys` for the kernel; 0: it hides none, as no cache has so many positions.
// (Some files give 2^31 - 1 for no window.)
uint32_t WindowOf(int64_t keys) {
    return keys < kListed ? static_cast<uint32_t>(keys) : 0;
}

struct KvWriteArgs {
    uint64_t k = 0, v = 0, k_cache = 0, v_cache = 0;
    uint64_t row_sequence = 0, sequences = 0, pages = 0;
    uint32_t kv_heads = 0, head_dim = 0, page_tokens = 0, latent = 0;
};

// The values that kv_write.comp writes: k and v, only k, or a row of a latent and a key.
enum class RowKind { kBoth, kOne, kLatent };

Status WriteRows(Emitter& e, const Op& op, ValueId k, ValueId v, const CachePlace& k_cache,
                 const CachePlace& v_cache, RowKind kind, int64_t stride = 1) {
    WEFT_ASSIGN(const uint32_t type, CacheType(op, k_cache));
    WEFT_ASSIGN(const uint32_t value_type, CacheType(op, v_cache));
    const bool latent = kind == RowKind::kLatent;
    Operands io(e);
    KvWriteArgs args;
    args.k = io.Reads(k);
    args.v = io.Reads(v);
    args.k_cache = io.Writes(k_cache.All());
    args.v_cache = io.Writes(v_cache.All());
    args.row_sequence = e.tables().row_sequence;
    args.sequences = e.tables().sequences;
    args.pages = e.tables().pages;
    args.kv_heads = static_cast<uint32_t>(k_cache.kv_heads);
    args.head_dim = static_cast<uint32_t>(k_cache.head_dim);
    args.page_tokens = static_cast<uint32_t>(k_cache.page_tokens);
    args.latent = latent ? static_cast<uint32_t>(e.Cols(k)) : 0;
    const int64_t each =
        std::min(Info(k_cache.dtype).block_elements, Info(v_cache.dtype).block_elements);
    return io.Run("kv_write", {128, type, latent, value_type, stride}, args,
                  {CeilDiv(k_cache.kv_heads * k_cache.head_dim / each, 128), e.shape().rows,
                   kind == RowKind::kBoth ? 2 : 1});
}

// Arguments of attention.comp and of attention_matrix.comp.
struct AttentionArgs {
    uint64_t q = 0, q_more = 0, k_cache = 0, v_cache = 0;
    uint64_t result = 0, partial = 0, sinks = 0;
    uint64_t rows_or_blocks = 0, sequences = 0, pages = 0;
    uint32_t heads = 0, first_head = 0, group = 1, first_kv_head = 0, kv_heads = 0;
    uint32_t page_tokens = 0, window = 0;
    uint32_t chunks = 1;  // attention_matrix.comp: number of blocks
    float scale = 1, soft_cap = 0;
    uint32_t row_and_bit = 0;  // attention_matrix.comp: rows of a tile of blocks
    uint32_t block = 1;
};
static_assert(sizeof(AttentionArgs) <= gpu::kMostArgsBytes);

// Writes k and v, one after the other if their heads differ in size.
Status WriteKeysAndValues(Emitter& e, const Op& op, const AttentionCaches& caches) {
    const ValueId k = op.inputs[1], v = op.inputs[2];
    if (caches.k.head_dim == caches.v.head_dim) {
        return WriteRows(e, op, k, v, caches.k, caches.v, RowKind::kBoth);
    }
    WEFT_TRY(WriteRow(e, op, k, caches.k));
    return WriteRow(e, op, v, caches.v);
}

// Windows of `stride` positions to which a row attends besides its last positions: `top` chosen
// ones, or all (0). stride 0: no windows.
struct PooledWindows {
    int64_t stride = 0, top = 0;
};

struct AttentionTiles {
    int64_t pairs = 0, keys = 0, slice = 0, lanes = 0, key_groups = 1;
};

// pairs: a power of two that the queries fill and shared memory holds. In split steps, fewer pairs
// allow more keys. In other steps only `pairs` varies, which does not change the order of sums.
enum class Keys { kWhole, kSplit };
AttentionTiles TilesOf(const AttentionSizes& sizes, int64_t wanted, Keys keys) {
    const bool split = keys == Keys::kSplit;
    AttentionTiles tiles;
    const auto filled = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(wanted)));
    tiles.pairs = split ? std::min(filled, kMostSplitPairs)
                        : std::clamp(filled, kLeastBlockPairs, kMostBlockPairs);
    const int64_t padded = (sizes.key_dims + 63) / 64 * 64;
    while (tiles.pairs > 1 && tiles.pairs * padded > kMostQueryFloats) tiles.pairs /= 2;
    tiles.keys = split ? std::max<int64_t>(32, kAttentionGroup / tiles.pairs) : 32;
    int64_t most_slice = tiles.keys == 128 ? 32 : 64;
    // A larger slice has fewer dependent loads. It needs space in shared memory (at least 32 KiB).
    if (split && tiles.keys == 32 && tiles.pairs * padded <= 2048) most_slice = 128;
    const int64_t slices = (sizes.key_dims + most_slice - 1) / most_slice;
    tiles.slice = ((sizes.key_dims + slices - 1) / slices + 3) / 4 * 4;
    tiles.lanes = split ? std::min<int64_t>(kAttentionGroup / tiles.pairs, 16) : 8;
    const int64_t value_groups = kAttentionGroup / tiles.slice;
    if (split) tiles.key_groups = std::max<int64_t>(1, value_groups / tiles.pairs);
    return tiles;
}

struct MergeArgs {
    uint64_t partial = 0, sinks = 0, result = 0, row_sequence = 0, sequences = 0;
    uint64_t codes = 0, scales = 0;
    uint32_t heads = 0, value_dims = 0, window = 0, chunks = 0, first_row = 0;
    uint32_t least_position = 0, block = 1;
};

class AttentionLowering {
  public:
    AttentionLowering(Emitter& e, const AttentionSizes& sizes, const AttentionArgs& args,
                      std::vector<Region> reads, ValueId result)
        : e_(e), sizes_(sizes), args_(args), reads_(std::move(reads)), result_(result) {}
    // `sinks` of the arguments has slopes (ALiBi).
    void HasSlopes() { slopes_ = true; }
    // `sinks` of the arguments has the list of each row's positions; these are the heads' sinks.
    void ListsBeside(uint64_t sinks) { list_sinks_ = args_.partial = sinks; }
    // Rows also see later rows of their sequence.
    void LooksAhead() { ahead_ = true; }
    // Rows attend to windows, too.
    void Pools(const PooledWindows& windows) { windows_ = windows; }

    Status Run() {
        const bool few = e_.shape().rows <= kMostSplitRows;
        if (e_.reference() || few || windows_.stride != 0) return RunSplit();
        WEFT_TRY(RunBlocks());
        // Runs only rows that see more positions than a list holds.
        if (!listed() || e_.shape().positions <= Listed()) return {};
        args_.row_and_bit = kFewBit;
        return RunSplit();
    }

  private:
    bool listed() const { return args_.window >= kListed && args_.window < kInChunks; }
    int64_t Listed() const { return args_.window & ~kListed; }

    Status RunBlocks() {
        args_.rows_or_blocks = e_.tables().blocks;
        const bool single = e_.shape().blocks == e_.shape().rows;  // each block is one row
        if (!listed() && !ahead_) {
            const int64_t wanted = single ? args_.group : kMostPairs;
            const auto fragments = StepFragments(e_, sizes_, wanted);
            if (fragments) return RunMatrix(*fragments);
        }
        const int64_t pairs = (single ? 1 : kBlockRows) * args_.group;
        const AttentionTiles tiles = TilesOf(sizes_, pairs, Keys::kWhole);
        return RunTiles(tiles, Keys::kWhole, CeilDiv(pairs, tiles.pairs), e_.shape().blocks,
                        {e_.All(result_)});
    }
    Status RunMatrix(const AttentionFragments& fragments) {
        const int64_t span = SpanOf(fragments, args_.group);
        args_.chunks = static_cast<uint32_t>(e_.shape().blocks);
        args_.row_and_bit = static_cast<uint32_t>(span);
        const bool units = e_.arithmetic().matrix == Arithmetic::Matrix::kUnits;
        const bool single = e_.shape().blocks == e_.shape().rows;
        const int64_t pairs = (single ? 1 : span) * args_.group;
        return e_.Run(
            units ? "attention_matrix" : "attention_matrix_emulated",
            {fragments.Invocations(e_.gpu().subgroup), sizes_.key_type, sizes_.key_dims,
             sizes_.value_dims, sizes_.first_dims, fragments.pairs, fragments.keys, fragments.slice,
             fragments.across, fragments.held, sizes_.value_type, fragments.by_dims, slopes_},
            args_, {CeilDiv(pairs, fragments.pairs), args_.kv_heads, e_.shape().blocks}, reads_,
            {e_.All(result_)}, PinnedSubgroup(e_.gpu()), Parts::kAlongZ);
    }
    Status RunTiles(const AttentionTiles& tiles, Keys keys, int64_t x, int64_t z,
                    std::vector<Region> writes) {
        return e_.Run("attention",
                      {kAttentionGroup, sizes_.key_type, sizes_.key_dims, sizes_.value_dims,
                       sizes_.first_dims, tiles.pairs, tiles.keys, tiles.slice,
                       keys == Keys::kSplit, tiles.lanes, tiles.key_groups, listed(),
                       sizes_.value_type, slopes_, windows_.stride, windows_.top, ahead_},
                      args_, {x, args_.kv_heads, z}, reads_, std::move(writes), 0, Parts::kAlongZ);
    }

    // The number of keys whose chunks a row may touch.
    int64_t MostKeys() const {
        const int64_t keys = std::max(e_.shape().positions, 1), window = args_.window & ~kInChunks;
        if (windows_.stride != 0) {
            const int64_t all = keys / windows_.stride;
            const int64_t seen = windows_.top == 0 ? all : std::min(all, windows_.top);
            return std::min(keys, window) + seen;
        }
        if (listed()) return std::min(keys, Listed());
        // A window of w keys may touch one chunk more than w keys fill.
        const int64_t sides = ahead_ ? 2 : 1;
        return window == 0 ? keys : std::min(keys, sides * window + kChunkKeys);
    }

    // Runs as many rows at a time as fit into the scratch memory for their chunks.
    Status RunSplit() {
        args_.rows_or_blocks = e_.tables().row_sequence;
        const int64_t chunks = std::min(CeilDiv(MostKeys(), kChunkKeys), kMostChunks);
        args_.chunks = static_cast<uint32_t>(chunks);
        const AttentionTiles tiles = TilesOf(sizes_, args_.group, Keys::kSplit);
        const int64_t x = CeilDiv(args_.group, tiles.pairs) * chunks;
        if (chunks == 1)
            return RunTiles(tiles, Keys::kSplit, x, e_.shape().rows, {e_.All(result_)});
        const uint64_t row_bytes = sizeof(float) * static_cast<uint64_t>(chunks) * args_.heads *
                                   static_cast<uint64_t>(sizes_.value_dims + 2);
        const int64_t rows = e_.shape().rows;
        const int64_t turn =
            std::clamp<int64_t>(static_cast<int64_t>(kPartialBytes / row_bytes), 1, rows);
        WEFT_ASSIGN(const Region partial,
                    e_.Scratch("attention chunks", row_bytes * static_cast<uint64_t>(turn)));
        args_.partial = partial.address;
        const bool all = (args_.row_and_bit & kFewBit) == 0;  // rows are merged
        const bool encodes = all && sizes_.value_dims % 32 == 0 && WantsIntegers(e_, result_);
        if (encodes) {
            WEFT_ASSIGN(codes_, PlaceIntegers(e_, result_));
        }
        for (int64_t first = 0; first < rows; first += turn) {
            const int64_t count = std::min(turn, rows - first);
            args_.row_and_bit = (args_.row_and_bit & kFewBit) | static_cast<uint32_t>(first);
            WEFT_TRY(RunTiles(tiles, Keys::kSplit, x, count, {partial}));
            WEFT_TRY(Merge(partial, first, count));
        }
        if (encodes) NoteIntegers(e_, result_, codes_);
        return {};
    }

    Status Merge(const Region& partial, int64_t first, int64_t count) {
        MergeArgs args;
        args.partial = partial.address;
        args.sinks = listed() ? list_sinks_ : slopes_ ? 0 : args_.sinks;
        if ((args_.row_and_bit & kFewBit) != 0) {  // other rows are computed in blocks
            args.least_position = static_cast<uint32_t>(Listed());
        }
        args.result = args_.result;
        args.row_sequence = e_.tables().row_sequence;
        args.sequences = args_.sequences;
        args.heads = args_.heads;
        args.value_dims = static_cast<uint32_t>(sizes_.value_dims);
        args.window = args_.window;
        args.chunks = args_.chunks;
        args.first_row = static_cast<uint32_t>(first);
        args.block = args_.block;
        std::vector<Region> writes = {e_.All(result_)};
        const bool encodes = codes_.region.bytes != 0;
        if (encodes) {
            args.codes = codes_.region.address;
            args.scales = codes_.scales;
            writes.push_back(codes_.region);
        }
        return e_.Run("attention_merge", {64, encodes, windows_.stride, windows_.top, ahead_}, args,
                      {args_.heads, count, 1}, {partial}, std::move(writes));
    }

    Emitter& e_;
    AttentionSizes sizes_;
    AttentionArgs args_;
    std::vector<Region> reads_;
    ValueId result_;
    uint64_t list_sinks_ = 0;
    bool slopes_ = false, ahead_ = false;
    PooledWindows windows_;
    IntegerRows codes_;  // of the result; empty: no conversion to int8 here
};

// The arguments from the step and the caches, for both kinds of attention.
AttentionArgs ArgsOf(const Emitter& e, const CachePlace& k_cache, const CachePlace& v_cache) {
    AttentionArgs args;
    args.k_cache = k_cache.address;
    args.v_cache = v_cache.address;
    args.sequences = e.tables().sequences;
    args.pages = e.tables().pages;
    args.kv_heads = static_cast<uint32_t>(k_cache.kv_heads);
    args.page_tokens = static_cast<uint32_t>(k_cache.page_tokens);
    return args;
}

// The positions of a window whose positions the op that makes `chosen` lists; 1: it lists
// positions.
int64_t StrideOfList(const program::Program& program, ValueId chosen) {
    for (const Op& op : program.ops) {
        const auto* const index = op.attributes.If<program::IndexTopK>();
        if (index != nullptr && op.outputs[0] == chosen) return index->stride;
    }
    return 1;
}

struct CopyPagesArgs {
    uint64_t cache = 0, copies = 0;
    uint32_t count = 0, page_units = 0;
};

}  // namespace

Result<Region> PlaceSlopes(Emitter& e, const std::vector<float>& slopes) {
    const auto bytes = std::as_bytes(std::span(slopes));
    return e.Constant(fmt::format("slopes {}", Checksum64(bytes, 0)), bytes.size(),
                      [&](std::span<std::byte> out) { std::ranges::copy(bytes, out.begin()); });
}

Result<uint32_t> CacheType(const Op& op, const CachePlace& cache) {
    const DTypeInfo& info = Info(cache.dtype);
    if (cache.head_dim % info.block_elements != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a {} cache cannot hold heads of {} dims; expected a multiple of {}",
                         OpName(op.kind()), info.name, cache.head_dim, info.block_elements);
    }
    if (cache.dtype == DType::kQ8_0) return 3u;
    if (cache.dtype == DType::kQ5_1) return 4u;
    if (cache.dtype == DType::kQ4_0) return 5u;
    if (const auto type = ElementType(cache.dtype); type.ok()) return type;
    return MakeError(
        ErrorCode::kUnsupported,
        "{}: a cache of {} is not supported by the GPU; use f16, bf16, f32, q8_0, q5_1 or q4_0",
        OpName(op.kind()), info.name);
}

AttentionCaches CachesOf(const Emitter& e, const Op& op) {
    return {e.Cache(op.inputs.end()[-2]), e.Cache(op.inputs.back())};
}

Status Lower(Emitter& e, const Op& op, const program::Attention& a) {
    if (!a.cached(op.inputs.size())) return LowerWithoutCache(e, op, a);
    for (const ValueId id : {op.inputs[0], op.outputs[0]}) WEFT_TRY(CheckWide(e, id));
    const AttentionCaches caches = CachesOf(e, op);
    WEFT_TRY(WriteKeysAndValues(e, op, caches));
    return LowerOverCache(e, op, a);
}

Status LowerOverCache(Emitter& e, const Op& op, const program::Attention& a) {
    const AttentionCaches caches = CachesOf(e, op);
    const CachePlace &k_cache = caches.k, &v_cache = caches.v;
    const ValueId q = op.inputs[0], out = op.outputs[0];
    AttentionArgs args = ArgsOf(e, k_cache, v_cache);
    args.q = e.Address(q);
    args.result = e.Address(out);
    args.heads = static_cast<uint32_t>(a.heads);
    args.first_head = static_cast<uint32_t>(a.first_head);
    args.group = static_cast<uint32_t>(a.group);
    args.first_kv_head = static_cast<uint32_t>(a.first_kv_head);
    args.window = WindowOf(a.window);
    if (WindowOf(a.chunk) != 0) args.window = kInChunks | WindowOf(a.chunk);
    args.scale = a.scale;
    args.soft_cap = a.soft_cap;
    std::vector<Region> reads = {e.All(q), k_cache.All(), v_cache.All()};
    if (a.sinks) {
        args.sinks = e.Address(op.inputs[3]);
        reads.push_back(e.All(op.inputs[3]));
    }
    if (!a.slopes.empty()) {
        WEFT_ASSIGN(const Region slopes, PlaceSlopes(e, a.slopes));
        args.sinks = slopes.address;
    }
    if (a.block != 0) {
        const int64_t blocks = e.Cols(op.inputs[3]) / a.kv_heads;
        args.sinks = e.Address(op.inputs[3]);
        args.window = kListed | static_cast<uint32_t>(blocks * a.block);
        args.block = static_cast<uint32_t>(a.block);
        reads.push_back(e.All(op.inputs[3]));
    }
    AttentionSizes sizes{0, 0, k_cache.head_dim, v_cache.head_dim, k_cache.head_dim};
    WEFT_ASSIGN(sizes.key_type, CacheType(op, k_cache));
    WEFT_ASSIGN(sizes.value_type, CacheType(op, v_cache));
    AttentionLowering lowering(e, sizes, args, std::move(reads), out);
    if (!a.slopes.empty()) lowering.HasSlopes();
    if (a.ahead) lowering.LooksAhead();
    return lowering.Run();
}

Status Lower(Emitter& e, const Op& op, const program::LatentAttention& a) {
    const CachePlace& cache = e.Cache(op.inputs.back());
    for (const ValueId id : {op.inputs[0], op.inputs[1], op.outputs[0]}) WEFT_TRY(CheckWide(e, id));
    if (a.keyed) {
        WEFT_TRY(WriteRows(e, op, op.inputs[2], op.inputs[3], cache, cache, RowKind::kLatent));
    } else {
        WEFT_TRY(WriteRow(e, op, op.inputs[1], cache));
    }
    return LowerOverCache(e, op, a);
}

Status LowerOverCache(Emitter& e, const Op& op, const program::LatentAttention& a) {
    const ValueId q_latent = op.inputs[0], out = op.outputs[0];
    const int64_t rank = e.Cols(op.inputs[a.Latent()]);
    const CachePlace& cache = e.Cache(op.inputs.back());
    AttentionArgs args = ArgsOf(e, cache, cache);
    args.q = e.Address(q_latent);
    args.result = e.Address(out);
    args.heads = args.group = static_cast<uint32_t>(a.heads);
    args.scale = a.scale;
    WEFT_ASSIGN(const uint32_t type, CacheType(op, cache));
    const AttentionSizes sizes{type, type, cache.head_dim, rank, rank};
    std::vector<Region> reads = {e.All(q_latent), cache.All()};
    if (a.keyed) {
        args.q_more = e.Address(op.inputs[1]);
        reads.push_back(e.All(op.inputs[1]));
    }
    if (a.sinks) {
        args.sinks = e.Address(op.inputs[a.Sinks()]);
        reads.push_back(e.All(op.inputs[a.Sinks()]));
    }
    if (!a.Chooses(op.inputs.size())) {
        return AttentionLowering(e, sizes, args, std::move(reads), out).Run();
    }
    const ValueId chosen = op.inputs[a.Chosen()];
    const uint64_t sinks = std::exchange(args.sinks, e.Address(chosen));
    args.window = kListed | static_cast<uint32_t>(e.Cols(chosen));
    const int64_t stride = StrideOfList(e.program(), chosen);
    if (stride != 1) args.block = kPooled | static_cast<uint32_t>(stride);
    reads.push_back(e.All(chosen));
    AttentionLowering lowering(e, sizes, args, std::move(reads), out);
    lowering.ListsBeside(sinks);
    return lowering.Run();
}

Status WriteRow(Emitter& e, const Op& op, ValueId x, const CachePlace& cache, int64_t stride) {
    return WriteRows(e, op, x, x, cache, cache, RowKind::kOne, stride);
}

Status Lower(Emitter& e, const Op& op, const program::WindowAttention& a) {
    const ValueId q = op.inputs[0], sinks = op.inputs[2], out = op.outputs[0];
    for (const ValueId id : {q, out}) WEFT_TRY(CheckWide(e, id));
    const bool pools = a.stride != 0;
    const CachePlace& windows = e.Cache(op.inputs.back());
    const CachePlace& cache = pools ? CachesOf(e, op).k : windows;
    WEFT_TRY(WriteRow(e, op, op.inputs[1], cache));
    if (pools) WEFT_TRY(WriteRow(e, op, op.inputs[3], windows, a.stride));
    AttentionArgs args = ArgsOf(e, cache, windows);
    args.q = e.Address(q);
    args.result = e.Address(out);
    args.sinks = e.Address(sinks);
    args.heads = args.group = static_cast<uint32_t>(a.heads);
    args.window = WindowOf(a.window);
    args.scale = a.scale;
    WEFT_ASSIGN(const uint32_t type, CacheType(op, cache));
    const int64_t width = cache.head_dim;
    std::vector<Region> reads = {e.All(q), e.All(sinks), cache.All(), windows.All()};
    PooledWindows pooled{a.stride};
    if (a.chooses) {
        pooled.top = e.Cols(op.inputs[4]);
        args.q_more = e.Address(op.inputs[4]);
        reads.push_back(e.All(op.inputs[4]));
    }
    AttentionLowering lowering(e, {type, type, width, width, width}, args, std::move(reads), out);
    lowering.Pools(pooled);
    return lowering.Run();
}

Status LowerPageCopies(Emitter& e, std::span<const CachePlace> caches, int64_t count) {
    for (const CachePlace& cache : caches) {
        const int64_t bytes = cache.PageBytes();
        const int64_t unit = bytes % 16 == 0 ? 16 : bytes % 4 == 0 ? 4 : 2;
        CopyPagesArgs args;
        args.cache = cache.address;
        args.copies = e.tables().copies;
        args.count = static_cast<uint32_t>(count);
        args.page_units = static_cast<uint32_t>(bytes / unit);
        const int64_t groups = std::min(CeilDiv(bytes / unit, 64), kMostWalkGroups);
        WEFT_TRY(
            e.Run("copy_pages", {64, unit}, args, {groups, 1, 1}, {cache.All()}, {cache.All()}));
    }
    return {};
}

}  // namespace weft::backend::on_gpu
