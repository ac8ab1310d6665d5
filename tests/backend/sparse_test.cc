// Models whose indexer selects 5 positions, or two blocks of three. Rows compute the same bits
// alone and among rows of other sequences, after pages that another sequence filled, after copies
// of such pages, and on two pipeline stages.
#include <gtest/gtest.h>

#include <numeric>

#include "coll/comm.h"
#include "net/local.h"
#include "support/golden_experts.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

class SparseModel : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Golden, SparseModel, testing::Values("glmDsaTop", "minimaxM3Top"),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(SparseModel, BatchesAndSharedPagesKeepTheBits) {
    const test::TempDir dir;
    WriteTinyGguf(dir / "sparse.gguf", ExpertGoldenFile(GetParam()));
    const auto source = model_files::OpenModel(dir / "sparse.gguf").value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    const auto plan = model::PlanShards(hyper, *source, {}).value();
    const auto program = model::BuildProgram(hyper, plan.shards[0], *source, {}).value();
    LoadedRank rank(program, *source, {2, {}, true, BestCpuLevel(DetectCpu())});
    std::vector<int32_t> tokens(100);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 37 % 267);
    const std::vector<float> alone = rank.Logits(tokens, 64);  // in pages 2 and 0
    const auto vocab = static_cast<size_t>(hyper.vocab);

    // The last 36 tokens after a filled page, together with the first 20 from the beginning.
    std::vector<int32_t> now(tokens.begin() + 64, tokens.end()), positions(56), rows(56);
    now.insert(now.end(), tokens.begin(), tokens.begin() + 20);
    std::iota(positions.begin(), positions.begin() + 36, 64);
    std::iota(positions.begin() + 36, positions.end(), 0);
    std::iota(rows.begin(), rows.end(), 0);
    const auto run = [&](std::vector<int32_t> first, std::vector<backend::PageCopy> copies) {
        const std::vector<int32_t> second = {3};
        const std::vector<backend::StepSequence> sequences = {{0, 36, 64, first},
                                                              {36, 20, 0, second}};
        backend::Step step{9, now, positions, sequences, rows};
        step.copies = copies;
        EXPECT_TRUE(rank.executable().Run(rank.executable().whole(), step, {}).ok());
        std::vector<float> got(56 * vocab);
        EXPECT_TRUE(rank.executable().ReadFloats(program.Find("logits"), 0, got).ok());
        return got;
    };
    std::vector<float> want(alone.end() - static_cast<std::ptrdiff_t>(36 * vocab), alone.end());
    want.insert(want.end(), alone.begin(), alone.begin() + static_cast<std::ptrdiff_t>(20 * vocab));
    EXPECT_EQ(run({2, 1}, {}), want);
    EXPECT_EQ(run({0, 1}, {{2, 0}}), want);
}

TEST_P(SparseModel, StagesKeepTheBits) {
    const test::TempDir dir;
    WriteTinyGguf(dir / "sparse.gguf", ExpertGoldenFile(GetParam()));
    const auto source = model_files::OpenModel(dir / "sparse.gguf").value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    std::vector<int32_t> tokens(40);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 37 % 267);
    const auto build = [&](int stages) {
        const auto layout = model::MakeLayout(stages, 1, stages, {}).value();
        const auto plan = model::PlanShards(hyper, *source, layout).value();
        std::vector<program::Program> programs;
        for (const model::Shard& shard : plan.shards) {
            programs.push_back(model::BuildProgram(hyper, shard, *source, {}).value());
        }
        return programs;
    };
    const backend::CpuOptions options{1, {}, true, BestCpuLevel(DetectCpu())};
    const std::vector<float> alone = LoadedRank(build(1)[0], *source, options).Logits(tokens, 16);
    const std::vector<program::Program> programs = build(2);
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    std::vector<float> got;
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, 10'000).value();
        LoadedRank rank(programs[static_cast<size_t>(fabric.rank)], *source, options);
        const auto logits = rank.Logits(tokens, 16, OneGroup(*comm).groups);
        if (fabric.rank == 0) got = logits;
    });
    EXPECT_EQ(got, alone);
}

}  // namespace
}  // namespace weft::support
