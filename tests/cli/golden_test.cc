// The whole program's logits against those of transformers (tests/data/model_logits.safetensors,
// made by tools/make_model_golden.py); quantized files against their dequantized weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::support {
namespace {

// A tensor of the golden file; empty where there is none of that name.
std::vector<float> Golden(const std::string& name) {
    std::ifstream file(WEFT_TEST_DATA "/model_logits.safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_GT(bytes.size(), 8u) << "no golden file";
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    if (!header.contains(name)) return {};
    const size_t begin = header[name]["data_offsets"][0], end = header[name]["data_offsets"][1];
    std::vector<float> data((end - begin) / sizeof(float));
    std::memcpy(data.data(), bytes.data() + 8 + header_bytes + begin, end - begin);
    return data;
}

struct Case {
    const char* name;
    const char* architecture;
    bool tied;
    double rope_base, rope_linear;
};
void PrintTo(const Case& model, std::ostream* out) { *out << model.name; }

class Transformers : public testing::TestWithParam<Case> {
  protected:
    void SetUp() override {
        const Case& c = GetParam();
        model::Hyper h = OddHyper(c.architecture);
        h.hidden = 144;
        h.ffn = 96;
        h.head_dim = h.rotary_dim = 16;
        h.tied = c.tied;
        path_ = dir_ / "golden.gguf";
        WriteTinyGguf(path_, {.hyper = h,
                              .rope_base = c.rope_base,
                              .rope_linear = c.rope_linear,
                              .rope_factors = Golden(c.name + std::string("/rope_factors"))});
        expected_ = Golden(c.name + std::string("/logits"));
        for (float token : Golden(c.name + std::string("/tokens"))) {
            tokens_.push_back(static_cast<int>(token));
        }
    }
    void Check(const Words& flags, double bound) {
        const std::string npy = dir_ / "logits.npy";
        const Ran ran = RunWeft(Words{"logits", path_, "--all", "--npy", npy, "--tokens",
                                      fmt::format("{}", fmt::join(tokens_, ","))} + flags);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const Matrix logits = ReadNpy(npy);
        ASSERT_EQ(logits.rows, tokens_.size());
        for (size_t row = 0; row < logits.rows; ++row) {
            const auto golden = std::span(expected_).subspan(row * logits.cols, logits.cols);
            EXPECT_LE(RelativeL2(logits.Row(row), golden), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
    std::string path_;
    std::vector<float> expected_;
    std::vector<int> tokens_;
};

INSTANTIATE_TEST_SUITE_P(
    Golden, Transformers,
    testing::Values(Case{"llama", "llama", false, 10000, 0},
                    Case{"llamaTied", "llama", true, 10000, 0},
                    Case{"llamaLinear", "llama", false, 10000, 4},
                    Case{"llama3Rope", "llama", false, 500000, 0},
                    Case{"qwen2", "qwen2", false, 10000, 0},
                    Case{"qwen3Tied", "qwen3", true, 10000, 0}),
    [](const auto& test) { return std::string(test.param.name); });

// Some 30 ops in a row, each a sum of at most 144 products in float32: 30 * sqrt(144) * 2^-24.
TEST_P(Transformers, ReferenceKernels) { Check({"--reference"}, 2.2e-5); }
TEST_P(Transformers, ReferenceKernelsOnTwoTensorRanksAndStages) {
    Check({"--reference", "--tp", "2", "--pp", "2"}, 2.2e-5);
}
// Float weights are exact for the fast kernels, too; the f16 cache rounds to 2^-11.
TEST_P(Transformers, FastKernels) { Check({}, 2e-3); }
TEST_P(Transformers, FastKernelsWithExactCache) { Check({"--kv", "f32"}, 2.2e-5); }

class Quantized : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(EveryDtype, Quantized,
                         testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"),
                         [](const auto& test) { return std::string(test.param); });

// With the reference kernels a quantized file is its dequantized weights.
TEST_P(Quantized, IsItsDequantizedWeights) {
    const test::TempDir dir;
    std::vector<Matrix> logits;
    for (bool dequantized : {false, true}) {
        const std::string path = dir / "model.gguf", npy = dir / "logits.npy";
        WriteTinyGguf(path, {.hyper = OddHyper(),
                             .dtype = DTypeOfName(GetParam()).value(),
                             .dequantized = dequantized});
        const Ran ran = RunWeft({"logits", path, "--tokens", "1,200,31,44,5,160,7,8,90", "--all",
                                 "--npy", npy, "--reference"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        logits.push_back(ReadNpy(npy));
    }
    for (size_t row = 0; row < logits[0].rows; ++row) {
        EXPECT_LE(RelativeL2(logits[0].Row(row), logits[1].Row(row)), 5e-4);
    }
}

}  // namespace
}  // namespace weft::support
