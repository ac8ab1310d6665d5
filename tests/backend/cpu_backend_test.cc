// The CPU backend against itself: any threads, chunks and tensor splits give the result of one
// thread with the reference kernels, one token at a time.
#include "backend/cpu/cpu_device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "coll/comm.h"
#include "net/local.h"
#include "support/cpu_levels.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace weft::backend {
namespace {

using support::LoadedRank;
using support::OneGroup;

std::vector<int32_t> Tokens(const model::Hyper& hyper, size_t count) {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) {
        tokens[i] = static_cast<int32_t>((i * 31 + 7) % static_cast<size_t>(hyper.vocab));
    }
    return tokens;
}

double CpuBackendRelativeError(const std::vector<float>& got, const std::vector<float>& want) {
    if (got.size() != want.size()) return INFINITY;
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        error += std::pow(static_cast<double>(got[i]) - want[i], 2);
        size += std::pow(static_cast<double>(want[i]), 2);
    }
    return std::sqrt(error / size);
}

struct Case {
    model::Hyper hyper;
    support::TinySource source;
    explicit Case(const std::string& architecture)
        : hyper(support::TinyHyper(architecture, architecture == "qwen2")), source(hyper) {}
    std::vector<program::Program> Programs(int tp, bool float64_reductions = true) const {
        model::BuildOptions options;
        options.kv_dtype = DType::kF32;
        options.target.float64_reductions = float64_reductions;
        model::Layout layout;
        layout.tp = tp;
        return support::Build(hyper, source, layout, options);
    }
    std::vector<float> Reference(std::span<const int32_t> tokens) const {
        return LoadedRank(Programs(1)[0], source, {}).Logits(tokens, 1);
    }
};

// Float32 throughout: results differ by the order of sums, 2^-24 each over some hundred terms and
// two layers.
constexpr double kFloatError = 2e-5;

TEST(CpuBackend, ThreadsChunksAndLevelsGiveTheReference) {
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
        const Case c(architecture);
        const std::vector<int32_t> tokens = Tokens(c.hyper, 70);
        const std::vector<float> want = c.Reference(tokens);
        for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
            std::vector<float> first;
            for (int threads : {1, 2, 3}) {
                LoadedRank rank(c.Programs(1)[0], c.source, {threads, {}, threads > 2, level});
                for (size_t piece : {size_t{1}, size_t{7}, size_t{64}}) {
                    const std::vector<float> got = rank.Logits(tokens, piece);
                    EXPECT_FALSE(!(CpuBackendRelativeError(got, want) <= kFloatError))
                        << architecture << " " << CpuLevelName(level);
                    if (first.empty()) first = got;
                    // Equal bits for any distribution of the work.
                    EXPECT_EQ(got, first) << architecture << " " << CpuLevelName(level) << " "
                                          << threads << " threads, pieces of " << piece;
                }
            }
        }
    }
}

// Tensor ranks of both kinds work together: their devices have one identity.
TEST(CpuBackend, AvxVnniHasTheIdentityAndTheBitsOfAvx2) {
    const std::vector<CpuLevel> levels = test::TestedCpuLevels();
    if (std::ranges::count(levels, CpuLevel::kAvxVnni) == 0) GTEST_SKIP() << "without AVX2";
    const backend::DeviceInfo own = backend::DescribeCpu(CpuLevel::kAvxVnni);
    EXPECT_EQ(own.kernels, "avxvnni");
    EXPECT_EQ(own.identity, backend::DescribeCpu(CpuLevel::kAvx2).identity);
    const test::TempDir dir;
    support::WriteTinyGguf(dir / "q8.gguf",
                           {.hyper = support::TrainHyper(), .dtype = DType::kQ8_0});
    const auto source = model_files::OpenModel(dir / "q8.gguf").value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    const program::Program program = support::Build(hyper, *source, {}, {})[0];
    const auto logits = [&](CpuLevel level) {
        return LoadedRank(program, *source, {2, {}, true, level}).Logits(Tokens(hyper, 5), 3);
    };
    EXPECT_EQ(logits(CpuLevel::kAvxVnni), logits(CpuLevel::kAvx2));
}

// Each rank's logits of the tokens.
std::vector<std::vector<float>> OnTensorRanks(const Case& c, std::span<const int32_t> tokens,
                                              const std::vector<program::Program>& programs) {
    const auto tp = static_cast<int>(programs.size());
    auto fabrics = net::MakeLocalFabrics(tp, net::Transport::kShm, size_t{1} << 20).value();
    std::vector<std::vector<float>> got(programs.size());
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        std::vector<int> ranks(static_cast<size_t>(tp));
        std::iota(ranks.begin(), ranks.end(), 0);
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
        const auto r = static_cast<size_t>(fabric.rank);
        LoadedRank rank(programs[r], c.source, {2, {}, true, CpuLevel::kReference});
        got[r] = rank.Logits(tokens, 6, OneGroup(*comm).groups);
    });
    return got;
}

TEST(CpuBackend, TensorRanksGiveWhatOneRankGives) {
    for (const char* architecture : {"llama", "qwen3"}) {
        const Case c(architecture);
        const std::vector<int32_t> tokens = Tokens(c.hyper, 20);
        const std::vector<float> want = c.Reference(tokens);
        for (int tp : {2, 3, 4}) {
            const auto got = OnTensorRanks(c, tokens, c.Programs(tp));
            for (const std::vector<float>& logits : got) {
                EXPECT_FALSE(!(CpuBackendRelativeError(logits, want) <= kFloatError))
                    << "tp " << tp;
                EXPECT_EQ(logits, got[0]) << "tensor ranks differ at tp " << tp;
            }
        }
    }
}

// A device without float64 sums in float32; all ranks still hold the same bits.
TEST(CpuBackend, TensorRanksWithoutWideSumsAreAsNear) {
    const Case c("llama");
    const std::vector<int32_t> tokens = Tokens(c.hyper, 20);
    const std::vector<float> want = c.Reference(tokens);
    for (int tp : {1, 3}) {
        const auto got = OnTensorRanks(c, tokens, c.Programs(tp, false));
        for (const std::vector<float>& logits : got) {
            EXPECT_FALSE(!(CpuBackendRelativeError(logits, want) <= kFloatError)) << "tp " << tp;
            EXPECT_EQ(logits, got[0]) << "tensor ranks differ at tp " << tp;
        }
    }
}

TEST(CpuBackend, ALostPeerFailsTheStepOnAllThreads) {
    const Case c("llama");
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        if (fabric.rank == 1) {
            fabric.links.clear();
            return;
        }
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, {0, 1}, channel, 500).value();
        LoadedRank rank(c.Programs(2)[0], c.source, {3, {}, true, CpuLevel::kReference});
        const std::vector<int32_t> tokens = Tokens(c.hyper, 3);
        for (int step = 0; step < 2; ++step) {
            const Status status = rank.Run(tokens, 0, OneGroup(*comm).groups);
            ASSERT_FALSE(status.ok());
            EXPECT_NE(status.error().message.find("rank 1"), std::string::npos)
                << status.error().message;
        }
    });
}

TEST(CpuBackend, TrainingOpsAreRefusedByName) {
    program::Program program;
    const program::ValueId x = program.Emit(program::Zero{}, {}, "x", {program::kTokens, 8});
    program.Emit(program::Glu{}, {x, x}, "y", {program::kTokens, 8});
    const auto result = MakeCpuDevice({})->Compile({program}, {});
    ASSERT_FALSE(result.ok());
    EXPECT_NE(result.error().message.find("zero"), std::string::npos) << result.error().message;
}

}  // namespace
}  // namespace weft::backend
