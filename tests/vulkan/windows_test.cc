// Attention to pooled windows on a GPU against kernels/reference, over random sizes and types.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/sparse.h"
#include "vulkan/plain_cache.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

using kernels::Sequence;
using kernels::test::AttentionCase;
using kernels::test::AttentionShape;
using kernels::test::kUlp;
using kernels::test::Random;
using program::kTokens;
using program::ValueId;
using test::BenchEmitter;
using test::PlainCache;

struct WindowCase {
    int64_t width, heads, window, stride, top;  // stride 0: no windows; top 0: all windows
    AttentionShape shape, pooled;               // of the positions, and of the windows
    AttentionCase problem;
    PlainCache cache, entries;
    std::vector<std::vector<float>> all_entries;  // of each sequence; a row per position
    std::vector<float> rows, entry, q, sinks;     // of the step's rows
    std::vector<int32_t> chosen;

    WindowCase(Random& random, int number)
        : width(random.Pick<int64_t>({32, 64, 512})),
          heads(random.Pick<int64_t>({1, 3, 20})),
          window(random.Pick<int64_t>({6, 128})),
          stride(std::vector<int64_t>{4, 8, 128, 0}[static_cast<size_t>(number) % 4]),
          top(stride == 4 ? random.Pick<int64_t>({3, 70}) : 0),
          shape(MakeShape(random, number)),
          pooled(shape),
          problem(shape, static_cast<uint32_t>(number)),
          cache(shape.dtype, shape, 1, problem.PageCount(), width),
          entries(shape.dtype, PooledShape(), 1, problem.PageCount(), width),
          q(random.Normals(problem.Rows() * heads * width)),
          sinks(random.Normals(heads)) {
        pooled = PooledShape();
        for (size_t s = 0; s < 2; ++s) {
            const Sequence& sequence = problem.sequences()[s];
            cache.Write(sequence, problem.keys(s), 0, sequence.position);
            all_entries.push_back(random.Normals(problem.Tokens(s) * width));
            WriteEntries(s, 0, sequence.position);
            const auto begin = sequence.position * width;
            rows.insert(rows.end(), problem.keys(s).begin() + begin, problem.keys(s).end());
            entry.insert(entry.end(), all_entries[s].begin() + begin, all_entries[s].end());
        }
        if (top == 0) return;
        kernels::ForIndexRows(problem.sequences(), [&](int64_t, auto&, int64_t, int64_t keys) {
            std::vector<int32_t> row(static_cast<size_t>(top));
            const int64_t seen = keys / stride;
            const std::vector<float> scores = random.Normals(seen);
            seen <= top ? kernels::ChooseAll(seen, row) : kernels::ChooseHighest(scores, row);
            chosen.insert(chosen.end(), row.begin(), row.end());
        });
    }
    AttentionShape MakeShape(Random& random, int number) const {
        AttentionShape made;
        made.dtype = kernels::test::RandomCacheType(random);
        made.head_dim = width;
        made.heads = made.group = 1;
        made.sequences = {{random.Int(300, 900), number / 4 % 2 == 0 ? 1 : 12},
                          {random.Int(0, 9), 9}};
        return made;
    }
    AttentionShape PooledShape() const {
        AttentionShape made = shape;
        if (stride != 0) made.page_tokens /= program::RowPositions(stride);
        return made;
    }
    kernels::Windows Windows() const { return {stride, program::RowPositions(stride)}; }
    void WriteEntries(size_t s, int64_t begin, int64_t end) {
        for (int64_t token = begin; stride != 0 && token < end; ++token) {
            if (!Windows().Ends(token)) continue;
            const int64_t row = Windows().Row(Windows().Seen(token) - 1);
            std::vector<float> at(static_cast<size_t>((row + 1) * width));
            std::copy_n(all_entries[s].begin() + token * width, width, at.end() - width);
            entries.Write(problem.sequences()[s], at, row, row + 1);
        }
    }
    // Also writes the step's own rows.
    void WriteAll() {
        for (size_t s = 0; s < 2; ++s) {
            const Sequence& sequence = problem.sequences()[s];
            cache.Write(sequence, problem.keys(s), sequence.position, problem.Tokens(s));
            WriteEntries(s, sequence.position, problem.Tokens(s));
        }
    }
    std::vector<float> Expected() const {
        std::vector<float> expected(q.size());
        kernels::WindowAttentionArgs args;
        args.sequences = problem.sequences();
        args.q = q.data();
        args.heads = heads, args.width = width, args.window = window;
        args.scale = problem.scale();
        args.sinks = sinks.data();
        args.cache = cache.cache;
        if (stride != 0) args.entries = entries.cache, args.windows = Windows();
        if (top != 0) args.chosen = chosen.data(), args.top = top;
        args.out = expected.data();
        kernels::KernelsFor(CpuLevel::kReference).windows(args, 0, 1);
        return expected;
    }
    // As LatentCase::Bound (latent_test.cc), with at most 128 positions and 227 windows.
    double Bound() const {
        const double dims = static_cast<double>(width);
        const double score = (dims + 4) * kUlp * 2 * std::sqrt(dims);
        double most = 0;
        for (size_t s = 0; s < 2; ++s) {
            most = std::max({most, test::MostOf(problem.keys(s)), test::MostOf(all_entries[s])});
        }
        return 2 * most * (4 * score + (2 * 355 + 40) * kUlp) + test::MoreBound(shape, 104, most);
    }
};

void CheckWindows(const std::shared_ptr<gpu::Device>& device, WindowCase& c) {
    BenchEmitter e(device, {.rows = static_cast<int32_t>(c.problem.Rows()), .positions = 1024});
    e.SetStep(test::StepOf(c.problem.sequences()));
    const auto add = [&](const AttentionShape& shape, const PlainCache& cache) {
        const ValueId id =
            e.AddCache({shape.dtype, 1, shape.page_tokens, c.width}, c.problem.PageCount());
        std::ranges::copy(cache.bytes, e.CacheBytes(id).begin());
        return id;
    };
    const ValueId held = add(c.shape, c.cache);
    const ValueId out = e.AddFloats({kTokens, c.heads * c.width});
    std::vector<ValueId> inputs = {e.AddFloats({kTokens, c.heads * c.width}, c.q),
                                   e.AddFloats({kTokens, c.width}, c.rows), e.AddVector(c.sinks)};
    ValueId pooled = program::kNoValue;
    if (c.stride != 0) inputs.push_back(e.AddFloats({kTokens, c.width}, c.entry));
    if (c.top != 0) inputs.push_back(e.AddInts({kTokens, c.top}, c.chosen));
    inputs.push_back(held);
    if (c.stride != 0) inputs.push_back(pooled = add(c.pooled, c.entries));
    const Status lowered = e.Lower(
        program::WindowAttention{c.heads, c.window, c.stride, c.problem.scale(), c.top != 0},
        inputs, {out});
    ASSERT_TRUE(lowered.ok()) << lowered.error().message;
    const Status ran = e.Run();
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    c.WriteAll();
    ASSERT_TRUE(std::ranges::equal(c.cache.bytes, e.CacheBytes(held)));
    if (c.stride != 0) {
        ASSERT_TRUE(std::ranges::equal(c.entries.bytes, e.CacheBytes(pooled)));
    }
    const std::vector<float> got = e.Floats(out), expected = c.Expected();
    const double bound = c.Bound();
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_FALSE(!(std::fabs(double{got[i]} - double{expected[i]}) <= bound))
            << "element " << i << ": " << got[i] << ", expected " << expected[i];
    }
}

// Chosen windows, all windows, windows longer than a page, and none; one row and many.
TEST(VulkanWindows, AttentionEqualsTheReference) {
    WEFT_VULKAN(device);
    Random random(13);
    for (int number = 0; number < 8; ++number) {
        WindowCase problem(random, number);
        SCOPED_TRACE(fmt::format("case {}: width {}, heads {}, window {}, stride {}, top {}, {}",
                                 number, problem.width, problem.heads, problem.window,
                                 problem.stride, problem.top, Info(problem.shape.dtype).name));
        CheckWindows(device, problem);
        ASSERT_FALSE(HasFatalFailure());
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
