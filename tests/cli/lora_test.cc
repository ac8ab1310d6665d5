// LoRA adapters in inference: they give the results of weights merged by 'weft merge', in every
// layout, also after the loss of a rank. Unusable adapters are refused by name before any weight is
// read.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr const char* kLoraTokens = "1,77,200,33,250,9,104,61,180,5,5,222,90,14,131,47,66";

// Same bounds as for layouts without adapters (layout_test.cc).
constexpr double kLoraFloatWeights = 1e-4;
constexpr double kLoraQuantizedWeights = 5e-3;
// On quantized weights the adapter is BF16, with an error of at most 2^-9 per number. The merged
// float32 weights use float32 activations, the quantized ones int8. Hence the bound of rounded
// activations.
constexpr double kLoraRoundedActivations = 3e-2;
// Without rounded activations (reference kernels), BF16 changes A and B by 2^-9 / sqrt(3) per
// number on average. That is 1.6e-3 of the adapter's addend, which is at most as large as the
// product itself; over two sums in each of three layers, sqrt(6) times that.
constexpr double kRoundedAdapter = 5e-3;

class Lora : public testing::Test {
  protected:
    std::string Model(DType dtype, const std::string& architecture = "llama") {
        const std::string path = dir_ / (architecture + std::string(Info(dtype).name) + ".gguf");
        WriteTinyGguf(path, {.hyper = OddHyper(architecture), .dtype = dtype});
        return path;
    }
    std::string Adapter(const std::string& model, const TinyAdapter& adapter = {},
                        const std::string& name = "adapter") {
        WriteTinyAdapter(dir_ / name, model, adapter);
        return dir_ / name;
    }
    std::string Merged(const std::string& model, const std::string& adapter) {
        const std::string out = dir_ / "merged.gguf";
        std::filesystem::remove(out);
        const Ran ran =
            RunWeft({"merge", model, "--lora", adapter, "-o", out, "--save-type", "F32"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return out;
    }
    Matrix Logits(const std::string& model, const Words& flags) {
        const std::string npy = dir_ / "logits.npy";
        std::filesystem::remove(npy);
        const Ran ran = RunWeft(Words{"logits", model, "--tokens", kLoraTokens, "--npy", npy, "-t",
                                      "1", "--all", "--kv-dtype", "f32"} +
                                flags);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }
    static void ExpectNear(const Matrix& got, const Matrix& expected, double bound) {
        ASSERT_EQ(got.rows, expected.rows);
        for (size_t row = 0; row < got.rows; ++row) {
            EXPECT_LE(RelativeL2(got.Row(row), expected.Row(row)), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
};

// In float32 they differ only in the order of sums: W x + B (A x) and (W + B A) x.
TEST_F(Lora, GivesTheTokensOfTheMergedModel) {
    const TinyAdapter adapters[] = {{},
                                    {.rank = 5, .alpha = 3, .rslora = true, .bf16 = true},
                                    {.rank = 17, .targets = "q_proj,down_proj"},
                                    {.dora = true},
                                    {.targets = "v_proj,o_proj", .whole = true}};
    size_t turn = 0;
    for (const char* architecture : {"llama", "qwen2", "qwen3"}) {
        const std::string model = Model(DType::kF32, architecture);
        for (const TinyAdapter& adapter : test::Some(adapters, 3, turn++)) {
            SCOPED_TRACE(fmt::format("{}, rank {}", architecture, adapter.rank));
            const std::string folder = Adapter(model, adapter);
            const Matrix merged = Logits(Merged(model, folder), {});
            const Matrix got = Logits(model, {"--lora", folder});
            ExpectNear(got, merged, kLoraFloatWeights);
            ExpectNear(Logits(model, {"--lora", folder, "--reference"}), merged, kLoraFloatWeights);
            EXPECT_GT(RelativeL2(got.data, Logits(model, {}).data), 0.1) << "it adds nothing";
        }
    }
}

TEST_F(Lora, BesideQuantizedWeights) {
    for (const DType dtype : test::Some(std::vector{DType::kQ4_1, DType::kQ4_K, DType::kBF16}, 2)) {
        SCOPED_TRACE(Info(dtype).name);
        const std::string model = Model(dtype);
        const std::string folder = Adapter(model, {.size = 0.3f});
        const Matrix merged = Logits(Merged(model, folder), {});
        ExpectNear(Logits(model, {"--lora", folder}), merged, kLoraRoundedActivations);
        ExpectNear(Logits(model, {"--lora", folder, "--reference"}), merged, kRoundedAdapter);
    }
}

TEST_F(Lora, AnyLayoutGivesTheTokensOfOneRank) {
    const char* const layouts[] = {"--tp 2",
                                   "--tp 3 --tensor-split 1,4,2",
                                   "--tp 4",
                                   "--pp 2",
                                   "--tp 2 --pp 2 --tensor-split 3,1,2,1",
                                   "--tp 3 --overlap on --transport tcp",
                                   "--tp 2 --weights-from 0",
                                   "--tp 2 --prefill-chunk 3"};
    size_t turn = 0;
    for (const auto& [dtype, bound] :
         {std::pair(DType::kF32, kLoraFloatWeights), {DType::kQ8_0, kLoraQuantizedWeights}}) {
        const std::string model = Model(dtype);
        const std::string folder = Adapter(model);
        const Matrix one = Logits(model, {"--lora", folder});
        for (const std::string layout : test::Some(layouts, 2, turn++)) {
            SCOPED_TRACE(layout + " of " + std::string(Info(dtype).name));
            const Matrix many = Logits(model, SplitWords(layout + " --verify --lora " + folder));
            // The same sums: equal bits.
            ExpectNear(many, one, layout.starts_with("--pp") ? 0 : bound);
        }
    }
}

// DoRA's factors, replaced ends and experts: each rank has its part of them.
TEST_F(Lora, AnyLayoutOfOtherAdapters) {
    const char* const layouts[] = {"--tp 2",        "--tp 3 --tensor-split 1,4,2", "--pp 2",
                                   "--tp 2 --pp 2", "--tp 2 --weights-from 0",     "--tp 2 --ep 2"};
    size_t turn = 0;
    for (const auto& [dtype, bound] :
         {std::pair(DType::kF32, kLoraFloatWeights), {DType::kQ8_0, kLoraQuantizedWeights}}) {
        const std::string dense = Model(dtype, "qwen2"), experts = dir_ / "experts.gguf";
        model::Hyper moe = OddHyper("qwen3moe");
        moe.moe.experts = 6;
        moe.moe.used = 2;
        moe.moe.ffn = 96;
        WriteTinyGguf(experts, {.hyper = moe, .dtype = dtype});
        const std::pair<std::string, std::string> models[] = {
            {dense, Adapter(dense, {.dora = true, .whole = true}, "dora")},
            {experts, Adapter(experts, {.rank = 3, .targets = "attn", .experts = true}, "moe")}};
        for (const auto& [model, folder] : models) {
            const Matrix one = Logits(model, {"--lora", folder});
            ExpectNear(one, Logits(Merged(model, folder), {}),
                       dtype == DType::kF32 ? kLoraFloatWeights : kLoraRoundedActivations);
            for (const std::string layout : test::Some(layouts, 3, turn++)) {
                if (layout.ends_with("--ep 2") && model == dense) continue;
                SCOPED_TRACE(layout + " of " + model);
                const Matrix many =
                    Logits(model, SplitWords(layout + " --verify --lora " + folder));
                ExpectNear(many, one, layout == "--pp 2" ? 0 : bound);
            }
        }
    }
}

TEST_F(Lora, FilesOfSeveralMatricesInOne) {
    const std::string model = Model(DType::kF32, "qwen2");
    const std::string folder = Adapter(model, {.targets = "k_proj,v_proj,up_proj"});
    const Matrix one = Logits(model, {"--lora", folder});
    ExpectNear(Logits(model, SplitWords("--tp 4 --verify --lora " + folder)), one,
               kLoraFloatWeights);
}

TEST_F(Lora, IsRefusedByNameBeforeWeightsAreRead) {
    const std::string model = Model(DType::kF32);
    model::Hyper wider = OddHyper();
    wider.ffn = 1056;
    WriteTinyGguf(dir_ / "wider.gguf", {.hyper = wider});
    const std::string other = Adapter(dir_ / "wider.gguf", {}, "other");
    const std::string dora = Adapter(model, {.config = {{"use_dora", true}}}, "dora");
    const std::string lengths =
        Adapter(model, {.targets = "q_proj", .dora = true, .lengths = 9}, "lengths");
    const std::string wide = Adapter(model, {.config = {{"r", 5000}}}, "wide");
    const std::string head = Adapter(model, {.config = {{"target_modules", {"lm_head"}}}}, "head");
    const std::string saved =
        Adapter(model, {.config = {{"modules_to_save", {"lm_head"}}}}, "saved");
    model::Hyper longer = OddHyper();
    longer.vocab += 2;
    WriteTinyGguf(dir_ / "longer.gguf", {.hyper = longer});
    const std::string resized = Adapter(dir_ / "longer.gguf", {.whole = true}, "resized");
    std::filesystem::create_directories(dir_ / "empty");
    const struct {
        std::string folder;
        std::vector<const char*> said;
    } cases[] = {{dir_ / "none", {"none/adapter_config.json"}},
                 {dir_ / "empty", {"empty: no adapter_config.json", "an empty folder"}},
                 {other, {"mlp.gate_proj.lora_B.weight", "[1056, 8]", "[1024, 8]"}},
                 {dora, {"lora_magnitude_vector' is missing"}},
                 {lengths, {"lora_magnitude_vector' has shape [9]", "288 elements"}},
                 {wide, {"has rank 5000", "expected 1 to 4096"}},
                 {head, {"lm_head.lora_A.weight' is missing"}},
                 {resized, {"embed_tokens.weight' has rows for", "resize_token_embeddings()"}},
                 {saved, {"modules_to_save"}}};
    for (const auto& [folder, said] : cases) {
        const Ran ran =
            RunWeft(Words{"run", model, "-p", "hi", "--local", "2", "-t", "1", "--lora", folder},
                    {"WEFT_LOG=debug"});
        EXPECT_NE(ran.status, 0) << folder;
        EXPECT_FALSE(InPhase(ran.err, 0, "load")) << ran.err;
        for (const char* word : said) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err << "\nlacks " << word;
        }
    }
}

// In either format, --force replaces a result.
TEST_F(Lora, AMergedResultIsReplacedOnlyOnDemand) {
    namespace fs = std::filesystem;
    const std::string model = Model(DType::kF32), folder = Adapter(model);
    for (const char* format : {"gguf", "hf"}) {
        const std::string out = dir_ / format;
        const Words merge = {"merge", model, "--lora", folder, "-o", out, "--save-format", format};
        EXPECT_EQ(RunWeft(merge).status, 0);
        const std::string file = format == std::string("hf") ? out + "/config.json" : out;
        const auto before = fs::last_write_time(file);
        const Ran again = RunWeft(merge);
        EXPECT_EQ(again.status, 1) << again.err;
        EXPECT_NE(again.err.find("--force replaces"), std::string::npos) << again.err;
        EXPECT_EQ(fs::last_write_time(file), before);
        const Ran forced = RunWeft(merge + Words{"--force"});
        EXPECT_EQ(forced.status, 0) << forced.err;
        EXPECT_NE(fs::last_write_time(file), before);
    }
}

TEST_F(Lora, ValuesThatAreNotNumbersAreRefused) {
    const std::string model = Model(DType::kF32), out = dir_ / "merged.gguf";
    const std::string folder = Adapter(model, {.size = std::nanf("")}, "nan");
    for (const Words& words : {Words{"merge", model, "--lora", folder, "-o", out},
                               Words{"run", model, "-p", "hi", "--lora", folder}}) {
        const Ran ran = RunWeft(words);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find("lora_B.weight: a value is nan"), std::string::npos) << ran.err;
    }
    EXPECT_FALSE(std::filesystem::exists(out));
    const std::string lengths = Adapter(model, {.dora = true, .length = std::nanf("")}, "lengths");
    const Ran ran = RunWeft({"run", model, "-p", "hi", "--lora", lengths});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("lora_magnitude_vector: a value is nan"), std::string::npos) << ran.err;
}

TEST_F(Lora, APlanCountsItsMemory) {
    const std::string model = Model(DType::kF32), folder = Adapter(model, {.whole = true});
    const auto weights = [&](const Words& more) {
        const Ran ran = RunWeft(Words{"plan", model, "--machines", "strix-halo", "--json"} + more);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0
                   ? ran.Json()["layouts"][0]["memory"][0]["weight_bytes"].get<int64_t>()
                   : 0;
    };
    // A table and an output matrix in float32; A and B of rank 8 beside matrices of 1024 are small.
    const int64_t ends = 2 * 267 * 256 * 4;
    const int64_t more = weights({"--lora", "a=" + folder}) - weights({});
    EXPECT_GE(more, ends);
    EXPECT_LE(more, 2 * ends);
}

// The restarted rank reads the adapter again.
TEST_F(Lora, ALostRankChangesNothing) {
    model::Hyper hyper = OddHyper();
    hyper.context = 1 << 20;
    WriteTinyGguf(dir_ / "m.gguf", {.hyper = hyper, .dtype = DType::kQ8_0});
    const std::string model = dir_ / "m.gguf", folder = Adapter(model);
    const Words words = {"run", model,  "-p", "hello",  "-n",   "400",          "-t",
                         "1",   "--tp", "2",  "--lora", folder, "--ignore-eos", "--timeout-ms",
                         "1500"};
    const Ran undisturbed = RunWeft(words);
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    Words plain = words;
    std::erase(plain, "--lora");
    std::erase(plain, folder);
    EXPECT_NE(RunWeft(plain).out, undisturbed.out);
    Weft weft(words + Words{"--restart-timeout-ms", "20000"});
    test::Until([&] { return weft.Out().size() >= 20; });
    const std::vector<pid_t> pids = test::ChildrenOf(weft.pid());
    ASSERT_EQ(pids.size(), 1u);
    ::kill(pids[0], SIGKILL);
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("epoch 2"), std::string::npos) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out);
}

}  // namespace
}  // namespace weft::support
