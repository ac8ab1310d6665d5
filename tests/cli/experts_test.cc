// Models with experts and with latent attention in the whole program: every layout gives the answer
// of one rank, over shared memory and TCP; and the loss of a rank among expert groups is named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>

#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr const char* kTokens =
    "1,77,200,33,250,9,104,61,180,5,5,222,90,14,131,47,66,201,7,112,19,240,58,3,88";

// Nine heads, ten experts of six blocks of 32 columns: counts that two or three ranks divide are
// not powers of two.
TinyFile ExpertFile(const std::string& architecture, DType dtype) {
    TinyFile file{.hyper = OddHyper(architecture), .dtype = dtype};
    model::Hyper& h = file.hyper;
    h.ffn = 256;
    h.moe.experts = 10;
    h.moe.used = 3;
    h.moe.ffn = 192;
    if (architecture == "qwen2moe") h.moe.shared_ffn = 384;
    return file;
}

// Like DeepSeek-V3: latent attention, a dense first layer, a shared expert, expert groups.
TinyFile LatentFile(DType dtype) {
    TinyFile file = ExpertFile("deepseek2", dtype);
    model::Hyper& h = file.hyper;
    h.latent = {.rank = 64, .q_rank = 64, .nope = 32, .rope = 32, .value = 32};
    h.head_dim = 64;
    h.moe.experts = 12;
    h.moe.shared_ffn = 256;
    h.moe.route.score = program::GateScore::kSigmoid;
    h.moe.route.renormalise = true;
    h.moe.route.scale = 2.5f;
    h.moe.route.groups = 4;
    h.moe.route.groups_used = 2;
    file.form.dense_layers = 1;
    return file;
}

// Like GLM 5.2: an indexer that selects 7 positions, and a layer that reuses the selection.
TinyFile SparseFile(DType dtype) {
    TinyFile file = LatentFile(dtype);
    model::Hyper& h = file.hyper;
    h.architecture = "glm-dsa";
    h.indexer.top = 7;
    h.indexer.heads = 5;
    h.indexer.dim = 64;
    h.indexer.own = {true, false, true};
    return file;
}

TinyFile FileOf(const std::string& architecture, DType dtype) {
    if (architecture == "glm-dsa") return SparseFile(dtype);
    return architecture == "deepseek2" ? LatentFile(dtype) : ExpertFile(architecture, dtype);
}

class ExpertRuns : public testing::Test {
  protected:
    std::string Model(const std::string& architecture, DType dtype) {
        const std::string path = dir_ / (architecture + std::string(Info(dtype).name) + ".gguf");
        if (!std::filesystem::exists(path)) WriteTinyGguf(path, FileOf(architecture, dtype));
        return path;
    }

    // The greedy answer as tokens.
    static nlohmann::json Answer(const std::string& model, const std::string& flags) {
        const Ran ran = RunWeft(Words{"run", model, "-p", "hello there", "-n", "10", "--temp", "0",
                                      "--ignore-eos", "-t", "1", "--json"} +
                                SplitWords(flags));
        EXPECT_EQ(ran.status, 0) << model << " " << flags << ": " << ran.err;
        return ran.status == 0 ? ran.Json()["tokens"] : nlohmann::json();
    }

    Matrix Logits(const std::string& model, const std::string& flags) {
        const std::string npy = dir_ / "logits.npy";
        const Words threads = flags.find("-t ") == flags.npos ? Words{"-t", "1"} : Words{};
        std::filesystem::remove(npy);
        const Ran ran =
            RunWeft(Words{"logits", model, "--tokens", kTokens, "--npy", npy, "--all", "--verify"} +
                    SplitWords(flags) + threads);
        EXPECT_EQ(ran.status, 0) << model << " " << flags << ": " << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }

    void ExpectLogits(const std::string& model, const Matrix& one, const std::string& flags,
                      double bound) {
        SCOPED_TRACE(model + " " + flags);
        const Matrix many = Logits(model, flags);
        ASSERT_EQ(many.rows, one.rows);
        for (size_t row = 0; row < one.rows; ++row) {
            EXPECT_LE(RelativeL2(many.Row(row), one.Row(row)), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
};

const char* const kLayouts[] = {"--tp 2",
                                "--tp 3",
                                "--tp 3 --tensor-split 1,3,2",
                                "--pp 2",
                                "--tp 2 --pp 2",
                                "--tp 2 --ep 2",
                                "--tp 2 --ep 2 --tensor-split 3,1",
                                "--tp 3 --ep 3 --tensor-split 1,1,2",
                                "--tp 4 --ep 2",
                                "--tp 2 --ep 2 --pp 2"};

using Architectures = std::array<const char*, 2>;

// Values that depend on the order of sums are rounded after float64 (layout_test.cc), so greedy
// answers stay the same.
// On a GPU (tests/vulkan/tests.cmake), the processor computes the experts or whole layers. On a
// processor, these flags change nothing.
TEST_F(ExpertRuns, ExpertsAndLayersOnTheProcessor) {
    for (const char* const architecture : {"qwen2moe", "deepseek2"}) {
        const std::string model = Model(architecture, DType::kF32);
        const Matrix one = Logits(model, "--kv-dtype f32");
        for (const char* const flags :
             {"--experts cpu", "--n-cpu-moe 2 --prefill-chunk 7", "-ot exps=CPU --tp 2",
              "-ngl 1 --experts cpu", "--experts 0.5 --pp 2", "--experts auto",
              "--experts cpu --experts-stream-rows 5 --prefill-chunk 12",
              "--cpu-moe --experts-stream-rows 8 --prefill-chunk 12 --tp 2",
              "--weights-on-drive"}) {
            ExpectLogits(model, one, std::string("--kv-dtype f32 ") + flags, 5e-5);
        }
    }
}

TEST_F(ExpertRuns, ExpertsOnTheDriveKeepTheBits) {
    for (const char* const architecture : {"qwen2moe", "deepseek2"}) {
        const std::string model = Model(architecture, DType::kQ8_0);
        const Matrix one = Logits(model, "");
        for (const char* const flags :
             {"--weights-on-drive", "--weights-on-drive --memory 120MiB --prefill-chunk 7",
              "--weights-on-drive --tp 2", "--weights-on-drive --pp 2"}) {
            ExpectLogits(model, one, flags, 0);
        }
    }
    const Ran ran = RunWeft({"run", Model("qwen2moe", DType::kQ8_0), "-p", "hello", "-n", "4",
                             "--ignore-eos", "--weights-on-drive", "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(ran.Json()["ranks"][0]["drive"]["misses"], 0);
}

// The next job begins with the experts that this one used.
TEST_F(ExpertRuns, UsesOfExpertsOnTheDriveAreKept) {
    const std::string model = Model("qwen2moe", DType::kQ8_0);
    const std::filesystem::path folder = dir_ / "cache/weft/expert_use";
    int64_t misses[2] = {};
    for (int64_t& missed : misses) {
        Weft weft(Words{"run", model, "-p", "hello", "-n", "4", "--ignore-eos", "--temp", "0",
                        "--weights-on-drive", "--json"},
                  {"XDG_CACHE_HOME=" + std::string(dir_ / "cache")});
        const Ran ran = weft.Wait();
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json rank = ran.Json()["ranks"][0];
        if (rank.contains("drive")) missed = rank["drive"]["misses"];
        const auto files = std::filesystem::directory_iterator(folder);
        EXPECT_EQ(std::distance(begin(files), end(files)), 2);  // one, and its lock
    }
    EXPECT_GT(misses[0], misses[1]);
}

TEST_F(ExpertRuns, ExpertsOnTheDriveAreChecked) {
    const std::string model = Model("qwen2moe", DType::kF32);
    const std::string dense = dir_ / "dense.gguf";
    WriteTinyGguf(dense, {.hyper = OddHyper("llama"), .dtype = DType::kF32});
    const std::tuple<std::string, const char*, const char*> wrong[] = {
        {model, "--weights-on-drive --memory 20MiB", "of memory are too few"},
        {model, "--memory 20MiB", "--memory limits --weights-on-drive"},
        {model, "--weights-on-drive --weights-from 0", "reads the host's own copy"},
        {dense, "--weights-on-drive", "the model has none"}};
    for (const auto& [file, flags, error] : wrong) {
        const Ran ran = RunWeft(Words{"logits", file, "--tokens", "1"} + SplitWords(flags));
        EXPECT_NE(ran.status, 0) << flags;
        EXPECT_NE(ran.err.find(error), std::string::npos) << flags << ": " << ran.err;
    }
}

TEST_F(ExpertRuns, PlacesOfExpertsAreChecked) {
    const std::string model = Model("qwen2moe", DType::kF32);
    const std::pair<const char*, const char*> wrong[] = {
        {"--experts disk", "--experts disk: expected gpu, cpu, auto, cpu:N"},
        {"--experts 1.5", "from 0 to 1"},
        {"--experts cpu:x", "cpu:N"},
        {"--experts cpu --cpu-moe", "--experts and --cpu-moe both place the experts"},
        {"-ot blk.1.ffn_up.weight=CPU", "only exps=CPU is known"},
        {"-ngl -3", "-ngl: '-3'"}};
    for (const auto& [flags, error] : wrong) {
        const Ran ran = RunWeft(Words{"logits", model, "--tokens", "1"} + SplitWords(flags));
        EXPECT_EQ(ran.status, 2) << flags;
        EXPECT_NE(ran.err.find(error), std::string::npos) << flags << ": " << ran.err;
    }
    const std::string dense = dir_ / "dense.gguf";
    WriteTinyGguf(dense, {.hyper = OddHyper("llama"), .dtype = DType::kF32});
    const Ran ran = RunWeft({"logits", dense, "--tokens", "1", "--experts", "cpu"});
    EXPECT_NE(ran.err.find("the model has no experts"), std::string::npos) << ran.err;
}

TEST_F(ExpertRuns, GreedyTextIsThatOfOneRank) {
    size_t turn = 0;
    for (const char* architecture : {"qwen3moe", "deepseek2"}) {
        const std::string model = Model(architecture, DType::kQ4_0);
        const nlohmann::json one = Answer(model, "");
        ASSERT_EQ(one.size(), 10u) << architecture;
        for (const char* layout : test::Some(kLayouts, 2, turn++)) {
            EXPECT_EQ(Answer(model, layout), one) << architecture << " " << layout;
        }
    }
}

TEST_F(ExpertRuns, GreedyTextOverTcp) {
    for (const char* architecture : test::Some(Architectures{"qwen3moe", "deepseek2"}, 2)) {
        const std::string model = Model(architecture, DType::kQ8_0);
        const nlohmann::json one = Answer(model, "");
        for (const char* layout : {"--tp 3", "--tp 2 --ep 2 --pp 2", "--tp 4 --ep 2"}) {
            EXPECT_EQ(Answer(model, layout + std::string(" --transport tcp")), one)
                << architecture << " " << layout;
        }
    }
}

TEST_F(ExpertRuns, LogitsInEveryLayout) {
    for (const char* architecture : test::Some(Architectures{"qwen2moe", "deepseek2"}, 2, 1)) {
        const std::string model = Model(architecture, DType::kF32);
        const Matrix one = Logits(model, "--kv-dtype f32");
        ASSERT_EQ(one.rows, 25u);
        for (const char* layout :
             {"--tp 3 --tensor-split 1,3,2", "--tp 4 --ep 2", "--tp 2 --ep 2 --pp 2"}) {
            ExpectLogits(model, one, layout + std::string(" --kv-dtype f32"), 1e-4);
        }
    }
}

// Whole experts per rank keep blocks that a split by columns would cut (16 columns are not a Q8_0
// block). Without --ep, Weft chooses the expert groups that the file needs.
TEST_F(ExpertRuns, AFileThatNeedsExpertGroupsGetsThem) {
    TinyFile file = ExpertFile("qwen3moe", DType::kQ8_0);
    file.hyper.moe.ffn = 32;
    const std::string model = dir_ / "whole.gguf";
    WriteTinyGguf(model, file);
    const Matrix one = Logits(model, "");
    ExpectLogits(model, one, "--tp 2", 5e-3);
    const Ran refused = RunWeft({"logits", model, "--tokens", kTokens, "--tp", "2", "--ep", "1"});
    EXPECT_EQ(refused.status, 1) << refused.err;
    EXPECT_NE(refused.err.find("or --ep, which keeps"), std::string::npos) << refused.err;
}

// A row's bits do not depend on its prefill chunk, the threads, or the stages.
TEST_F(ExpertRuns, ChunksThreadsAndStagesKeepTheBits) {
    for (const char* architecture : test::Some(Architectures{"qwen3moe", "deepseek2"}, 2, 1)) {
        const std::string model = Model(architecture, DType::kQ4_0);
        const Matrix one = Logits(model, "");
        for (const char* flags :
             {"--prefill-chunk 1", "--prefill-chunk 7", "-t 2", "--pp 2 --prefill-chunk 5"}) {
            ExpectLogits(model, one, flags, 0);
        }
    }
}

// The rows of experts run in two halves, so that all-reduces overlap.
TEST_F(ExpertRuns, OverlapKeepsTheBits) {
    for (const char* architecture : test::Some(Architectures{"qwen2moe", "deepseek2"}, 2)) {
        const std::string model = Model(architecture, DType::kQ4_0);
        for (const char* layout : {"--tp 3", "--tp 2 --ep 2"}) {
            const Matrix whole = Logits(model, layout + std::string(" --overlap off"));
            ExpectLogits(model, whole, layout + std::string(" --overlap on"), 0);
        }
    }
}

// An indexer's selection depends neither on the layout nor on the prefill chunk.
TEST_F(ExpertRuns, SparseAttentionIsThatOfOneRank) {
    const std::string model = Model("glm-dsa", DType::kF32);
    const Matrix one = Logits(model, "--kv-dtype f32");
    ASSERT_EQ(one.rows, 25u);
    for (const char* flags :
         {"--prefill-chunk 1", "--prefill-chunk 7 -t 2", "--pp 2 --prefill-chunk 5"}) {
        ExpectLogits(model, one, flags + std::string(" --kv-dtype f32"), 0);
    }
    ExpectLogits(model, one, "--tp 3 --tensor-split 1,3,2 --kv-dtype f32", 1e-4);
    const Matrix whole = Logits(model, "--tp 2 --overlap off");
    ExpectLogits(model, whole, "--tp 2 --overlap on", 0);
}

// ---- Faults -------------------------------------------------------------------------------------

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kExpertsSlackMs = 3000;
#else
constexpr int64_t kExpertsSlackMs = 1000;
#endif

TEST_F(ExpertRuns, ARankKilledInDecodeIsNamedInTime) {
    TinyFile file = LatentFile(DType::kQ8_0);
    file.hyper.context = 1 << 20;
    const std::string model = dir_ / "long.gguf";
    WriteTinyGguf(model, file);
    constexpr int64_t kExpertsTimeoutMs = 800;
    for (const char* transport : {"shm", "tcp"}) {
        SCOPED_TRACE(transport);
        const int64_t timeout_ms = test::TimeoutMs(kExpertsTimeoutMs);
        Weft weft({"run", model, "-p", "hello", "-n", "500000", "--ignore-eos", "-t", "1", "--tp",
                   "3", "--ep", "3", "--transport", transport, "--timeout-ms",
                   std::to_string(timeout_ms)});
        test::Until([&] { return weft.Out().size() > 5; });
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 2u) << weft.Err();
        const int64_t begin_ns = NowNs();
        ::kill(ranks[1], SIGKILL);
        const Ran ran = weft.Wait(10'000);
        EXPECT_LE(NowNs() - begin_ns, (timeout_ms + test::LimitMs(kExpertsSlackMs)) * 1'000'000);
        EXPECT_EQ(ran.status, 3) << ran.err;
        for (const char* words : {"rank 2 (host ", "was lost", " of step ", transport}) {
            EXPECT_NE(ran.err.find(words), std::string::npos) << words << ": " << ran.err;
        }
        for (pid_t pid : ranks) EXPECT_TRUE(test::IsGone(pid));
    }
}

}  // namespace
}  // namespace weft::support
