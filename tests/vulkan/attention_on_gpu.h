// An attention problem on a GPU, and the comparison of its result with the plain formula: shared by
// the tests of attention's kernels.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "support/attention_case.h"
#include "vulkan/plain_cache.h"

namespace weft::backend::on_gpu::test {

using kernels::test::AttentionCase;
using kernels::test::AttentionRounding;

inline int64_t PowerOfTwo(int64_t at_least) {
    int64_t power = 1;
    while (power < at_least) power *= 2;
    return power;
}

inline std::string Describe(const AttentionShape& shape, int number) {
    std::string text =
        "case " + std::to_string(number) + ": " + std::string(Info(shape.dtype).name) + " and " +
        std::string(Info(shape.ValueType()).name) + " head_dim " + std::to_string(shape.head_dim) +
        " heads " + std::to_string(shape.heads) + " from " + std::to_string(shape.first_head) +
        " group " + std::to_string(shape.group) + " page " + std::to_string(shape.page_tokens) +
        " window " + std::to_string(shape.window) + " cap " + std::to_string(shape.soft_cap) +
        (shape.sinks ? " sinks" : "") + (shape.slopes ? " slopes" : "") +
        (shape.ahead ? " ahead" : "");
    for (auto [position, rows] : shape.sequences) {
        text += " [" + std::to_string(position) + "+" + std::to_string(rows) + "]";
    }
    return text;
}

// Rows [first, first + count) of a problem's sequences, each as a sequence of the step.
struct StepRows {
    size_t sequence = 0;
    int32_t first = 0, count = 0;
};

class AttentionOnGpu {
  public:
    AttentionOnGpu(std::shared_ptr<gpu::Device> device, const AttentionShape& shape,
                   AttentionCase& problem)
        : device_(std::move(device)),
          shape_(shape),
          problem_(problem),
          k_(shape.dtype, shape, problem.kv_heads(), problem.PageCount(), shape.head_dim),
          v_(shape.ValueType(), shape, problem.kv_heads(), problem.PageCount(), shape.ValueDim()) {}

    // Returns the result of these rows [rows, heads * ValueDim()], computed as one step whose
    // earlier tokens are in the cache. Checks the values that the step wrote into the caches.
    std::vector<float> Attend(const std::vector<StepRows>& step, bool reference = false) {
        std::vector<Sequence> sequences;
        int32_t rows = 0;
        int64_t positions = 1;
        for (const StepRows& part : step) {
            Sequence sequence = problem_.sequences()[part.sequence];
            sequence.position += part.first;
            sequence.row_count = part.count;
            rows += part.count;
            positions = std::max<int64_t>(positions, sequence.position + part.count);
            sequences.push_back(sequence);
        }
        BenchEmitter e(device_,
                       {.rows = rows, .positions = static_cast<int32_t>(PowerOfTwo(positions))});
        e.set_reference(reference);
        e.set_arithmetic(arithmetic_);
        e.SetStep(StepOf(sequences));
        std::vector<program::ValueId> inputs = Inputs(e, step, sequences);
        const program::ValueId out = e.AddFloats({kTokens, shape_.heads * shape_.ValueDim()});
        const Status lowered = e.Lower(Op(), inputs, {out});
        EXPECT_TRUE(lowered.ok()) << lowered.error().message;
        const Status ran = e.Run();
        EXPECT_TRUE(ran.ok()) << ran.error().message;
        for (size_t i = 0; i < step.size(); ++i) WriteRows(sequences[i], step[i].sequence, true);
        ExpectCache(e, inputs.end()[-2], k_, "K");
        ExpectCache(e, inputs.back(), v_, "V");
        return e.Floats(out);
    }
    void set_arithmetic(const Arithmetic& arithmetic) { arithmetic_ = arithmetic; }
    std::vector<StepRows> AllRows() const {
        std::vector<StepRows> all;
        for (size_t s = 0; s < problem_.sequences().size(); ++s) {
            all.push_back({s, 0, problem_.sequences()[s].row_count});
        }
        return all;
    }

  private:
    program::Attention Op() const {
        program::Attention op;
        op.heads = shape_.heads;
        op.kv_heads = problem_.kv_heads();
        op.head_dim = shape_.head_dim;
        op.first_head = shape_.first_head;
        op.first_kv_head = problem_.first_kv_head();
        op.group = shape_.group;
        op.scale = problem_.scale();
        op.value_dim = shape_.value_dim;
        (shape_.chunk ? op.chunk : op.window) = shape_.window;
        op.soft_cap = shape_.soft_cap;
        op.sinks = shape_.sinks;
        op.ahead = shape_.ahead;
        if (shape_.slopes) op.slopes = problem_.sinks();
        return op;
    }
    // Writes the tokens before the sequence's rows, which those rows attend to, or, with `own`, the
    // rows.
    void WriteRows(const Sequence& sequence, size_t s, bool own) {
        const int64_t begin = own ? sequence.position : problem_.FirstKey(sequence.position);
        const int64_t end = own ? sequence.position + sequence.row_count : sequence.position;
        k_.Write(problem_.sequences()[s], problem_.keys(s), begin, end);
        v_.Write(problem_.sequences()[s], problem_.values(s), begin, end);
    }
    std::vector<program::ValueId> Inputs(BenchEmitter& e, const std::vector<StepRows>& step,
                                         const std::vector<Sequence>& sequences) {
        std::ranges::fill(k_.bytes, std::byte{0xff});
        std::ranges::fill(v_.bytes, std::byte{0xff});
        const int64_t width = shape_.heads * shape_.head_dim;
        const int64_t k_width = problem_.kv_heads() * shape_.head_dim;
        const int64_t v_width = problem_.kv_heads() * shape_.ValueDim();
        const std::vector<float> all = problem_.Queries();
        std::vector<float> q, k, v;
        const auto append = [](std::vector<float>& to, const std::vector<float>& from, int64_t row,
                               int64_t count, int64_t cols) {
            to.insert(to.end(), from.begin() + row * cols, from.begin() + (row + count) * cols);
        };
        for (size_t i = 0; i < step.size(); ++i) {
            const size_t s = step[i].sequence;
            WriteRows(sequences[i], s, false);
            const int64_t first = problem_.sequences()[s].row_begin + step[i].first;
            append(q, all, first, step[i].count, width);
            append(k, problem_.keys(s), sequences[i].position, step[i].count, k_width);
            append(v, problem_.values(s), sequences[i].position, step[i].count, v_width);
        }
        std::vector<program::ValueId> inputs = {e.AddFloats({kTokens, width}, q),
                                                e.AddFloats({kTokens, k_width}, k),
                                                e.AddFloats({kTokens, v_width}, v)};
        if (shape_.sinks) inputs.push_back(e.AddVector(problem_.sinks()));
        for (const PlainCache* cache : {&k_, &v_}) {
            inputs.push_back(e.AddCache({cache->cache.dtype, problem_.kv_heads(),
                                         shape_.page_tokens, cache->cache.head_dim},
                                        problem_.PageCount()));
            const std::span<std::byte> bytes = e.CacheBytes(inputs.back());
            std::ranges::copy(cache->bytes, bytes.begin());
        }
        return inputs;
    }
    void ExpectCache(BenchEmitter& e, program::ValueId id, const PlainCache& expected,
                     const char* name) {
        const std::span<std::byte> held = e.CacheBytes(id);
        for (size_t i = 0; i < expected.bytes.size(); ++i) {
            ASSERT_EQ(static_cast<int>(held[i]), static_cast<int>(expected.bytes[i]))
                << name << " cache, byte " << i << " of " << held.size();
        }
    }

    std::shared_ptr<gpu::Device> device_;
    Arithmetic arithmetic_;
    const AttentionShape& shape_;
    AttentionCase& problem_;
    PlainCache k_, v_;
};

inline void ExpectAttention(const std::vector<float>& got, const AttentionCase& problem,
                            const AttentionShape& shape, const std::string& what,
                            const AttentionRounding& rounding = {}) {
    std::vector<double> expected, bound;
    problem.Expected(&expected, &bound, rounding);
    double most_value = 0;
    for (size_t s = 0; s < problem.sequences().size(); ++s) {
        most_value = std::max(most_value, MostOf(problem.values(s)));
    }
    const double more = MoreBound(shape, 104, most_value);
    ASSERT_EQ(got.size(), expected.size()) << what;
    for (size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(got[i] - expected[i]);
        ASSERT_FALSE(!(error <= bound[i] + more))
            << what << ", element " << i << ": " << got[i] << ", expected " << expected[i]
            << ", bound " << bound[i] + more;
    }
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace weft::backend::on_gpu::test
