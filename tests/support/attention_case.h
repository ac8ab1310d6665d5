// A random attention problem: several sequences with K and V, random page tables, one rank's heads,
// and the result in double precision by the plain formula.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "support/kernel_levels.h"

namespace weft::kernels::test {

// `value` as a cache of `dtype` (a float type) holds it. Independent of tensor/half.
inline float Rounded(DType dtype, float value) {
    if (dtype == DType::kF32 || value == 0) return value;
    const int bits = dtype == DType::kF16 ? 11 : 8;
    const int least = dtype == DType::kF16 ? -24 : -133;
    const int quantum = std::max(std::ilogb(value) - bits + 1, least);
    return static_cast<float>(std::ldexp(std::nearbyint(std::ldexp(value, -quantum)), quantum));
}

struct AttentionShape {
    DType dtype = DType::kF16;
    int64_t head_dim = 64, heads = 3, first_head = 0, group = 3, page_tokens = 64;
    std::vector<std::pair<int64_t, int64_t>> sequences{{0, 1}};  // (position, rows)
    float deviation = 1;
    int64_t window = 0;
    float soft_cap = 0;
    bool sinks = false;
    int64_t value_dim = 0;  // columns of a value; 0: head_dim
    bool chunk = false;     // attention chunks of `window` tokens instead of a sliding window
    bool ahead = false;     // queries see later keys, too; the window is on both sides
    bool slopes = false;    // ALiBi
    bool coarse = false;    // queries have 8 bits, so that f16 holds them exactly
    std::optional<DType> value_dtype{};  // nullopt: dtype
    int64_t ValueDim() const { return value_dim == 0 ? head_dim : value_dim; }
    DType ValueType() const { return value_dtype.value_or(dtype); }
    bool HoldsBlocks() const { return Info(dtype).quantized || Info(ValueType()).quantized; }
};

inline DType RandomCacheType(Random& random) {
    return random.Pick(
        {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ5_1, DType::kQ4_0});
}

inline AttentionShape RandomShape(Random& random) {
    AttentionShape shape;
    shape.dtype = RandomCacheType(random);
    if (random.Int(0, 2) == 0) shape.value_dtype = RandomCacheType(random);
    shape.head_dim = random.Pick<int64_t>({32, 64, 64, 96, 128, 160, 256, 512});
    if (!shape.HoldsBlocks() && random.Int(0, 1) == 0) shape.head_dim = random.Int(1, 256);
    shape.group = random.Pick<int64_t>({1, 2, 3, 4, random.Int(1, 9)});
    shape.heads = random.Int(1, shape.group + 2);
    shape.first_head = random.Int(0, 7);
    shape.page_tokens = random.Pick<int64_t>({64, 64, 128, 192});
    shape.sequences.clear();
    for (int64_t count = random.Int(1, 3); count > 0; --count) {
        shape.sequences.emplace_back(
            random.Pick<int64_t>({0, random.Int(0, 80), random.Int(0, 250)}),
            random.Pick<int64_t>({1, random.Int(1, 12), random.Int(1, 90)}));
    }
    shape.deviation = random.Pick({1e-3f, 1.0f, 1.0f, 1.0f, 4.0f});
    shape.window = random.Pick<int64_t>({0, 0, random.Int(1, 100), 64});
    shape.soft_cap = random.Pick({0.0f, 0.0f, 2.0f, 50.0f});
    shape.sinks = random.Int(0, 2) == 0;
    shape.slopes = !shape.sinks && shape.soft_cap == 0 && random.Int(0, 1) == 0;
    return shape;
}

// Cases with value_dim != head_dim, and chunked attention.
inline AttentionShape RandomOtherShape(Random& random) {
    AttentionShape shape = RandomShape(random);
    shape.value_dim = random.Pick<int64_t>({0, 32, 64, 128, 192, 256});
    if (!shape.HoldsBlocks() && random.Int(0, 1) == 0) shape.value_dim = random.Int(1, 256);
    shape.chunk = shape.window != 0 && random.Int(0, 1) == 0;
    shape.ahead = !shape.chunk && !shape.slopes && random.Int(0, 1) == 0;
    return shape;
}

// Largest relative errors of kernels that round queries and attention weights to 16 bits.
struct AttentionRounding {
    double query = 0, weight = 0;
};

class AttentionCase {
  public:
    AttentionCase(const AttentionShape& shape, uint32_t seed)
        : shape_(shape), random_(seed), first_kv_head_(shape.first_head / shape.group) {
        const int64_t last_head = shape.first_head + shape.heads - 1;
        kv_heads_ = last_head / shape.group - first_kv_head_ + 1;
        int64_t page_count = 1;  // page 0 must not be read
        int32_t row = 0;
        for (auto [position, rows] : shape.sequences) {
            sequences_.push_back(
                {row, static_cast<int32_t>(rows), static_cast<int32_t>(position), {}});
            row += static_cast<int32_t>(rows);
            page_count += (position + rows + shape.page_tokens - 1) / shape.page_tokens;
        }
        rows_ = row;
        GivePages(page_count);
        // The caches start as NaN, so reading unwritten data shows.
        for (KvCache* cache : {&k_cache_, &v_cache_}) {
            const int64_t columns = cache == &k_cache_ ? shape.head_dim : shape.ValueDim();
            const DType dtype = cache == &k_cache_ ? shape.dtype : shape.ValueType();
            *cache = {dtype, nullptr, kv_heads_, shape.page_tokens, columns};
            auto& bytes = cache == &k_cache_ ? k_bytes_ : v_bytes_;
            bytes.assign(static_cast<size_t>(page_count * cache->PageStride()), std::byte{0xff});
            cache->data = bytes.data();
        }
        q_stride_ = shape.heads * shape.head_dim + random_.Int(0, 5);
        q_ = random_.Normals(rows_ * q_stride_, shape.deviation);
        if (shape.coarse) {
            for (float& value : q_) value = Rounded(DType::kBF16, value);
        }
        for (auto [position, rows] : shape.sequences) {
            const int64_t units = (position + rows) * kv_heads_;
            keys_.push_back(random_.Normals(units * shape.head_dim, shape.deviation));
            values_.push_back(random_.Normals(units * shape.ValueDim()));
        }
        sinks_ = random_.Normals(shape.heads, 2 * shape.deviation);
    }

    // Replaces pages before every row's window by the page that must not be read.
    void HidePagesOutsideWindow() {
        for (size_t s = 0; s < sequences_.size(); ++s) {
            const int64_t first = FirstKey(sequences_[s].position);
            for (int64_t page = 0; page < first / shape_.page_tokens; ++page) {
                pages_[s][static_cast<size_t>(page)] = unread_page_;
            }
        }
    }
    int64_t FirstKey(int64_t position) const {
        if (shape_.window == 0) return 0;
        if (shape_.chunk) return position / shape_.window * shape_.window;
        return std::max<int64_t>(0, position + 1 - shape_.window);
    }
    // Position after the last key that row `index` of sequence `s` sees.
    int64_t EndKey(size_t s, int64_t index) const {
        const int64_t own = sequences_[s].position + index + 1;
        if (!shape_.ahead) return own;
        return shape_.window == 0 ? Tokens(s) : std::min(Tokens(s), own + shape_.window - 1);
    }

    // Writes the K and V of tokens [begin, end) of a sequence.
    void Write(const Ops& ops, size_t sequence, int64_t begin, int64_t end, int parts = 1) const {
        Sequence rows = sequences_[sequence];
        rows.row_begin = 0;
        rows.row_count = static_cast<int32_t>(end - begin);
        rows.position = static_cast<int32_t>(begin);
        const int64_t k_width = kv_heads_ * shape_.head_dim;
        const int64_t v_width = kv_heads_ * shape_.ValueDim();
        KvWriteArgs args{{&rows, 1},
                         keys_[sequence].data() + begin * k_width,
                         values_[sequence].data() + begin * v_width,
                         k_width,
                         v_width,
                         k_cache_,
                         v_cache_};
        RunParts(ops.kv_write, args, parts);
    }
    void WriteAll(const Ops& ops, int parts = 1) const {
        for (size_t s = 0; s < sequences_.size(); ++s) Write(ops, s, 0, Tokens(s), parts);
    }

    // Runs the rows of one step; returns `out` [rows, heads * ValueDim()].
    std::vector<float> Attend(const Ops& ops, const std::vector<Sequence>& sequences,
                              int parts) const {
        return AttendBy(ops, sequences, parts,
                        [&](const AttentionArgs& args) { RunParts(ops.attention, args, parts); });
    }
    // As above; run(args) computes in several parts.
    template <typename Run>
    std::vector<float> AttendBy(const Ops& ops, const std::vector<Sequence>& sequences, int parts,
                                Run run) const {
        AttentionArgs args;
        args.sequences = sequences;
        args.q = q_.data();
        args.q_stride = q_stride_;
        args.k_cache = k_cache_;
        args.v_cache = v_cache_;
        args.heads = shape_.heads;
        args.first_head = shape_.first_head;
        args.group = shape_.group;
        args.first_kv_head = first_kv_head_;
        args.scale = scale();
        args.window = shape_.chunk ? 0 : shape_.window;
        args.chunk = shape_.chunk ? shape_.window : 0;
        args.ahead = shape_.ahead;
        args.soft_cap = shape_.soft_cap;
        if (shape_.sinks) args.sinks = sinks_.data();
        if (shape_.slopes) args.slopes = sinks_.data();
        const int64_t most_dim = std::max(shape_.head_dim, shape_.ValueDim());
        args.scratch_floats = (ops.attention_scratch(most_dim, shape_.group) + 15) / 16 * 16;
        std::vector<float> scratch(static_cast<size_t>(args.scratch_floats * parts + 16),
                                   std::numeric_limits<float>::quiet_NaN());
        args.scratch = scratch.data();
        while (reinterpret_cast<uintptr_t>(args.scratch) % 64 != 0) ++args.scratch;
        std::vector<float> out(static_cast<size_t>(rows_ * shape_.heads * shape_.ValueDim()),
                               std::numeric_limits<float>::quiet_NaN());
        args.out = out.data();
        args.out_stride = shape_.heads * shape_.ValueDim();
        run(args);
        return out;
    }

    // The plain formula in double over the cache's content. `bound` receives, for each output, the
    // possible error of float32 (ErrorBound) and of `rounding`.
    void Expected(std::vector<double>* out, std::vector<double>* bound,
                  const AttentionRounding& rounding = {}) const {
        for (size_t s = 0; s < sequences_.size(); ++s) {
            const std::vector<float> keys = Held(s, true), values = Held(s, false);
            for (int64_t i = 0; i < sequences_[s].row_count; ++i) {
                for (int64_t head = 0; head < shape_.heads; ++head) {
                    ExpectedRow(s, i, head, keys.data(), values.data(), out, bound, rounding);
                }
            }
        }
    }

    // Expected cache content of a sequence's K or V: for float types rounded here, for blocks read
    // back.
    std::vector<float> Held(size_t s, bool is_key) const {
        const DType dtype = is_key ? shape_.dtype : shape_.ValueType();
        if (Info(dtype).quantized) return ReadBack(s, is_key);
        std::vector<float> held = is_key ? keys_[s] : values_[s];
        for (float& value : held) value = Rounded(dtype, value);
        return held;
    }
    // Actual cache content: [tokens, kv_heads * head_dim or ValueDim()].
    std::vector<float> ReadBack(size_t s, bool is_key) const {
        std::vector<float> held(is_key ? keys_[s].size() : values_[s].size());
        const int64_t columns = is_key ? shape_.head_dim : shape_.ValueDim();
        for (int64_t unit = 0; unit < Tokens(s) * kv_heads_; ++unit) {
            const int64_t token = unit / kv_heads_;
            const int64_t page = pages_[s][static_cast<size_t>(token / shape_.page_tokens)];
            const auto read = is_key ? reference::ReadKey : reference::ReadValue;
            read(is_key ? k_cache_ : v_cache_, page, unit % kv_heads_, token % shape_.page_tokens,
                 held.data() + unit * columns);
        }
        return held;
    }

    const std::vector<Sequence>& sequences() const { return sequences_; }
    int64_t Tokens(size_t s) const { return sequences_[s].position + sequences_[s].row_count; }
    float scale() const { return 1.0f / std::sqrt(static_cast<float>(shape_.head_dim)); }
    int64_t Rows() const { return rows_; }
    const std::vector<float>& keys(size_t s) const { return keys_[s]; }
    const std::vector<float>& values(size_t s) const { return values_[s]; }
    // For changes before the rows are written to a cache.
    std::vector<float>& keys(size_t s) { return keys_[s]; }
    std::vector<float>& values(size_t s) { return values_[s]; }
    std::vector<float>& queries() { return q_; }  // rows of query_stride()
    int64_t query_stride() const { return q_stride_; }
    const std::vector<float>& sinks() const { return sinks_; }
    // Rows [rows, heads * head_dim], without the gaps between rows.
    std::vector<float> Queries() const {
        std::vector<float> packed;
        for (int64_t row = 0; row < rows_; ++row) {
            const auto begin = q_.begin() + row * q_stride_;
            packed.insert(packed.end(), begin, begin + shape_.heads * shape_.head_dim);
        }
        return packed;
    }
    int64_t kv_heads() const { return kv_heads_; }
    int64_t first_kv_head() const { return first_kv_head_; }
    int64_t PageCount() const {
        return static_cast<int64_t>(k_bytes_.size()) / k_cache_.PageStride();
    }
    const std::vector<std::byte>& k_bytes() const { return k_bytes_; }
    const std::vector<std::byte>& v_bytes() const { return v_bytes_; }

  private:
    void GivePages(int64_t page_count) {
        std::vector<int32_t> order(static_cast<size_t>(page_count));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
        random_.Shuffle(order);
        size_t next = 0;
        for (size_t s = 0; s < sequences_.size(); ++s) {
            const int64_t pages = (Tokens(s) + shape_.page_tokens - 1) / shape_.page_tokens;
            pages_.emplace_back(order.begin() + static_cast<int64_t>(next),
                                order.begin() + static_cast<int64_t>(next) + pages);
            next += static_cast<size_t>(pages);
        }
        unread_page_ = order.back();
        for (size_t s = 0; s < sequences_.size(); ++s) sequences_[s].pages = pages_[s];
    }

    // A float score differs from the true one by at most d = (head_dim + 4) roundings of scale *
    // sum|q k|. A weight then differs by the factor 1 + 2d plus a few roundings, and the sums over
    // n keys by n more. All errors scale with the largest |v|. Online rescaling adds one rounding
    // each time the maximum grows: at most n.
    static double ErrorBound(int64_t head_dim, int64_t n, double most_score, double most_value) {
        const double score = static_cast<double>(head_dim + 4) * kUlp * most_score;
        return most_value * (4 * score + static_cast<double>(2 * n + 40) * kUlp) + 1e-38;
    }

    // Rounding a query changes a score by that part of the sum of its products' magnitudes, and a
    // weight by the factor e to that power. Rounding the weight adds its own part. The result is a
    // mean with normalized weights: if each weight is off by a factor of 1 + e or 1 / (1 + e), the
    // mean is off by 2e / (1 - e) of the largest value.
    static double RoundingBound(const AttentionRounding& rounding, double most_score,
                                double most_value) {
        const double e = std::exp(rounding.query * most_score) * (1 + rounding.weight) - 1;
        return most_value * (e < 0.5 ? std::min(2.0, 2 * e / (1 - e)) : 2.0);
    }

    void ExpectedRow(size_t s, int64_t index, int64_t head, const float* keys, const float* values,
                     std::vector<double>* out, std::vector<double>* bound,
                     const AttentionRounding& rounding) const {
        const int64_t head_dim = shape_.head_dim, value_dim = shape_.ValueDim();
        const int64_t row = sequences_[s].row_begin + index;
        const int64_t count = EndKey(s, index);
        const int64_t first = FirstKey(sequences_[s].position + index);
        const int64_t kv_head = (shape_.first_head + head) / shape_.group - first_kv_head_;
        const float* q = q_.data() + row * q_stride_ + head * head_dim;
        const int64_t width = kv_heads_ * head_dim, column = kv_head * head_dim;
        std::vector<double> scores(static_cast<size_t>(count));
        double most_score = 0, most_value = 0, largest = -1e300, sum = 0;
        for (int64_t j = first; j < count; ++j) {
            double score = 0, magnitude = 0;
            for (int64_t d = 0; d < head_dim; ++d) {
                const double product = double{q[d]} * keys[j * width + column + d];
                score += product;
                magnitude += std::fabs(product);
            }
            score *= scale();
            if (shape_.slopes) {
                const double bias =
                    sinks_[static_cast<size_t>(head)] * static_cast<double>(j - (count - 1));
                score += bias;
                magnitude += std::fabs(bias) / scale();
            }
            if (shape_.soft_cap != 0) score = shape_.soft_cap * std::tanh(score / shape_.soft_cap);
            scores[static_cast<size_t>(j)] = score;
            most_score = std::max(most_score, magnitude * scale());
            largest = std::max(largest, score);
        }
        // tanh has an error of a few roundings of its result, which the cap scales.
        most_score += 8.0 * shape_.soft_cap / static_cast<double>(head_dim + 4);
        if (shape_.sinks) {
            const double sink = sinks_[static_cast<size_t>(head)];
            most_score = std::max(most_score, std::fabs(sink));
            largest = std::max(largest, sink);
            sum = std::exp(sink - largest);
        }
        for (int64_t j = first; j < count; ++j) {
            double& score = scores[static_cast<size_t>(j)];
            sum += score = std::exp(score - largest);
        }
        for (int64_t d = 0; d < value_dim; ++d) {
            double value = 0;
            for (int64_t j = first; j < count; ++j) {
                const double v = values[(j * kv_heads_ + kv_head) * value_dim + d];
                most_value = std::max(most_value, std::fabs(v));
                value += scores[static_cast<size_t>(j)] * v;
            }
            out->push_back(value / sum);
        }
        const double error = ErrorBound(head_dim, count, most_score, most_value) +
                             RoundingBound(rounding, most_score, most_value);
        bound->insert(bound->end(), static_cast<size_t>(value_dim), error);
    }

    AttentionShape shape_;
    Random random_;
    int64_t first_kv_head_, kv_heads_ = 0, rows_ = 0, q_stride_ = 0;
    std::vector<Sequence> sequences_;
    std::vector<std::vector<int32_t>> pages_;
    std::vector<std::byte> k_bytes_, v_bytes_;
    KvCache k_cache_, v_cache_;
    std::vector<float> q_, sinks_;
    int32_t unread_page_ = 0;
    // By sequence: [tokens, kv_heads * head_dim], values [tokens, kv_heads * ValueDim()].
    std::vector<std::vector<float>> keys_, values_;
};

}  // namespace weft::kernels::test
