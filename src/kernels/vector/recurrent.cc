// The causal convolution, the gated delta rule and SSD, over blocks of kStateColumns columns, which
// are lanes: no sum crosses lanes, so all sets give the same bits.
//
// For keys of 128, a block of the delta rule's state is 8 KiB, and stays in L1 while the rows of a
// sequence are applied to it. Each row reads it twice (for k^T S, then to update it and for q^T S)
// and writes it once, from slot to slot, so that no state is copied.
#include <algorithm>
#include <cstring>

#include "kernels/recurrent.h"
#include "kernels/vector/math.h"

namespace weft::kernels::WEFT_SET {
namespace {

constexpr int kVectors = kStateColumns / Simd::kLanes;  // per block
static_assert(kStateColumns % Simd::kLanes == 0);

inline int64_t LanesOf(int64_t width, int vector) {
    return std::clamp<int64_t>(width - vector * Simd::kLanes, 0, Simd::kLanes);
}
template <bool kWhole>
WEFT_INLINE Float LoadPart(const float* from, int64_t width, int vector) {
    if constexpr (kWhole) return Simd::Load(from + vector * Simd::kLanes);
    const int64_t lanes = LanesOf(width, vector);
    return lanes == 0 ? Simd::Zero() : Simd::LoadUpTo(from + vector * Simd::kLanes, lanes);
}
template <bool kWhole>
WEFT_INLINE void StorePart(float* to, Float x, int64_t width, int vector) {
    if constexpr (kWhole) return Simd::Store(to + vector * Simd::kLanes, x);
    const int64_t lanes = LanesOf(width, vector);
    if (lanes > 0) Simd::StoreUpTo(to + vector * Simd::kLanes, x, lanes);
}

// ---- Convolution --------------------------------------------------------------------------------

// `width` columns from `first` on.
class ConvColumns {
  public:
    ConvColumns(const CausalConvArgs& args, int64_t first)
        : args_(args), first_(first), width_(std::min(kStateColumns, args.cols - first)) {
        for (int64_t j = 0; j < args.taps; ++j) {
            for (int64_t c = 0; c < width_; ++c) {
                taps_[j * kStateColumns + c] = args.weight[(first + c) * args.taps + j];
            }
        }
    }

    void Run(const StateSequence& sequence) {
        const int64_t kept = args_.taps - 1;
        std::fill_n(before_, kept * kStateColumns, 0.0f);
        for (int64_t i = 0; i < kept && sequence.from >= 0; ++i) {
            std::memcpy(before_ + i * kStateColumns,
                        args_.state.At(sequence.from) + i * args_.cols + first_, Bytes());
        }
        const int32_t begin = sequence.row_begin;
        const auto row_before = [&](int64_t at, int64_t back) {
            const int64_t row = at - begin - back;
            if (row < 0) return static_cast<const float*>(before_ + (row + kept) * kStateColumns);
            return args_.inner == nullptr ? args_.x + (begin + row) * args_.cols + first_
                                          : products_ + row % args_.taps * kStateColumns;
        };
        const auto on_row = [&](int64_t at, int32_t slot) {
            if (args_.inner != nullptr) Multiply(at, (at - begin) % args_.taps);
            const float* rows[kMostTaps];
            for (int64_t j = 0; j <= kept; ++j) rows[j] = row_before(at, kept - j);
            width_ == kStateColumns ? Row<true>(rows, at) : Row<false>(rows, at);
            for (int64_t i = 0; i < kept && slot >= 0; ++i) {
                std::memcpy(StateRow(slot, i), rows[i + 1], Bytes());
            }
        };
        ForStateRows(sequence, on_row, [&](int32_t from, int32_t to) {
            for (int64_t i = 0; i < kept; ++i) {
                std::memcpy(StateRow(to, i), StateRow(from, i), Bytes());
            }
        });
    }

  private:
    size_t Bytes() const { return static_cast<size_t>(width_) * sizeof(float); }
    float* StateRow(int32_t slot, int64_t i) const {
        return args_.state.At(slot) + i * args_.cols + first_;
    }

    // x * inner of row `at`.
    void Multiply(int64_t at, int64_t to) {
        const int64_t from = at * args_.cols + first_;
        for (int v = 0; v < kVectors; ++v) {
            const Float x = LoadPart<false>(args_.x + from, width_, v);
            StorePart<false>(products_ + to * kStateColumns,
                             Simd::Mul(x, LoadPart<false>(args_.inner + from, width_, v)), width_,
                             v);
        }
    }

    template <bool kWhole>
    void Row(const float* const* rows, int64_t at) {
        const int64_t to = at * args_.cols + first_;
        for (int v = 0; v < kVectors; ++v) {
            auto sum = args_.bias == nullptr ? Simd::Zero()
                                             : LoadPart<kWhole>(args_.bias + first_, width_, v);
            for (int64_t j = 0; j < args_.taps; ++j) {
                const Float tap = Simd::Load(taps_ + j * kStateColumns + v * Simd::kLanes);
                sum = Simd::Fma(tap, LoadPart<kWhole>(rows[j], width_, v), sum);
            }
            if (args_.silu) {
                const Float below = Simd::Add(Simd::Set(1.0f), Exp(Simd::Sub(Simd::Zero(), sum)));
                sum = Simd::Div(sum, below);
            }
            if (args_.outer != nullptr) {
                sum = Simd::Mul(sum, LoadPart<kWhole>(args_.outer + to, width_, v));
            }
            StorePart<kWhole>(args_.y + to, sum, width_, v);
        }
    }

    const CausalConvArgs& args_;
    const int64_t first_, width_;
    float taps_[kMostTaps * kStateColumns] = {};
    float before_[kMostTaps * kStateColumns] = {};    // rows before the sequence's first
    float products_[kMostTaps * kStateColumns] = {};  // of the last `taps` rows, as a ring
};

void CausalConv(const CausalConvArgs& args, int part, int parts) {
    const Range share = Share(args.cols, kStateColumns, part, parts);
    for (int64_t first = share.begin; first < share.end; first += kStateColumns) {
        ConvColumns columns(args, first);
        for (const StateSequence& sequence : args.sequences) columns.Run(sequence);
    }
}

// ---- Delta rule ---------------------------------------------------------------------------------

constexpr int kSums = 4;  // parallel partial sums over the rows of a block, to hide the latency of
                          // additions

class DeltaColumns {
  public:
    DeltaColumns(const DeltaRuleArgs& args, int part)
        : args_(args),
          padded_((args.key_dim + 15) / 16 * 16),
          state_(args.scratch + part * args.scratch_floats),
          q_(state_ + padded_ * kStateColumns),
          k_(q_ + padded_),
          faded_(k_ + padded_),
          fade_(faded_ + padded_) {}

    // Block `block` of a head's columns.
    void Run(int64_t head, int64_t block) {
        head_ = head;
        first_ = block * kStateColumns;
        width_ = std::min(kStateColumns, args_.value_dim - first_);
        begin_ = head * args_.key_dim * args_.value_dim + first_ * args_.key_dim;
        const size_t bytes = static_cast<size_t>(args_.key_dim * width_) * sizeof(float);
        for (const StateSequence& sequence : args_.sequences) {
            const float* now = state_;
            if (sequence.from >= 0) {
                now = args_.state.At(sequence.from) + begin_;
            } else {
                std::fill_n(state_, args_.key_dim * width_, 0.0f);
            }
            const auto on_row = [&](int64_t at, int32_t slot) {
                float* next = slot >= 0 ? args_.state.At(slot) + begin_ : state_;
                Prepare(at);
                width_ == kStateColumns ? Row<true>(at, now, next) : Row<false>(at, now, next);
                now = next;
            };
            ForStateRows(sequence, on_row, [&](int32_t from, int32_t to) {
                std::memcpy(args_.state.At(to) + begin_, args_.state.At(from) + begin_, bytes);
            });
        }
    }

  private:
    void Prepare(int64_t at) {
        const int64_t d = args_.key_dim, key = args_.KeyHeadOf(head_);
        const float* q = args_.q + (at * args_.key_heads + key) * d;
        const float* k = args_.k + (at * args_.key_heads + key) * d;
        const float* fade = args_.fade + (at * args_.heads + head_) * args_.each;
        const auto query_scale = Simd::Set(args_.query_scale),
                   key_scale = Simd::Set(args_.key_scale);
        const bool by_channel = args_.each > 1;
        ForElements(0, d, [&](auto load, auto store) {
            const Float own = by_channel ? load(fade) : Simd::Set(*fade);
            const Float scaled = Simd::Mul(load(k), key_scale);
            store(q_, Simd::Mul(load(q), query_scale));
            store(k_, scaled);
            store(faded_, Simd::Mul(scaled, own));
            store(fade_, own);
        });
    }

    // One row: updates `from` to `to`, which may be the same.
    template <bool kWhole>
    void Row(int64_t at, const float* from, float* to) {
        const int64_t d = args_.key_dim, cell = at * args_.heads + head_;
        const int64_t width = kWhole ? kStateColumns : width_;
        Float sums[kSums][kVectors], change[kVectors];
        Clear(sums);
        EachRow(d, [&](int64_t i, int sum) {
            const Float k = Simd::Set(faded_[i]);
            for (int v = 0; v < kVectors; ++v) {
                sums[sum][v] =
                    Simd::Fma(k, LoadPart<kWhole>(from + i * width, width, v), sums[sum][v]);
            }
        });
        const float* value = args_.v + cell * args_.value_dim + first_;
        const Float strength = Simd::Set(args_.strength[cell]);
        for (int v = 0; v < kVectors; ++v) {
            const Float known = Total(sums, v);
            change[v] = Simd::Mul(strength, Simd::Sub(LoadPart<kWhole>(value, width, v), known));
        }
        Clear(sums);
        EachRow(d, [&](int64_t i, int sum) {
            const Float k = Simd::Set(k_[i]), q = Simd::Set(q_[i]), fade = Simd::Set(fade_[i]);
            for (int v = 0; v < kVectors; ++v) {
                const Float old = LoadPart<kWhole>(from + i * width, width, v);
                const Float now = Simd::Fma(k, change[v], Simd::Mul(fade, old));
                StorePart<kWhole>(to + i * width, now, width, v);
                sums[sum][v] = Simd::Fma(q, now, sums[sum][v]);
            }
        });
        for (int v = 0; v < kVectors; ++v) {
            StorePart<kWhole>(args_.y + cell * args_.value_dim + first_, Total(sums, v), width, v);
        }
    }

    WEFT_INLINE void Clear(Float (&sums)[kSums][kVectors]) {
        for (auto& sum : sums) {
            for (Float& x : sum) x = Simd::Zero();
        }
    }
    WEFT_INLINE Float Total(const Float (&sums)[kSums][kVectors], int v) {
        return Simd::Add(Simd::Add(sums[0][v], sums[1][v]), Simd::Add(sums[2][v], sums[3][v]));
    }
    // on(i, i % kSums) for the rows of a block.
    template <typename On>
    WEFT_INLINE void EachRow(int64_t rows, On on) {
        int64_t i = 0;
        for (; i + kSums <= rows; i += kSums) {
#pragma GCC unroll 4
            for (int u = 0; u < kSums; ++u) on(i + u, u);
        }
        for (int u = 0; i + u < rows; ++u) on(i + u, u);
    }

    const DeltaRuleArgs& args_;
    const int64_t padded_;
    float *const state_, *const q_, *const k_, *const faded_, *const fade_;
    int64_t head_ = 0, first_ = 0, width_ = 0, begin_ = 0;
};

// ---- SSD ----------------------------------------------------------------------------------------

// A row's addend to the state does not depend on the state. So several rows of a sequence are
// applied to each row of a block while that is in registers, in order.
class SsdColumns {
  public:
    SsdColumns(const DeltaRuleArgs& args, int part)
        : args_(args), state_(args.scratch + part * args.scratch_floats) {}

    // Block `block` of a head's columns.
    void Run(int64_t head, int64_t block) {
        head_ = head;
        first_ = block * kStateColumns;
        width_ = std::min(kStateColumns, args_.value_dim - first_);
        const int64_t begin = head * args_.key_dim * args_.value_dim + first_ * args_.key_dim;
        const size_t bytes = static_cast<size_t>(args_.key_dim * width_) * sizeof(float);
        for (const StateSequence& sequence : args_.sequences) {
            now_ = state_;
            if (sequence.from >= 0) {
                now_ = args_.state.At(sequence.from) + begin;
            } else {
                std::fill_n(state_, args_.key_dim * width_, 0.0f);
            }
            int64_t waiting = sequence.row_begin;  // the first row that is not computed yet
            const int64_t end = waiting + sequence.row_count;
            const auto on_row = [&](int64_t at, int32_t slot) {
                const bool more = slot < 0 && at + 1 < end;  // (training stores no state)
                if (more && at + 1 - waiting < kTogether) return;
                Advance(waiting, at + 1, slot >= 0 ? args_.state.At(slot) + begin : state_);
                waiting = at + 1;
            };
            ForStateRows(sequence, on_row, [&](int32_t from, int32_t to) {
                std::memcpy(args_.state.At(to) + begin, args_.state.At(from) + begin, bytes);
            });
        }
    }

  private:
    static constexpr int kTogether = 4;

    // Computes rows [at, end), at most kTogether; stores the state after them in `to`.
    void Advance(int64_t at, int64_t end, float* to) {
        const bool whole = width_ == kStateColumns;
        if (end - at == kTogether) {
            Some<kTogether>(at, to, whole);
            at = end;
        }
        for (; at < end; ++at) {
            float* next = at + 1 == end ? to : state_;
            Some<1>(at, next, whole);
        }
    }

    template <int kRows>
    void Some(int64_t at, float* to, bool whole) {
        if (args_.each > 1) return Rows<kRows, false, true>(at, to);
        whole ? Rows<kRows, true, false>(at, to) : Rows<kRows, false, false>(at, to);
    }

    // kByRow: each row of the state has a decay of its own.
    template <int kRows, bool kWhole, bool kByRow>
    void Rows(int64_t at, float* to) {
        const int64_t d = args_.key_dim, key = args_.KeyHeadOf(head_);
        const int64_t width = kWhole ? kStateColumns : width_;
        const float *q[kRows], *k[kRows], *value[kRows], *fades[kRows];
        Float fade[kRows], change[kRows][kVectors], sums[kRows][kVectors];
        for (int r = 0; r < kRows; ++r) {
            const int64_t cell = (at + r) * args_.heads + head_;
            q[r] = args_.q + ((at + r) * args_.key_heads + key) * d;
            k[r] = args_.k + ((at + r) * args_.key_heads + key) * d;
            value[r] = args_.v + cell * args_.value_dim + first_;
            fades[r] = args_.fade + cell * args_.each;
            fade[r] = Simd::Set(*fades[r]);
            const Float step = Simd::Set(args_.key_scale * args_.strength[cell]);
            for (int v = 0; v < kVectors; ++v) {
                change[r][v] = Simd::Mul(step, LoadPart<kWhole>(value[r], width, v));
                sums[r][v] = Simd::Zero();
            }
        }
        for (int64_t i = 0; i < d; ++i) {
            Float cells[kVectors];
            for (int v = 0; v < kVectors; ++v) {
                cells[v] = LoadPart<kWhole>(now_ + i * width, width, v);
            }
#pragma GCC unroll 4
            for (int r = 0; r < kRows; ++r) {
                const Float in = Simd::Set(k[r][i]), out = Simd::Set(q[r][i]);
                const Float own = kByRow ? Simd::Set(fades[r][i]) : fade[r];
                for (int v = 0; v < kVectors; ++v) {
                    cells[v] = Simd::Fma(in, change[r][v], Simd::Mul(own, cells[v]));
                    sums[r][v] = Simd::Fma(out, cells[v], sums[r][v]);
                }
            }
            for (int v = 0; v < kVectors; ++v) {
                StorePart<kWhole>(to + i * width, cells[v], width, v);
            }
        }
        now_ = to;
        const Float skip = Simd::Set(args_.skip[head_]), scale = Simd::Set(args_.query_scale);
        for (int r = 0; r < kRows; ++r) {
            float* y = args_.y + (value[r] - args_.v);
            for (int v = 0; v < kVectors; ++v) {
                const Float own = LoadPart<kWhole>(value[r], width, v);
                StorePart<kWhole>(y, Simd::Fma(skip, own, Simd::Mul(scale, sums[r][v])), width, v);
            }
        }
    }

    const DeltaRuleArgs& args_;
    float* const state_;
    const float* now_ = nullptr;  // the state before the next row
    int64_t head_ = 0, first_ = 0, width_ = 0;
};

template <typename Columns>
void RunBlocks(const DeltaRuleArgs& args, int part, int parts) {
    const int64_t blocks = (args.value_dim + kStateColumns - 1) / kStateColumns;
    const Range share = Share(args.heads * blocks, 1, part, parts);
    Columns columns(args, part);
    for (int64_t unit = share.begin; unit < share.end; ++unit) {
        columns.Run(unit / blocks, unit % blocks);
    }
}

void DeltaRule(const DeltaRuleArgs& args, int part, int parts) {
    args.skip == nullptr ? RunBlocks<DeltaColumns>(args, part, parts)
                         : RunBlocks<SsdColumns>(args, part, parts);
}

}  // namespace

void SetRecurrent(RecurrentKernels& table) {
    table = {CausalConv, DeltaRule};
}

}  // namespace weft::kernels::WEFT_SET
