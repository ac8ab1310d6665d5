// The blocks of causal attention (dense/attention.h), on the micro-kernels of blocked.h.
#pragma once

#include <cmath>

#include "kernels/vector/blocked.h"

namespace weft::kernels::WEFT_SET {

// Allocates whole cache lines from scratch memory. If there is no memory, it only counts bytes.
class Carver {
  public:
    explicit Carver(std::byte* begin) : begin_(begin) {
        if (begin != nullptr) used_ = (64 - reinterpret_cast<uintptr_t>(begin) % 64) % 64;
    }
    template <typename T = std::byte>
    T* Take(int64_t bytes) {
        std::byte* at = begin_ == nullptr ? nullptr : begin_ + used_;
        used_ += RoundUp(bytes, 64);
        return reinterpret_cast<T*>(at);
    }
    int64_t used() const { return used_; }

  private:
    std::byte* begin_;
    int64_t used_ = 0;
};

// A number of contiguous panels.
struct Panels {
    std::byte* data = nullptr;
    int64_t bytes = 0;  // of one panel
};

// C [m, n] = A . B, or C += A . B with `add`, tile by tile. depths(i, j) returns the range of depth
// that contributes to the tile at (i, j); it begins at a multiple of kStep. Tiles with an empty
// range are skipped.
template <typename Micro, typename Depths>
void MultiplyPanels(const Panels& a, const Panels& b, int64_t m, int64_t n, float* c,
                    int64_t c_stride, bool add, const Depths& depths) {
    const Write write = add ? Write::kAdd : Write::kSet;
    for (int64_t j = 0; j < n; j += Micro::kCols) {
        const std::byte* columns = b.data + j / Micro::kCols * b.bytes;
        for (int64_t i = 0; i < m; i += Micro::kRows) {
            const Range depth = depths(i, j);
            if (depth.begin >= depth.end) continue;
            const std::byte* rows = a.data + i / Micro::kRows * a.bytes;
            TileOf<Micro>(rows + PanelBytes<Micro>(Micro::kRows, depth.begin),
                          columns + PanelBytes<Micro>(Micro::kCols, depth.begin),
                          depth.end - depth.begin, c + i * c_stride + j, c_stride, m - i, n - j,
                          write);
        }
    }
}

// The parts that the forward and the backward pass share: one KV head of one sequence, and its
// blocks.
template <typename Micro>
class FlashBlocks {
  public:
    static constexpr int64_t kQueries = RoundUp(128, Micro::kRows);
    static constexpr int64_t kKeys = 256;
    static constexpr float kLog2E = 1.44269504f;

    explicit FlashBlocks(const CausalArgs& args) : args_(args), dims_(args.head_dim) {
        WEFT_CHECK(args.k.type == args.q.type && args.v.type == args.q.type &&
                   args.out.type == args.q.type);
    }

    int64_t Longest() const {
        int64_t longest = 0;
        for (const Sequence& sequence : args_.sequences) {
            longest = std::max<int64_t>(longest, sequence.row_count);
        }
        return longest;
    }

    // TakeA and TakeB allocate memory for panels of up to `lanes` lanes (rows of A, columns of B).
    static Panels TakeA(Carver& carver, int64_t lanes, int64_t depth) {
        const int64_t panel = PanelBytes<Micro>(Micro::kRows, depth);
        const int64_t count = (lanes + Micro::kRows - 1) / Micro::kRows;
        return {carver.Take(count * panel + Micro::kSlackBytes), panel};
    }
    static Panels TakeB(Carver& carver, int64_t lanes, int64_t depth) {
        const int64_t panel = PanelBytes<Micro>(Micro::kCols, depth);
        const int64_t count = (lanes + Micro::kCols - 1) / Micro::kCols;
        return {carver.Take(count * panel + Micro::kSlackBytes), panel};
    }
    static void PackA(Panels& to, const AnyOperand& from, int64_t lanes, int64_t depth) {
        to.bytes = PanelBytes<Micro>(Micro::kRows, depth);
        PackAPanels<Micro>(from, lanes, depth, to.data);
    }
    static void PackB(Panels& to, const AnyOperand& from, int64_t lanes, int64_t depth) {
        to.bytes = PanelBytes<Micro>(Micro::kCols, depth);
        PackBPanels<Micro>(from, lanes, depth, to.data);
    }

    // Rows(m): the rows of m are the lanes. Columns(m): the columns of m are the lanes.
    static AnyOperand Rows(const ConstMatrix& m) { return {m.data, m.stride, 1, m.type}; }
    static AnyOperand Columns(const ConstMatrix& m) { return {m.data, 1, m.stride, m.type}; }

    // Packs K or V as [keys, dims] for sums over dims: panels of keys.
    void PackKeys(Panels& to, const ConstMatrix& rows, int64_t count) const {
        PackB(to, Rows(rows), count, dims_);
    }
    // Packs K or V for sums over keys: for each block of keys, panels of dims.
    void PackDims(Panels& to, const ConstMatrix& rows, int64_t count) const {
        for (int64_t key = 0; key < count; key += kKeys) {
            Panels block = BlockOf(to, key);
            PackB(block, Columns(rows.From(key, 0)), dims_, std::min(kKeys, count - key));
        }
    }
    // Stores [rows, dims] of sums, rounded to the destination's type.
    void Put(const float* sums, int64_t rows, const Matrix& to) const {
        const auto put = [&](auto type) {
            PutRows(sums, dims_, rows, dims_, to.Row<decltype(type)>(0), to.stride, false);
        };
        WithTypes(put, to.type);
    }
    // The panels of dims for the block of keys that starts at `key`.
    Panels BlockOf(const Panels& all, int64_t key) const {
        return {all.data + key / kKeys * BlockBytes(), all.bytes};
    }
    Panels BlockOf(const Panels& all, int64_t key, int64_t keys) const {
        return {all.data + key / kKeys * BlockBytes(),
                PanelBytes<Micro>(Micro::kCols, std::min(kKeys, keys - key))};
    }
    Panels TakeDims(Carver& carver, int64_t keys) const {
        return {carver.Take((keys + kKeys - 1) / kKeys * BlockBytes() + Micro::kSlackBytes), 0};
    }
    int64_t BlockBytes() const {
        return RoundUp(PanelBytes<Micro>(RoundUp(dims_, Micro::kCols), kKeys), 64);
    }
    Panels KeysFrom(const Panels& all, int64_t key) const {
        return {all.data + key / Micro::kCols * all.bytes, all.bytes};
    }

    // The keys of a block that query i sees. The block has `keys` keys, of which the first
    // `diagonal` precede the key of query 0.
    Range SeenKeys(int64_t i, int64_t diagonal, int64_t keys) const {
        const int64_t own = diagonal + i;
        const int64_t first = args_.window == 0 ? 0 : own + 1 - args_.window;
        const int64_t end = std::clamp<int64_t>(own + 1, 0, keys);
        return {std::clamp<int64_t>(first, 0, end), end};
    }
    // Start of the first block of keys that is seen by the block of queries which begins at
    // `query`. Blocks of keys are counted from `first_key`.
    int64_t FirstBlock(int64_t query, int64_t first_key) const {
        const int64_t before = args_.FirstKey(query) - first_key;
        return first_key + std::max(before, int64_t{0}) / kKeys * kKeys;
    }

    // The following functions multiply a block of queries and a block of keys. The first `diagonal`
    // keys of the block precede the key of query 0. Tiles in which no query sees a key are skipped.
    //
    // Computes scores or dp, as queries x keys.
    void Score(const Panels& q, const Panels& k, int64_t queries, int64_t keys, int64_t diagonal,
               float* scores) const {
        const auto depths = [&](int64_t i, int64_t j) {
            const bool early = j + Micro::kCols <= SeenKeys(i, diagonal, keys).begin;
            return Range{0, j < diagonal + i + Micro::kRows && !early ? dims_ : 0};
        };
        MultiplyPanels<Micro>(q, k, queries, keys, scores, kKeys, false, depths);
    }
    // The same for scores, with the bias of ALiBi divided by `scale`.
    void ScoreHead(int64_t head, const Panels& q, const Panels& k, int64_t queries, int64_t keys,
                   int64_t diagonal, float* scores) const {
        Score(q, k, queries, keys, diagonal, scores);
        if (args_.slopes == nullptr) return;
        const float slope = args_.slopes[head] / args_.scale;
        for (int64_t i = 0; i < queries; ++i) {
            const Range seen = SeenKeys(i, diagonal, keys);
            for (int64_t key = seen.begin; key < seen.end; ++key) {
                scores[i * kKeys + key] += slope * static_cast<float>(key - diagonal - i);
            }
        }
    }
    // Sums over keys: queries x dims. Without `add`, all sums are overwritten.
    void SumKeys(const Panels& p, const Panels& v, int64_t queries, int64_t keys, int64_t diagonal,
                 float* sums, bool add) const {
        const auto depths = [&](int64_t i, int64_t) {
            const int64_t first = add ? SeenKeys(i, diagonal, keys).begin : 0;
            return Range{first / Micro::kStep * Micro::kStep,
                         std::min(keys, diagonal + i + Micro::kRows)};
        };
        MultiplyPanels<Micro>(p, v, queries, dims_, sums, dims_, add, depths);
    }
    // Adds sums over queries: keys x dims.
    void SumQueries(const Panels& turned, const Panels& dout, int64_t queries, int64_t keys,
                    int64_t diagonal, float* sums) const {
        const auto depths = [&](int64_t i, int64_t) {
            const int64_t first = std::max(i - diagonal, int64_t{0});
            // The last query that sees the tile's last key is window - 1 after it.
            const int64_t end =
                args_.window == 0 ? queries : i + Micro::kRows - 1 + args_.window - diagonal;
            return Range{first / Micro::kStep * Micro::kStep, std::min(queries, end)};
        };
        MultiplyPanels<Micro>(turned, dout, keys, dims_, sums, dims_, true, depths);
    }

    const CausalArgs& args_;
    const int64_t dims_;
};

template <typename Micro>
class FlashForward : FlashBlocks<Micro> {
    using Base = FlashBlocks<Micro>;
    using Base::args_, Base::dims_, Base::kKeys, Base::kQueries;

  public:
    FlashForward(const CausalArgs& args, std::byte* scratch) : Base(args), carver_(scratch) {
        const int64_t longest = Base::Longest();
        k_ = Base::TakeB(carver_, longest, dims_);
        v_ = Base::TakeDims(carver_, longest);
        q_ = Base::TakeA(carver_, kQueries, dims_);
        p_ = Base::TakeA(carver_, kQueries, kKeys);
        scores_ = carver_.template Take<float>(kQueries * kKeys * 4);
        sums_ = carver_.template Take<float>(kQueries * dims_ * 4);
        largest_ = carver_.template Take<float>(kQueries * 4);
        totals_ = carver_.template Take<float>(kQueries * 4);
    }
    int64_t ScratchBytes() const { return carver_.used() + 64; }

    void Run(int part, int parts) {
        const typename Micro::Session session;
        int64_t total = 0;
        ForBlocks([&](const Sequence&, int64_t, int64_t, int64_t cost) { total += cost; });
        const int64_t begin = total * part / parts, end = total * (part + 1) / parts;
        int64_t at = 0, packed_row = -1, packed_head = -1;
        ForBlocks([&](const Sequence& sequence, int64_t head, int64_t first, int64_t cost) {
            const bool mine = at >= begin && at < end;
            at += cost;
            if (!mine) return;
            const int64_t kv = args_.KvHead(head);
            if (packed_row != sequence.row_begin || packed_head != kv) {
                packed_row = sequence.row_begin;
                packed_head = kv;
                PackKv(sequence, kv);
            }
            Block(sequence, head, first);
        });
    }

  private:
    // Calls on_block(sequence, head, first query, cost) for every block, grouped by KV head.
    template <typename OnBlock>
    void ForBlocks(OnBlock on_block) const {
        for (const Sequence& sequence : args_.sequences) {
            for (int64_t kv = 0; kv < args_.kv_heads; ++kv) {
                for (int64_t head = 0; head < args_.heads; ++head) {
                    if (args_.KvHead(head) != kv) continue;
                    for (int64_t i = 0; i < sequence.row_count; i += kQueries) {
                        on_block(sequence, head, i, i - args_.FirstKey(i) + kQueries);
                    }
                }
            }
        }
    }

    void PackKv(const Sequence& sequence, int64_t kv) {
        const int64_t row = sequence.row_begin, column = kv * dims_;
        Base::PackKeys(k_, args_.k.From(row, column), sequence.row_count);
        Base::PackDims(v_, args_.v.From(row, column), sequence.row_count);
    }

    void Block(const Sequence& sequence, int64_t head, int64_t first) {
        const int64_t queries = std::min(kQueries, sequence.row_count - first);
        const int64_t row = sequence.row_begin + first;
        Base::PackA(q_, Base::Rows(args_.q.From(row, head * dims_)), queries, dims_);
        std::fill_n(largest_, queries, -INFINITY);
        std::fill_n(totals_, queries, 0.0f);
        const int64_t first_key = Base::FirstBlock(first, 0);
        for (int64_t key = first_key; key < first + queries; key += kKeys) {
            const int64_t keys = std::min(kKeys, first + queries - key), diagonal = first - key;
            Base::ScoreHead(head, q_, Base::KeysFrom(k_, key), queries, keys, diagonal, scores_);
            for (int64_t i = 0; i < queries; ++i) {
                Soften(i, Base::SeenKeys(i, diagonal, keys), keys, key > first_key);
            }
            Base::PackA(p_, {scores_, kKeys, 1}, queries, keys);
            Base::SumKeys(p_, Base::BlockOf(v_, key, sequence.row_count), queries, keys, diagonal,
                          sums_, key > first_key);
        }
        for (int64_t i = 0; i < queries; ++i) {
            const float faded = args_.sinks == nullptr ? 1.0f : AddSink(i, args_.sinks[head]);
            Multiply(sums_ + i * dims_, faded / totals_[i]);
            if (args_.lse == nullptr) continue;
            args_.lse[head * args_.lse_stride + row + i] =
                (largest_[i] + std::log2(totals_[i])) / Base::kLog2E;
        }
        Base::Put(sums_, queries, args_.out.From(row, head * dims_));
    }

    // Converts the scores of query i to probabilities, except for a factor that is the same for all
    // keys. If this factor changes, rescales the earlier sums.
    void Soften(int64_t i, Range seen, int64_t keys, bool rescale) {
        float* scores = scores_ + i * kKeys;
        std::fill(scores, scores + seen.begin, 0.0f);
        std::fill(scores + seen.end, scores + keys, 0.0f);
        if (seen.begin == seen.end) return;
        const bool capped = args_.soft_cap != 0;
        if (capped) Cap(scores, seen);
        const Float scale = Simd::Set(capped ? Base::kLog2E : args_.scale * Base::kLog2E);
        Float most = Simd::Set(largest_[i]);
        const Float none = most;
        ForVectors(
            seen.begin, seen.end,
            [&](int64_t k) { most = Simd::Max(Simd::Mul(Simd::Load(scores + k), scale), most); },
            [&](int64_t k, int64_t left) {
                const Float s = Simd::Mul(Simd::LoadFirst(scores + k, left), scale);
                most = Simd::Max(Simd::Select(left, s, none), most);
            });
        const float largest = Simd::Largest(most);
        const Float shift = Simd::Set(-largest);
        Float total = Simd::Zero();
        ForVectors(
            seen.begin, seen.end,
            [&](int64_t k) {
                const Float p = Exp2(Simd::Fma(Simd::Load(scores + k), scale, shift));
                Simd::Store(scores + k, p);
                total = Simd::Add(total, p);
            },
            [&](int64_t k, int64_t left) {
                const Float s = Simd::LoadFirst(scores + k, left);
                const Float p = Exp2(Simd::Fma(s, scale, shift));
                Simd::StoreFirst(scores + k, p, left);
                total = Simd::Add(total, Simd::Select(left, p, Simd::Zero()));
            });
        const float before = rescale ? std::exp2(largest_[i] - largest) : 0.0f;
        totals_[i] = totals_[i] * before + Simd::Sum(total);
        if (rescale && before != 1.0f) Multiply(sums_ + i * dims_, before);
        largest_[i] = largest;
    }

    // Adds the sink's score to the total of query i. Returns the factor of the earlier sums.
    float AddSink(int64_t i, float sink) {
        const float score = sink * Base::kLog2E, largest = std::max(largest_[i], score);
        const float faded = std::exp2(largest_[i] - largest);
        totals_[i] = totals_[i] * faded + std::exp2(score - largest);
        largest_[i] = largest;
        return faded;
    }

    void Cap(float* scores, Range seen) const {
        const Float cap = Simd::Set(args_.soft_cap);
        const Float scale = Simd::Set(args_.scale / args_.soft_cap);
        ForElements(seen.begin, seen.end, [&](auto load, auto store) {
            store(scores, Simd::Mul(cap, Tanh(Simd::Mul(load(scores), scale))));
        });
    }

    void Multiply(float* dims, float by) const {
        const auto factor = Simd::Set(by);
        ForElements(0, dims_,
                    [&](auto load, auto store) { store(dims, Simd::Mul(load(dims), factor)); });
    }

    Carver carver_;
    Panels k_, v_, q_, p_;
    float *scores_, *sums_, *largest_, *totals_;
};

template <typename Micro>
class FlashBackward : FlashBlocks<Micro> {
    using Base = FlashBlocks<Micro>;
    using Base::args_, Base::dims_, Base::kKeys, Base::kQueries;

  public:
    FlashBackward(const CausalGradArgs& args, std::byte* scratch)
        : Base(args.forward), call_(args), carver_(scratch) {
        const Element type = args_.q.type;
        WEFT_CHECK(args.dout.type == type && args.dq.type == type && args.dk.type == type &&
                   args.dv.type == type);
        const int64_t longest = Base::Longest();
        k_ = Base::TakeB(carver_, longest, dims_);
        v_ = Base::TakeB(carver_, longest, dims_);
        k_dims_ = Base::TakeDims(carver_, longest);
        q_ = Base::TakeA(carver_, kQueries, dims_);
        dout_ = Base::TakeA(carver_, kQueries, dims_);
        q_dims_ = Base::TakeB(carver_, dims_, kQueries);
        dout_dims_ = Base::TakeB(carver_, dims_, kQueries);
        ds_ = Base::TakeA(carver_, kQueries, kKeys);
        turned_ = Base::TakeA(carver_, kKeys, kQueries);
        p_ = carver_.template Take<float>(kQueries * kKeys * 4);
        dp_ = carver_.template Take<float>(kQueries * kKeys * 4);
        weighted_ = carver_.template Take<float>(kQueries * 4);
        dq_ = carver_.template Take<float>(kQueries * dims_ * 4);
        dk_ = carver_.template Take<float>(longest * dims_ * 4);
        dv_ = carver_.template Take<float>(longest * dims_ * 4);
    }
    int64_t ScratchBytes() const { return carver_.used() + 64; }

    // A unit is one KV head of one sequence. If the whole unit is in this part's share of the cost,
    // it is computed in one pass. If a unit is divided, a part computes dk and dv of some keys in
    // one pass, and dq of some queries in another. Both ways add in the same order. (A divided unit
    // costs 1.4 times as much, because scores and dp are computed twice.)
    void Run(int part, int parts) {
        const typename Micro::Session session;
        const int64_t begin = CutOf(part, parts), end = CutOf(part + 1, parts);
        int64_t at = 0;
        for (const Sequence& sequence : args_.sequences) {
            const int64_t cost = Cost(sequence), count = sequence.row_count;
            for (int64_t kv = 0; kv < args_.kv_heads; ++kv, at += cost) {
                const int64_t from = std::max(begin - at, int64_t{0});
                const int64_t to = std::min(end - at, cost);
                if (from >= to) continue;
                if (from == 0 && to == cost) {
                    Make(sequence, kv, {{0, count}, {0, count}, true, true});
                    continue;
                }
                const Range keys{KeyAt(from, sequence), KeyAt(to, sequence)};
                const Range queries{QueryAt(from, sequence), QueryAt(to, sequence)};
                Make(sequence, kv, {keys, {0, count}, true, false});
                const int64_t first_key = Base::FirstBlock(queries.begin, 0);
                Make(sequence, kv, {{first_key, queries.end}, queries, false, true});
            }
        }
    }

  private:
    // A pass over a KV head. From the scores of some queries and keys, it computes dk and dv of
    // these keys (kv), dq of these queries (q), or both. For dq, the keys must begin with the first
    // block that a query sees.
    struct Pass {
        Range keys, queries;
        bool kv, q;
    };

    // Number of keys that the last row of a sequence sees.
    int64_t Most(const Sequence& sequence) const {
        return sequence.row_count - args_.FirstKey(sequence.row_count - 1);
    }
    // Twice the number of (query, key) pairs in a unit.
    int64_t Pairs(const Sequence& sequence) const {
        const int64_t most = Most(sequence);
        return most * (2 * sequence.row_count - most);
    }
    int64_t Cost(const Sequence& sequence) const {
        return Pairs(sequence) + sequence.row_count * kQueries;
    }

    // The cost at which the share of `part` begins. A cut near an end of a unit is moved to that
    // end.
    int64_t CutOf(int part, int parts) const {
        int64_t total = 0, at = 0;
        for (const Sequence& sequence : args_.sequences) total += Cost(sequence) * args_.kv_heads;
        const int64_t cut = total * part / parts;
        for (const Sequence& sequence : args_.sequences) {
            const int64_t cost = Cost(sequence), all = cost * args_.kv_heads;
            if (cut >= at + all) {
                at += all;
                continue;
            }
            const int64_t inside = (cut - at) % cost;
            if (inside < cost / 8) return cut - inside;
            if (inside > cost - cost / 8) return cut - inside + cost;
            return cut;
        }
        return total;
    }

    // Returns the number of queries, from the first on, that together have the fraction `share` of
    // a unit's pairs. (Twice the number of pairs of the first x queries is x^2, as long as x is
    // within the window; each further query adds 2 * most.)
    double RowAt(double share, const Sequence& sequence) const {
        const auto most = static_cast<double>(Most(sequence));
        const double pairs = share * static_cast<double>(Pairs(sequence));
        return pairs <= most * most ? std::sqrt(pairs) : (pairs / most + most) / 2;
    }
    int64_t QueryAt(int64_t cost, const Sequence& sequence) const {
        const double share = static_cast<double>(cost) / static_cast<double>(Cost(sequence));
        return Nearby(RowAt(share, sequence), sequence);
    }
    // The same for keys, by symmetry: the last key is seen by one query, as the first query sees
    // one key.
    int64_t KeyAt(int64_t cost, const Sequence& sequence) const {
        const double share = static_cast<double>(cost) / static_cast<double>(Cost(sequence));
        return Nearby(sequence.row_count - RowAt(1 - share, sequence), sequence);
    }
    static int64_t Nearby(double row, const Sequence& sequence) {
        return std::min<int64_t>(RoundUp(static_cast<int64_t>(row), 32), sequence.row_count);
    }

    void Make(const Sequence& sequence, int64_t kv, const Pass& pass) {
        const int64_t column = kv * dims_, count = pass.keys.end - pass.keys.begin;
        if (count == 0 || pass.queries.begin == pass.queries.end) return;
        const int64_t row = sequence.row_begin + pass.keys.begin;
        Base::PackKeys(k_, args_.k.From(row, column), count);
        Base::PackKeys(v_, args_.v.From(row, column), count);
        if (pass.q) Base::PackDims(k_dims_, args_.k.From(row, column), count);
        if (pass.kv) {
            std::fill_n(dk_, count * dims_, 0.0f);
            std::fill_n(dv_, count * dims_, 0.0f);
        }
        for (int64_t head = 0; head < args_.heads; ++head) {
            if (args_.KvHead(head) != kv) continue;
            for (int64_t i = pass.queries.begin; i < pass.queries.end; i += kQueries) {
                const int64_t end = std::min(i + kQueries, pass.queries.end);
                const bool sees = end > pass.keys.begin && args_.FirstKey(i) < pass.keys.end;
                if (sees) Block(sequence, head, {i, end}, pass);
            }
        }
        if (pass.kv) {
            Base::Put(dk_, count, call_.dk.From(row, column));
            Base::Put(dv_, count, call_.dv.From(row, column));
        }
    }

    void Block(const Sequence& sequence, int64_t head, Range block, const Pass& pass) {
        const int64_t queries = block.end - block.begin;
        const int64_t row = sequence.row_begin + block.begin, column = head * dims_;
        const ConstMatrix q = args_.q.From(row, column), dout = call_.dout.From(row, column);
        const float* lse = args_.lse + head * args_.lse_stride + row;
        Base::PackA(q_, Base::Rows(q), queries, dims_);
        Base::PackA(dout_, Base::Rows(dout), queries, dims_);
        if (pass.kv) {
            Base::PackB(q_dims_, Base::Columns(q), dims_, queries);
            Base::PackB(dout_dims_, Base::Columns(dout), dims_, queries);
        }
        Weigh(dout, args_.out.From(row, column), queries);
        const int64_t end = std::min(block.end, pass.keys.end);
        const int64_t first_key = Base::FirstBlock(block.begin, pass.keys.begin);
        for (int64_t key = first_key; key < end; key += kKeys) {
            const int64_t keys = std::min(kKeys, end - key), at = key - pass.keys.begin;
            const int64_t diagonal = block.begin - key;
            Base::ScoreHead(head, q_, Base::KeysFrom(k_, at), queries, keys, diagonal, p_);
            Base::Score(dout_, Base::KeysFrom(v_, at), queries, keys, diagonal, dp_);
            for (int64_t i = 0; i < queries; ++i) {
                const Range seen = Base::SeenKeys(i, diagonal, keys);
                args_.soft_cap == 0 ? Scores<false>(i, seen, keys, lse[i])
                                    : Scores<true>(i, seen, keys, lse[i]);
            }
            if (pass.kv) AddToKeys(at, keys, queries, diagonal);
            if (!pass.q) continue;
            Base::PackA(ds_, {dp_, kKeys, 1}, queries, keys);
            const Panels k = Base::BlockOf(k_dims_, at, pass.keys.end - pass.keys.begin);
            Base::SumKeys(ds_, k, queries, keys, diagonal, dq_, key > first_key);
        }
        if (pass.q) Base::Put(dq_, queries, call_.dq.From(row, column));
    }

    // Adds the contributions of the block's queries to dv and dk of the keys from `at` on.
    void AddToKeys(int64_t at, int64_t keys, int64_t queries, int64_t diagonal) {
        Base::PackA(turned_, {p_, 1, kKeys}, keys, queries);
        Base::SumQueries(turned_, dout_dims_, queries, keys, diagonal, dv_ + at * dims_);
        Base::PackA(turned_, {dp_, 1, kKeys}, keys, queries);
        Base::SumQueries(turned_, q_dims_, queries, keys, diagonal, dk_ + at * dims_);
    }

    // Computes the sums of p * dp of each row, which are equal to the sums of dout * out.
    void Weigh(const ConstMatrix& dout, const ConstMatrix& out, int64_t queries) {
        const auto weigh = [&](auto type) {
            for (int64_t i = 0; i < queries; ++i) {
                const auto *a = dout.Row<decltype(type)>(i), *b = out.Row<decltype(type)>(i);
                auto sum = Simd::Zero();
                ForVectors(
                    0, dims_,
                    [&](int64_t d) { sum = Simd::Fma(Simd::Load(a + d), Simd::Load(b + d), sum); },
                    [&](int64_t d, int64_t left) {
                        sum = Simd::Fma(Simd::LoadFirst(a + d, left), Simd::LoadFirst(b + d, left),
                                        sum);
                    });
                weighted_[i] = Simd::Sum(sum);
            }
        };
        WithTypes(weigh, dout.type);
    }

    // Converts the scores in p_ to probabilities, and dp_ to scale * ds.
    template <bool kCapped>
    void Scores(int64_t i, Range seen, int64_t keys, float lse) {
        float *p = p_ + i * kKeys, *dp = dp_ + i * kKeys;
        for (float* row : {p, dp}) {
            std::fill(row, row + seen.begin, 0.0f);
            std::fill(row + seen.end, row + keys, 0.0f);
        }
        const Float scale = Simd::Set(args_.scale), weighted = Simd::Set(weighted_[i]);
        const Float to_tanh = Simd::Set(kCapped ? args_.scale / args_.soft_cap : 0);
        const Float to_exponent =
            Simd::Set((kCapped ? args_.soft_cap : args_.scale) * Base::kLog2E);
        const Float shift = Simd::Set(-lse * Base::kLog2E), whole = Simd::Set(1);
        ForElements(seen.begin, seen.end, [&](auto load, auto store) {
            Float score = load(p);
            if constexpr (kCapped) score = Tanh(Simd::Mul(score, to_tanh));
            const Float one = Exp2(Simd::Fma(score, to_exponent, shift));
            Float ds = Simd::Mul(one, Simd::Sub(load(dp), weighted));
            if constexpr (kCapped) ds = Simd::Mul(ds, Simd::Fnma(score, score, whole));
            store(p, one);
            store(dp, Simd::Mul(ds, scale));
        });
    }

    const CausalGradArgs& call_;
    Carver carver_;
    // Panels for sums over dims, and panels for sums over keys or queries.
    Panels k_, v_, q_, dout_, k_dims_, q_dims_, dout_dims_, ds_, turned_;
    float *p_, *dp_, *weighted_, *dq_, *dk_, *dv_;
};

template <typename Micro>
struct Flash {
    static int64_t ScratchBytes(const CausalArgs& args) {
        return FlashForward<Micro>(args, nullptr).ScratchBytes();
    }
    static int64_t ScratchBytes(const CausalGradArgs& args) {
        return FlashBackward<Micro>(args, nullptr).ScratchBytes();
    }
    static void Run(const CausalArgs& args, std::span<std::byte> scratch, int part, int parts) {
        WEFT_CHECK(static_cast<int64_t>(scratch.size()) >= ScratchBytes(args));
        FlashForward<Micro>(args, scratch.data()).Run(part, parts);
    }
    static void Run(const CausalGradArgs& args, std::span<std::byte> scratch, int part, int parts) {
        WEFT_CHECK(static_cast<int64_t>(scratch.size()) >= ScratchBytes(args));
        FlashBackward<Micro>(args, scratch.data()).Run(part, parts);
    }
};

// The causal attention functions of a kernel table. Floats and Halves are instances of Flash.
template <typename Floats, typename Halves>
struct CausalByCompute {
    static int64_t ScratchBytes(const CausalArgs& args) {
        return args.compute == Compute::kF32 ? Floats::ScratchBytes(args)
                                             : Halves::ScratchBytes(args);
    }
    static int64_t GradScratchBytes(const CausalGradArgs& args) {
        return args.forward.compute == Compute::kF32 ? Floats::ScratchBytes(args)
                                                     : Halves::ScratchBytes(args);
    }
    static void Run(const CausalArgs& args, std::span<std::byte> scratch, int part, int parts) {
        args.compute == Compute::kF32 ? Floats::Run(args, scratch, part, parts)
                                      : Halves::Run(args, scratch, part, parts);
    }
    static void RunGrad(const CausalGradArgs& args, std::span<std::byte> scratch, int part,
                        int parts) {
        args.forward.compute == Compute::kF32 ? Floats::Run(args, scratch, part, parts)
                                              : Halves::Run(args, scratch, part, parts);
    }
    static void Set(Kernels& table) {
        static_cast<dense::CausalKernels&>(table) = {ScratchBytes, Run, GradScratchBytes, RunGrad};
    }
};

}  // namespace weft::kernels::WEFT_SET
