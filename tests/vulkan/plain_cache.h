// A KV cache in the GPU's layout, in host memory, and the tables of a step: shared by tests of
// attention.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "support/attention_case.h"
#include "vulkan/bench_emitter.h"

namespace weft::backend::on_gpu::test {

using kernels::Sequence;
using kernels::test::AttentionShape;

// The tables of a step of these sequences, whose rows are consecutive.
inline StepContents StepOf(const std::vector<Sequence>& sequences) {
    StepContents step;
    int32_t row = 0;
    for (const Sequence& sequence : sequences) {
        step.sequences.push_back({row, sequence.row_count, sequence.position,
                                  static_cast<int32_t>(step.pages.size()), 0});
        step.pages.insert(step.pages.end(), sequence.pages.begin(), sequence.pages.end());
        row += sequence.row_count;
    }
    return step;
}

// A cache in the GPU's layout, in host memory: NaN where nothing was written.
struct PlainCache {
    std::vector<std::byte> bytes;
    kernels::KvCache cache;
    PlainCache(DType dtype, const AttentionShape& shape, int64_t kv_heads, int64_t pages,
               int64_t columns)
        : cache{dtype, nullptr, kv_heads, shape.page_tokens, columns} {
        bytes.assign(static_cast<size_t>(cache.PageStride() * pages), std::byte{0xff});
        cache.data = bytes.data();
    }
    // Writes tokens [begin, end) of a sequence, from rows [tokens, kv_heads * columns].
    void Write(const Sequence& sequence, const std::vector<float>& rows, int64_t begin,
               int64_t end) {
        for (int64_t unit = begin * cache.kv_heads; unit < end * cache.kv_heads; ++unit) {
            const int64_t token = unit / cache.kv_heads;
            const int64_t page = sequence.pages[static_cast<size_t>(token / cache.page_tokens)];
            kernels::reference::WriteValue(cache, page, unit % cache.kv_heads,
                                           token % cache.page_tokens,
                                           rows.data() + unit * cache.head_dim);
        }
    }
};

// Beyond the roundings that AttentionCase counts: the error of GLSL's exp(x) is (3 + 2 |x|) 2^-23
// of its result. A weight has up to three such errors, x is the difference of two scores, and
// exp(x) is 0 if |x| is beyond 104. The error of a soft cap's tanh is 20u of the cap more than
// AttentionCase assumes, which shifts a score.
inline double MoreBound(const AttentionShape& shape, double most_score, double most_value) {
    const double x = std::min(2 * most_score, 104.0);
    return most_value * kernels::test::kUlp *
           (2 * 3 * 2 * (3 + 2 * x) + 4 * 20 * double{shape.soft_cap});
}

inline double MostOf(const std::vector<float>& values) {
    double most = 0;
    for (const float value : values) most = std::max(most, std::fabs(double{value}));
    return most;
}

}  // namespace weft::backend::on_gpu::test
