#include "backend/gpu/lower/attention_matrix.h"

#include <algorithm>
#include <bit>
#include <span>

#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

constexpr int64_t kF32 = 0, kF16 = 2;  // numbers of types in cache.glsl
constexpr int64_t kSide = 16;          // of a fragment
// Fragments of sums, and of held queries, in a subgroup's registers.
constexpr int64_t kMostSums = 8, kMostHeld = 8;
constexpr int64_t kLeastSubgroups = 4, kMostSpan = 64;
constexpr int64_t kMostLanes = 8;  // of a pair in the softmax
constexpr int64_t kFewSlices = 4;  // more slices have too many barriers

// Pairs and keys of a tile, best first. More pairs read keys and values less often; more keys need
// fewer barriers.
struct Tile {
    int64_t pairs, keys;
};
constexpr Tile kTiles[] = {{64, 64}, {32, 64}, {64, 32}, {32, 32}, {16, 64}, {16, 32}};
// For subgroups of 64 (AMD's GPUs): a workgroup uses at most half of the shared memory, so that
// each SIMD has four subgroups to run. They load a matrix of rows element by element.
constexpr uint32_t kLargeSubgroup = 64;
constexpr Tile kSmallTiles[] = {{64, 64}, {64, 32}, {32, 32}, {16, 32}};

int64_t FragmentsIn(int64_t dims) {
    return (dims + kSide - 1) / kSide;
}
// Fragments per slice if `all` are divided into slices of at most `most`.
int64_t EachOf(int64_t all, int64_t most) {
    const int64_t slices = (all + most - 1) / most;
    return (all + slices - 1) / slices;
}

// Shared memory as attention_matrix.comp declares it.
int64_t SharedBytes(const AttentionSizes& sizes, const AttentionFragments& f, uint32_t subgroup,
                    bool emulated) {
    const int64_t key_fragments = FragmentsIn(sizes.key_dims), most = f.slice / kSide;
    const int64_t values = EachOf(FragmentsIn(sizes.value_dims), most);
    const int64_t slice = std::max(EachOf(key_fragments, most), values);
    const int64_t by_keys = f.keys * (slice * 4 + 2);
    const int64_t by_dims = f.by_dims ? values * kSide * (f.keys / 4 + 2) : 0;
    const int64_t tile = std::max(by_keys, by_dims) + f.pairs * (f.keys / 4 + 2);
    const int64_t queries = f.pairs * (key_fragments * 4 + 2);
    const int64_t halves = f.held && !emulated ? std::max(tile, queries) : tile + queries;
    const int64_t floats = f.pairs * (std::max(f.keys, kSide * f.across) / 4 + 2);
    const int64_t lanes = std::min(subgroup * f.across / kSide, kMostLanes);
    const bool halves_only = sizes.key_type == kF16 && sizes.value_type == kF16;
    const int64_t scales = halves_only ? 1 : 2 * f.keys;
    const int64_t words = 2 * f.keys + scales + f.pairs * (lanes + 1) + 2 + f.pairs / kSide;
    constexpr int64_t kAlignment = 64;
    return halves * 8 + floats * 16 + words * 4 + kAlignment;
}

// Limits of a workgroup.
struct Limits {
    int64_t slices = 0, shared_bytes = 0;
};

// A workgroup with the largest slices that fit.
std::optional<AttentionFragments> Fitting(const gpu::Description& gpu, const AttentionSizes& sizes,
                                          Tile tile, const Limits& limits, bool emulated) {
    AttentionFragments f{.pairs = tile.pairs, .keys = tile.keys};
    f.by_dims = emulated || gpu.subgroup >= kLargeSubgroup;
    const int64_t of_keys = FragmentsIn(sizes.key_dims), of_values = FragmentsIn(sizes.value_dims);
    const int64_t down = tile.pairs / kSide;
    const auto columns = static_cast<uint64_t>((of_values + kMostSums - 1) / kMostSums);
    f.across = std::max({static_cast<int64_t>(std::bit_ceil(columns)), kLeastSubgroups / down,
                         kSide / int64_t{gpu.subgroup}});
    if (f.Invocations(gpu.subgroup) > gpu.most_invocations) return std::nullopt;
    const int64_t most = std::max(of_keys, of_values);
    for (int64_t slices = 1; slices <= std::min(most, limits.slices); ++slices) {
        f.slice = (most + slices - 1) / slices * kSide;
        f.held = of_keys * kSide <= f.slice && of_keys <= kMostHeld;
        if (SharedBytes(sizes, f, gpu.subgroup, emulated) <= limits.shared_bytes) return f;
    }
    return std::nullopt;
}

// The best of the tiles that fit; among tiles with equal keys, the one with the fewest pairs that
// hold `wanted` pairs.
std::optional<AttentionFragments> BestOf(const gpu::Description& gpu, const AttentionSizes& sizes,
                                         int64_t wanted, bool emulated, std::span<const Tile> tiles,
                                         const Limits& limits) {
    std::optional<AttentionFragments> best;
    for (const Tile& tile : tiles) {
        const bool fewer = best && tile.pairs < best->pairs && best->pairs >= 2 * wanted;
        if (best && !(fewer && tile.keys == best->keys)) continue;
        if (const auto found = Fitting(gpu, sizes, tile, limits, emulated)) best = found;
    }
    return best;
}

}  // namespace

std::optional<AttentionFragments> FragmentsOf(const gpu::Description& gpu,
                                              const AttentionSizes& sizes, int64_t wanted,
                                              bool emulated) {
    if (sizes.key_type == kF32 || sizes.value_type == kF32) return std::nullopt;
    const int64_t shared = gpu.shared_bytes;
    if (gpu.subgroup >= kLargeSubgroup) {
        const auto small = BestOf(gpu, sizes, wanted, emulated, kSmallTiles, {1, shared / 2});
        if (small) return small;
    }
    if (const auto few = BestOf(gpu, sizes, wanted, emulated, kTiles, {kFewSlices, shared})) {
        return few;
    }
    return BestOf(gpu, sizes, wanted, emulated, kTiles, {sizes.key_dims, shared});
}

std::optional<AttentionFragments> StepFragments(const Emitter& e, const AttentionSizes& sizes,
                                                int64_t wanted) {
    using Matrix = Arithmetic::Matrix;
    const Matrix matrix = e.arithmetic().matrix;
    if (matrix == Matrix::kNone || e.reference() || e.shape().rows <= e.arithmetic().matvec_rows) {
        return std::nullopt;
    }
    const bool emulated = matrix == Matrix::kEmulated;
    if (shaders::Find(emulated ? "attention_matrix_emulated" : "attention_matrix").empty()) {
        return std::nullopt;
    }
    return FragmentsOf(e.gpu(), sizes, wanted, emulated);
}

int64_t SpanOf(const AttentionFragments& fragments, int64_t group) {
    int64_t span = kBlockRows;
    while (span < kMostSpan && span * group % fragments.pairs != 0) span *= 2;
    return span;
}

}  // namespace weft::backend::on_gpu
