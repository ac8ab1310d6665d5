// Latent attention: blocks of queries (heads of a row, and rows) times tiles of 64 cached rows,
// which are converted to float once per block.
//
// Scores are dot products along the row, sums run along the latent; both keep several queries and
// rows in registers. The softmax is online (Milakov and Gimelshein 2018), tile by tile from the
// first position, so that a query's bits depend only on its own keys.
#include <algorithm>
#include <limits>

#include "kernels/vector/cache_rows.h"
#include "kernels/vector/math.h"

namespace weft::kernels::WEFT_SET {
namespace {

class LatentTiles {
  public:
    LatentTiles(const LatentAttentionArgs& args, int part)
        : args_(args),
          cols_(PadUp(args.rank + args.rope)),
          sum_cols_(PadUp(args.rank)),
          queries_(args.scratch + part * args.scratch_floats),
          keys_(queries_ + kLatentQueries * cols_),
          scores_(keys_ + kLatentTile * cols_),
          sums_(scores_ + kLatentQueries * kLatentTile),
          peak_(sums_ + kLatentQueries * sum_cols_),
          total_(peak_ + kLatentQueries) {}

    void Run(int part, int parts) {
        for (const Sequence& sequence : args_.sequences) {
            RunRows(sequence, sequence.row_count, part, parts);
        }
    }

    // Attention to `windows`, in addition to args_' cache; blocks do not span rows.
    void RunWindows(const WindowAttentionArgs& windows, int part, int parts) {
        const int64_t rows = CountRows(args_.sequences);
        const int64_t block = std::min(BlockOf(rows * args_.heads, parts), args_.heads);
        const int64_t blocks = (args_.heads + block - 1) / block;  // per row
        int64_t turn = 0;
        ForIndexRows(args_.sequences, [&](int64_t, const Sequence& sequence, int64_t row,
                                          int64_t positions) {
            const WindowRows seen(windows, sequence, row, positions - 1);
            seen_ = &seen;
            listed_ = seen.count();
            for (int64_t i = 0; i < blocks; ++i) {
                if (turn++ % parts != part) continue;
                const int64_t head = i * block, first = row - sequence.row_begin;
                Block(sequence, first * args_.heads + head, std::min(block, args_.heads - head));
            }
            seen_ = nullptr;
        });
    }

    // A row that sees no more positions than are chosen attends to all of them, as in Run; for each
    // other row, blocks do not span rows. A row's bits are the same in both cases.
    void RunChosen(const int32_t* chosen, int64_t top, int part, int parts) {
        for (const Sequence& sequence : args_.sequences) {
            const int64_t dense =
                std::clamp<int64_t>(top - sequence.position, 0, sequence.row_count);
            RunRows(sequence, dense, part, parts);
            const int64_t rows = sequence.row_count - dense;
            if (rows == 0) continue;
            const int64_t block = std::min(BlockOf(rows * args_.heads, parts), args_.heads);
            const int64_t blocks = (args_.heads + block - 1) / block;  // per row
            for (int64_t at = part; at < rows * blocks; at += parts) {
                const int64_t row = dense + at / blocks, head = at % blocks * block;
                list_ = chosen + (sequence.row_begin + row) * top;
                for (listed_ = top; list_[listed_ - 1] < 0;) --listed_;
                Block(sequence, row * args_.heads + head, std::min(block, args_.heads - head));
            }
            list_ = nullptr;
        }
    }

  private:
    static constexpr int kRows = Simd::kRegisters == 32 ? 4 : 2;  // queries in registers
    static constexpr int kColumns = 4;                            // keys, or vectors of sums
    static constexpr float kLog2E = 1.44269504088896341f;
    static int64_t PadUp(int64_t n) { return (n + 15) / 16 * 16; }

    // Queries per block, if `parts` parts divide `units` queries.
    static int64_t BlockOf(int64_t units, int parts) {
        const int64_t each = (units + parts - 1) / parts;
        return std::min<int64_t>(kLatentQueries, (each + kRows - 1) / kRows * kRows);
    }

    // Computes the first `rows` rows of a sequence.
    void RunRows(const Sequence& sequence, int64_t rows, int part, int parts) {
        const int64_t units = rows * args_.heads, block = BlockOf(units, parts);
        // Later rows have more keys, so blocks are dealt out in turn.
        for (int64_t at = part * block; at < units; at += parts * block) {
            Block(sequence, at, std::min(block, units - at));
        }
    }

    // Queries [first, first + count) of a sequence, where a query is a head of a row.
    void Block(const Sequence& sequence, int64_t first, int64_t count) {
        const int64_t padded = (count + kRows - 1) / kRows * kRows;
        TakeQueries(sequence, first, count, padded);
        std::fill_n(sums_, padded * sum_cols_, 0.0f);
        std::fill_n(peak_, padded, -std::numeric_limits<float>::infinity());
        std::fill_n(total_, padded, 0.0f);
        for (int64_t q = 0; args_.sinks != nullptr && q < count; ++q) {
            peak_[q] = args_.sinks[(first + q) % args_.heads] * kLog2E;
            total_[q] = 1;
        }
        const int64_t most = Keys(sequence, first + count - 1);
        for (int64_t begin = 0; begin < most; begin += kLatentTile) {
            const int64_t here = std::min(kLatentTile, most - begin);
            const int64_t rows = (here + kColumns - 1) / kColumns * kColumns;
            TakeKeys(sequence, begin, here, rows);
            for (int64_t q = 0; q < padded; q += kRows) Scores(q, rows);
            for (int64_t q = 0; q < padded; ++q) {
                const int64_t keys = q < count ? Keys(sequence, first + q) - begin : 0;
                Weigh(q, std::clamp<int64_t>(keys, 0, here));
            }
            for (int64_t q = 0; q < padded; q += kRows) AddValues(q, rows);
        }
        for (int64_t q = 0; q < count; ++q) {
            float* out = args_.out + (sequence.row_begin * args_.heads + first + q) * args_.rank;
            const float inverse = 1.0f / total_[q];
            for (int64_t d = 0; d < args_.rank; ++d) out[d] = sums_[q * sum_cols_ + d] * inverse;
        }
    }

    int64_t Keys(const Sequence& sequence, int64_t unit) const {
        if (list_ != nullptr || seen_ != nullptr) return listed_;
        return sequence.position + unit / args_.heads + 1;
    }

    // Scales queries so that the softmax uses powers of two.
    void TakeQueries(const Sequence& sequence, int64_t first, int64_t count, int64_t padded) {
        const float scale = args_.scale * kLog2E;
        std::fill_n(queries_, padded * cols_, 0.0f);
        for (int64_t q = 0; q < count; ++q) {
            const int64_t at = sequence.row_begin * args_.heads + first + q;
            float* to = queries_ + q * cols_;
            const float* latent = args_.q_latent + at * args_.rank;
            for (int64_t d = 0; d < args_.rank; ++d) to[d] = latent[d] * scale;
            if (args_.rope == 0) continue;
            const float* key = args_.q_key + at * args_.rope;
            for (int64_t d = 0; d < args_.rope; ++d) to[args_.rank + d] = key[d] * scale;
        }
    }

    // Loads cached rows [begin, begin + count) (of the list, if there is one) as floats, padded
    // with zeros to `rows`.
    void TakeKeys(const Sequence& sequence, int64_t begin, int64_t count, int64_t rows) {
        const KvCache& cache = args_.cache;
        const int64_t width = args_.rank + args_.rope;
        for (int64_t i = 0; i < count; ++i) {
            const int64_t position = list_ == nullptr ? begin + i : list_[begin + i];
            const std::byte* from =
                seen_ != nullptr ? seen_->At(begin + i) : PagedRow(cache, sequence, position);
            float* to = keys_ + i * cols_;
            std::fill(to + width / 16 * 16, to + cols_, 0.0f);
            WidenRow(cache.dtype, from, width, to);
        }
        std::fill(keys_ + count * cols_, keys_ + rows * cols_, 0.0f);
    }

    // scores[q ...][0, keys) of kRows queries.
    void Scores(int64_t q, int64_t keys) {
        for (int64_t k = 0; k < keys; k += kColumns) {
            Float dots[kRows][kColumns];
            for (auto& row : dots) std::fill(row, row + kColumns, Simd::Zero());
            for (int64_t d = 0; d < cols_; d += Simd::kLanes) {
                Float key[kColumns];
#pragma GCC unroll 4
                for (int c = 0; c < kColumns; ++c) key[c] = Simd::Load(keys_ + (k + c) * cols_ + d);
#pragma GCC unroll 4
                for (int r = 0; r < kRows; ++r) {
                    const Float query = Simd::Load(queries_ + (q + r) * cols_ + d);
#pragma GCC unroll 4
                    for (int c = 0; c < kColumns; ++c) {
                        dots[r][c] = Simd::Fma(query, key[c], dots[r][c]);
                    }
                }
            }
            for (int r = 0; r < kRows; ++r) {
                for (int c = 0; c < kColumns; ++c) {
                    scores_[(q + r) * kLatentTile + k + c] = Simd::Sum(dots[r][c]);
                }
            }
        }
    }

    // Turns scores of the first `keys` of a tile into weights (zeros for the rest) and rescales the
    // sums.
    void Weigh(int64_t q, int64_t keys) {
        float* scores = scores_ + q * kLatentTile;
        if (keys <= 0) return std::fill_n(scores, kLatentTile, 0.0f), void();
        std::fill(scores + keys, scores + kLatentTile, -std::numeric_limits<float>::infinity());
        Float most = Simd::Set(peak_[q]);
        for (int64_t k = 0; k < kLatentTile; k += Simd::kLanes) {
            most = Simd::Max(most, Simd::Load(scores + k));
        }
        const float above = Simd::Largest(most);
        Float sum = Simd::Zero();
        for (int64_t k = 0; k < kLatentTile; k += Simd::kLanes) {
            // Exp2 is at least 2^-126; weights beyond the keys must be exactly zero.
            const Float weight = Simd::Select(
                std::clamp<int64_t>(keys - k, 0, Simd::kLanes),
                Exp2(Simd::Sub(Simd::Load(scores + k), Simd::Set(above))), Simd::Zero());
            Simd::Store(scores + k, weight);
            sum = Simd::Add(sum, weight);
        }
        if (above > peak_[q]) Fade(q, above);
        total_[q] += Simd::Sum(sum);
    }

    void Fade(int64_t q, float above) {
        float one[Simd::kLanes];
        Simd::Store(one, Exp2(Simd::Set(peak_[q] - above)));
        const float fade = total_[q] == 0 ? 0.0f : one[0];
        total_[q] *= fade;
        const Float factor = Simd::Set(fade);
        float* sums = sums_ + q * sum_cols_;
        for (int64_t d = 0; d < sum_cols_; d += Simd::kLanes) {
            Simd::Store(sums + d, Simd::Mul(Simd::Load(sums + d), factor));
        }
        peak_[q] = above;
    }

    // sums[q ...] += weights times the latents of the tile.
    void AddValues(int64_t q, int64_t keys) {
        constexpr int64_t kStep = kColumns * Simd::kLanes;
        int64_t d = 0;
        for (; d + kStep <= sum_cols_; d += kStep) AddColumns<kColumns>(q, keys, d);
        for (; d < sum_cols_; d += Simd::kLanes) AddColumns<1>(q, keys, d);
    }

    template <int kVectors>
    void AddColumns(int64_t q, int64_t keys, int64_t d) {
        Float sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r) {
            for (int v = 0; v < kVectors; ++v) {
                sums[r][v] = Simd::Load(sums_ + (q + r) * sum_cols_ + d + v * Simd::kLanes);
            }
        }
        for (int64_t k = 0; k < keys; ++k) {
            Float values[kVectors];
#pragma GCC unroll 4
            for (int v = 0; v < kVectors; ++v) {
                values[v] = Simd::Load(keys_ + k * cols_ + d + v * Simd::kLanes);
            }
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) {
                const Float weight = Simd::Set(scores_[(q + r) * kLatentTile + k]);
#pragma GCC unroll 4
                for (int v = 0; v < kVectors; ++v) {
                    sums[r][v] = Simd::Fma(weight, values[v], sums[r][v]);
                }
            }
        }
        for (int r = 0; r < kRows; ++r) {
            for (int v = 0; v < kVectors; ++v) {
                Simd::Store(sums_ + (q + r) * sum_cols_ + d + v * Simd::kLanes, sums[r][v]);
            }
        }
    }

    const LatentAttentionArgs& args_;
    const int64_t cols_, sum_cols_;
    float* const queries_;  // [kLatentQueries][cols_]
    float* const keys_;     // [kLatentTile][cols_]
    float* const scores_;   // [kLatentQueries][kLatentTile]
    float* const sums_;     // [kLatentQueries][sum_cols_]
    float* const peak_;
    float* const total_;
    const int32_t* list_ = nullptr;     // positions that a row attends to; null: all
    const WindowRows* seen_ = nullptr;  // or the cache rows
    int64_t listed_ = 0;
};

}  // namespace

void SparseLatent(const SparseLatentArgs& args, int part, int parts) {
    LatentTiles(args.all, part).RunChosen(args.chosen, args.top, part, parts);
}

void AttendWindows(const WindowAttentionArgs& args, int part, int parts) {
    const LatentAttentionArgs all{
        args.sequences, args.q,     nullptr,      args.heads,          args.width, 0,
        args.cache,     args.scale, args.scratch, args.scratch_floats, args.out,   args.sinks};
    LatentTiles(all, part).RunWindows(args, part, parts);
}

void SetLatent(Kernels& table) {
    table.latent_attention = [](const LatentAttentionArgs& args, int part, int parts) {
        LatentTiles(args, part).Run(part, parts);
    };
}

}  // namespace weft::kernels::WEFT_SET
