// The indexer: a row's query heads times tiles of 64 cached index keys, which are converted to
// float once for all heads. Dot products keep several heads and keys in registers; the heads of a
// position are summed in order, so that a score's bits depend only on its row and position.

#include <algorithm>

#include "kernels/vector/cache_rows.h"

namespace weft::kernels::WEFT_SET {
namespace {

class IndexTiles {
  public:
    IndexTiles(const IndexRows& rows, int part)
        : rows_(rows),
          cols_((rows.dim + 15) / 16 * 16),
          padded_((rows.heads + kHeads - 1) / kHeads * kHeads),
          // After the scores of a row, which RunIndexChoose keeps in the same scratch.
          queries_(rows.scratch + part * rows.scratch_floats + (rows.positions + 15) / 16 * 16),
          keys_(queries_ + padded_ * cols_),
          dots_(keys_ + kLatentTile * cols_) {}

    // Scores of positions [begin, begin + count) for a row.
    void Score(const Sequence& sequence, int64_t row, int64_t begin, int64_t count, float* out) {
        if (row != row_) TakeQuery(row);
        TakeKeys(sequence, begin, count);
        for (int64_t h = 0; h < padded_; h += kHeads) Dots(h);
        const float* weights = rows_.weights + row * rows_.heads;
        for (int64_t k = 0; k < count; k += Simd::kLanes) {
            Float sum = Simd::Zero();
            for (int64_t h = 0; h < rows_.heads; ++h) {
                const Float dot = Simd::Load(dots_ + h * kLatentTile + k);
                sum = Simd::Fma(Simd::Set(weights[h]), Simd::Max(dot, Simd::Zero()), sum);
            }
            Simd::StoreFirst(out + k, sum, std::min<int64_t>(count - k, Simd::kLanes));
        }
    }

    // The highest dot product per block of positions [begin, begin + count), for each head.
    void ScoreBlocks(const Sequence& sequence, int64_t row, int64_t begin, int64_t count,
                     int64_t block, float* out, int64_t pitch) {
        if (row != row_) TakeQuery(row);
        for (int64_t first = 0; first < count; first += kLatentTile) {
            const int64_t keys = std::min(kLatentTile, count - first);
            TakeKeys(sequence, begin + first, keys);
            for (int64_t h = 0; h < padded_; h += kHeads) Dots(h);
            for (int64_t key = 0; key < keys;) {
                const int64_t number = (first + key) / block;
                const int64_t end = std::min(keys, (number + 1) * block - first);
                for (int64_t h = 0; h < rows_.heads; ++h) {
                    const float* dots = dots_ + h * kLatentTile;
                    const float most = *std::max_element(dots + key, dots + end);
                    float& best = out[h * pitch + number];
                    best = first + key == number * block ? most : std::max(best, most);
                }
                key = end;
            }
        }
    }

  private:
    static constexpr int kHeads = Simd::kRegisters == 32 ? 4 : 2;  // in registers
    static constexpr int kKeys = 4;

    void TakeQuery(int64_t row) {
        row_ = row;
        std::fill_n(queries_, padded_ * cols_, 0.0f);
        for (int64_t h = 0; h < rows_.heads; ++h) {
            std::copy_n(rows_.q + (row * rows_.heads + h) * rows_.dim, rows_.dim,
                        queries_ + h * cols_);
        }
    }

    void TakeKeys(const Sequence& sequence, int64_t begin, int64_t count) {
        const KvCache& cache = rows_.cache;
        for (int64_t i = 0; i < count; ++i) {
            float* to = keys_ + i * cols_;
            std::fill(to + rows_.dim / 16 * 16, to + cols_, 0.0f);
            WidenRow(cache.dtype, PagedRow(cache, sequence, rows_.windows.Row(begin + i)),
                     rows_.dim, to);
        }
        std::fill(keys_ + count * cols_, keys_ + kLatentTile * cols_, 0.0f);
    }

    // Dot products of heads [head, head + kHeads) with the tile.
    void Dots(int64_t head) {
        for (int64_t k = 0; k < kLatentTile; k += kKeys) {
            Float dots[kHeads][kKeys];
            for (auto& row : dots) std::fill(row, row + kKeys, Simd::Zero());
            for (int64_t d = 0; d < cols_; d += Simd::kLanes) {
                Float key[kKeys];
#pragma GCC unroll 4
                for (int c = 0; c < kKeys; ++c) key[c] = Simd::Load(keys_ + (k + c) * cols_ + d);
#pragma GCC unroll 4
                for (int r = 0; r < kHeads; ++r) {
                    const Float query = Simd::Load(queries_ + (head + r) * cols_ + d);
#pragma GCC unroll 4
                    for (int c = 0; c < kKeys; ++c) {
                        dots[r][c] = Simd::Fma(query, key[c], dots[r][c]);
                    }
                }
            }
            for (int r = 0; r < kHeads; ++r) {
                for (int c = 0; c < kKeys; ++c) {
                    dots_[(head + r) * kLatentTile + k + c] = Simd::Sum(dots[r][c]);
                }
            }
        }
    }

    const IndexRows& rows_;
    const int64_t cols_, padded_;
    float* const queries_;  // [padded_][cols_]
    float* const keys_;     // [kLatentTile][cols_]
    float* const dots_;     // [padded_][kLatentTile]
    int64_t row_ = -1;      // whose query is loaded
};

void IndexScores(const IndexScoresArgs& args, int part, int parts) {
    IndexTiles tiles(args.rows, part);
    RunIndexScores(args, part, parts, [&](auto&&... of) { tiles.Score(of...); });
}

void IndexChoose(const IndexChooseArgs& args, int part, int parts) {
    IndexTiles tiles(args.rows, part);
    RunIndexChoose(args, part, parts, [&](auto&&... of) { tiles.Score(of...); });
}

void BlockScores(const BlockScoresArgs& args, int part, int parts) {
    IndexTiles tiles(args.rows, part);
    RunBlockScores(args, part, parts, [&](auto&&... of) { tiles.ScoreBlocks(of...); });
}

void BlockChoose(const BlockChooseArgs& args, int part, int parts) {
    IndexTiles tiles(args.scores.rows, part);
    RunBlockChoose(args, part, parts, [&](auto&&... of) { tiles.ScoreBlocks(of...); });
}

}  // namespace

void SetSparse(SparseKernels& table) {
    table = {IndexScores, IndexChoose,    SparseLatent, BlockScores,
             BlockChoose, BlockAttention, AttendWindows};
}

}  // namespace weft::kernels::WEFT_SET
