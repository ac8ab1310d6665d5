// Steps in parts: the same bits as in one piece, over any transport, number of ranks, threads and
// sequences; a lost peer ends them with an error.
#include "backend/cpu/step_parts.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backend/parts.h"
#include "coll/comm.h"
#include "net/local.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/tiny_model.h"

namespace weft::backend {
namespace {

using support::LoadedRank;
using support::OneGroup;

constexpr size_t kWindow = size_t{1} << 20;

std::vector<int32_t> HalvesTokens(size_t count) {
    std::vector<int32_t> tokens(count);
    for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>((i * 37 + 11) % 64);
    return tokens;
}

model::Hyper Dense() {
    return support::TinyHyper("qwen3", false);
}

// Experts, a shared expert, and its gate.
model::Hyper Experts() {
    model::Hyper h = support::TinyHyper("qwen2moe", false);
    h.moe.experts = 5;
    h.moe.used = 2;
    h.moe.ffn = h.moe.shared_ffn = 12;
    return h;
}

// Experts after latent attention.
model::Hyper LatentExperts() {
    model::Hyper h = Experts();
    h.architecture = "deepseek2";
    h.latent = {.rank = 8, .q_rank = 0, .nope = 6, .rope = 4, .value = 4};
    return h;
}

// With an indexer that selects nine positions.
model::Hyper SparseExperts() {
    model::Hyper h = LatentExperts();
    h.architecture = "deepseek32";
    h.latent.q_rank = 8;
    h.indexer.top = 9;
    h.indexer.heads = 3;
    h.indexer.dim = 6;
    return h;
}

// An indexer that selects three blocks of four positions for each KV head.
model::Hyper Blocks() {
    model::Hyper h = support::TinyHyper("minimax-m3", false);
    h.indexer = {
        .top = 12, .heads = h.kv_heads, .dim = 6, .block = 4, .local = 1, .own = {true, true}};
    return h;
}

// Recurrent layers, whose state passes from the first half to the second.
model::Hyper WithState() {
    return support::TinyRecurrentHyper(false);
}

struct Model {
    model::Hyper hyper = Dense();
    support::TinySource source{hyper};
    std::vector<program::Program> Programs(int tp) const {
        model::Layout layout;
        layout.tp = tp;
        model::BuildOptions options;
        options.kv_dtype = DType::kF32;
        return support::Build(hyper, source, layout, options);
    }
};

// Result of each rank's `body`, which gets the group's Comm.
using Body = std::function<std::vector<float>(size_t rank, coll::Comm& comm)>;
std::vector<std::vector<float>> OnRanks(int tp, net::Transport transport, const Body& body) {
    auto fabrics = net::MakeLocalFabrics(tp, transport, kWindow).value();
    std::vector<std::vector<float>> got(static_cast<size_t>(tp));
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        std::vector<int> ranks(static_cast<size_t>(tp));
        std::iota(ranks.begin(), ranks.end(), 0);
        const auto comm =
            coll::Comm::Make(fabric, ranks, {0, kWindow, 0, net::kFlags}, 10'000).value();
        const auto rank = static_cast<size_t>(fabric.rank);
        got[rank] = body(rank, *comm);
    });
    return got;
}

// Number of all-reduces in the last step.
int64_t Sums(LoadedRank& rank, const program::Program& program) {
    return std::ranges::count_if(rank.executable().timings(), [&](const OpTiming& timing) {
        return program.ops[static_cast<size_t>(timing.op)].kind() == program::OpKind::kAllReduce;
    });
}

class HalvesOf : public testing::TestWithParam<model::Hyper (*)()> {};

INSTANTIATE_TEST_SUITE_P(Models, HalvesOf,
                         testing::Values(Dense, Experts, LatentExperts, SparseExperts, Blocks,
                                         WithState));

TEST_P(HalvesOf, GiveTheSameBits) {
    const Model model{GetParam()()};
    const CpuLevel best = BestCpuLevel(DetectCpu());
    for (int tp : {2, 3}) {
        const std::vector<program::Program> programs = model.Programs(tp);
        std::vector<float> first;
        for (net::Transport transport : {net::Transport::kShm, net::Transport::kTcp}) {
            for (Overlap overlap : {Overlap::kNever, Overlap::kAlways}) {
                for (int threads : {1, 2}) {
                    const auto got = OnRanks(tp, transport, [&](size_t r, coll::Comm& comm) {
                        LoadedRank rank(programs[r], model.source, {threads, {}, true, best}, 90,
                                        overlap);
                        rank.executable().SetTracing(true);
                        // Even and odd steps, and one-row steps, which have no parts.
                        std::vector<float> logits = rank.Logits(HalvesTokens(84), 42, {&comm});
                        const int64_t whole =
                            std::ranges::count_if(programs[r].ops, [](const program::Op& op) {
                                return op.kind() == program::OpKind::kAllReduce;
                            });
                        EXPECT_EQ(Sums(rank, programs[r]),
                                  overlap == Overlap::kAlways ? kMostParts * whole : whole);
                        EXPECT_EQ(rank.Logits(HalvesTokens(84), 31, {&comm}), logits);
                        const auto few = rank.Logits(HalvesTokens(3), 1, {&comm});
                        EXPECT_TRUE(std::equal(few.begin(), few.end(), logits.begin()));
                        return logits;
                    });
                    if (first.empty()) first = got[0];
                    for (const std::vector<float>& logits : got) {
                        EXPECT_EQ(logits, first) << tp << " ranks, " << threads << " threads";
                    }
                }
            }
        }
    }
}

// Three sequences, one of them on both sides of the cut, and outputs of some rows.
// Three sequences, each in a state slot of its own, with another written in between.
// narrow: the second sequence is a prompt whose sums are sent as bf16.
std::vector<float> LogitsOfSequences(const Model& model, Overlap overlap, bool narrow = false) {
    const std::vector<program::Program> programs = model.Programs(2);
    const std::vector<int32_t> tokens = HalvesTokens(41);
    const std::vector<int32_t> pages[] = {{1}, {3, 0}, {2}};
    std::vector<int32_t> positions;
    std::vector<StepSequence> sequences;
    int32_t row = 0;
    for (int32_t count : {5, 30, 6}) {
        const size_t i = sequences.size();
        sequences.push_back({row, count, 0, pages[i]});
        sequences[i].state_to = static_cast<int32_t>(i);
        for (int32_t at = 0; at < count; ++at) positions.push_back(at);
        row += count;
    }
    const std::vector<StateWrite> between = {{18, 3}, {25, 3}};
    sequences[1].state_writes = between;
    sequences[1].prompt_rows = narrow ? 29 : 0;
    const std::vector<int32_t> outputs = {4, 19, 20, 34, 40};
    const auto logits = OnRanks(2, net::Transport::kTcp, [&](size_t r, coll::Comm& comm) {
        LoadedRank rank(programs[r], model.source, {2, {}, true, CpuLevel::kReference}, 64,
                        overlap);
        const Step step{1, tokens, positions, sequences, outputs};
        Communicators groups{&comm};
        groups.prompt_wire = SumWire::kBF16;
        EXPECT_TRUE(rank.executable().Run(rank.executable().whole(), step, groups).ok());
        std::vector<float> all(outputs.size() * static_cast<size_t>(model.hyper.vocab));
        EXPECT_TRUE(rank.executable().ReadFloats(programs[r].Find("logits"), 0, all).ok());
        return all;
    });
    EXPECT_EQ(logits[0], logits[1]);
    return logits[0];
}

TEST(Halves, CutSequences) {
    for (const auto& hyper : {Dense(), SparseExperts(), Blocks(), WithState()}) {
        const Model model{hyper};
        EXPECT_EQ(LogitsOfSequences(model, Overlap::kAlways),
                  LogitsOfSequences(model, Overlap::kNever));
    }
}

// A hidden size of 64, because shorter rows are never narrow.
TEST(Halves, NarrowRowsOfPromptsHaveTheSameBits) {
    model::Hyper hyper = Dense();
    hyper.hidden = 64;
    const Model model{hyper};
    const std::vector<float> wide = LogitsOfSequences(model, Overlap::kNever);
    const std::vector<float> narrow = LogitsOfSequences(model, Overlap::kNever, true);
    EXPECT_EQ(LogitsOfSequences(model, Overlap::kAlways, true), narrow);
    // Outputs 1 to 3 are of the prompt; the other sequences keep their bits.
    const auto vocab = static_cast<size_t>(model.hyper.vocab);
    for (size_t output = 0; output < 5; ++output) {
        const auto begin = static_cast<ptrdiff_t>(output * vocab);
        const bool same =
            std::equal(wide.begin() + begin, wide.begin() + begin + vocab, narrow.begin() + begin);
        EXPECT_EQ(same, output == 0 || output == 4) << output;
    }
}

TEST(Halves, ALostPeerEndsTheStepOnAllThreads) {
    const Model model;
    for (net::Transport transport : {net::Transport::kShm, net::Transport::kTcp}) {
        auto fabrics = net::MakeLocalFabrics(2, transport, kWindow).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const auto comm =
                coll::Comm::Make(fabric, {0, 1}, {0, kWindow, 0, net::kFlags}, 500).value();
            LoadedRank rank(model.Programs(2)[static_cast<size_t>(fabric.rank)], model.source,
                            {3, {}, true, CpuLevel::kReference}, 64, Overlap::kAlways);
            EXPECT_TRUE(rank.Run(HalvesTokens(20), 0, OneGroup(*comm).groups).ok());
            if (fabric.rank == 1) {
                fabric.links.clear();
                return;
            }
            for (int step = 0; step < 2; ++step) {
                const Status status = rank.Run(HalvesTokens(20), 20, OneGroup(*comm).groups);
                ASSERT_FALSE(status.ok());
                EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
                EXPECT_NE(status.error().message.find("rank 1"), std::string::npos);
            }
        });
    }
}

// After each all-reduce except the last layer's: residual, norm, and the norm's prepared form if
// weights are quantized. Excludes the embedding's residual.
TEST(Tails, FollowEachSum) {
    const Model model;
    const program::Program program = model.Programs(2)[0];
    CompileOptions options;
    options.max_tokens = 4;
    options.kv_pages = 1;
    const kernels::Kernels& kernels = kernels::KernelsFor(CpuLevel::kReference);
    const program::ChunkedProgram chunked{program};
    Buffers buffers(chunked, options, kernels);
    ASSERT_TRUE(buffers.Allocate().ok());
    const std::vector<Call> calls = LowerProgram(buffers, 3).value().plain;
    int sums = 0, tails = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].kind != CallKind::kAllReduce) {
            EXPECT_EQ(calls[i].tail, 0);
            continue;
        }
        ++sums;
        tails += calls[i].tail;
        const size_t after = i + static_cast<size_t>(calls[i].tail) + 1;
        EXPECT_TRUE(calls[i].tail == 0 || (after < calls.size() && calls[after].barrier));
    }
    EXPECT_GE(sums, 3);
    // The first tail has a norm, those between layers a residual and a norm, the last a residual.
    EXPECT_GE(tails, 2 * sums - 3);
}

}  // namespace
}  // namespace weft::backend
