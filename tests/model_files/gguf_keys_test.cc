// Keys that Weft does not need in GGUF metadata from a Hugging Face folder, but llama.cpp (build of
// November 2026) does: without any of them it refuses the file that `weft quantize` writes.
#include <gtest/gtest.h>

#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

struct NeededKeys {
    const char* name;  // a file below tests/data
    std::vector<const char*> keys;
};

const NeededKeys kNeeded[] = {
    {"families/apertus", {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta", "xielu.eps"}},
    {"families/ernieMoe",
     {"ernie4_5-moe.interleave_moe_layer_step", "ernie4_5-moe.expert_shared_feed_forward_length"}},
    {"families/laguna", {"laguna.leading_dense_block_count"}},
    {"families/nemotronH", {"nemotron_h.attention.layer_norm_epsilon"}},
    {"families/nemotronHMoe", {"nemotron_h_moe.attention.layer_norm_epsilon"}},
    {"families/stablelm", {"stablelm.use_parallel_residual"}},
    {"hf/minimaxM3", {"minimax-m3.expert_shared_count"}},
    {"hf/qwen35", {"qwen35.rope.dimension_sections"}},
    {"hf/qwen35moe", {"qwen35moe.rope.dimension_sections"}},
};

TEST(GgufKeys, CoverThoseOfLlamaCpp) {
    for (const auto& [file, keys] : kNeeded) {
        const test::TempDir dir;
        const std::string path = file, name = path.substr(path.rfind('/') + 1);
        HfGolden(TestData("/" + path + ".safetensors")).Write(name, dir / "model");
        const auto source = model_files::hf::OpenFolder(dir / "model");
        ASSERT_TRUE(source.ok()) << source.error().message;
        for (const char* key : keys) EXPECT_TRUE((*source)->meta().Has(key)) << file << " " << key;
    }
}

// One factor for each pair of a head: unrotated pairs have the factor 1.
TEST(GgufKeys, StepHasARopeFactorForEachPair) {
    const test::TempDir dir;
    HfGolden(TestData("/families/step35.safetensors")).Write("step35", dir / "model");
    const auto source = model_files::hf::OpenFolder(dir / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const model_files::TensorInfo* factors = (*source)->FindTensor("rope_freqs.weight");
    ASSERT_NE(factors, nullptr);
    const auto values = (*source)->ReadFloats(*factors);
    ASSERT_TRUE(values.ok()) << values.error().message;
    ASSERT_EQ(values->size(), 8u);
    EXPECT_NE(values->at(3), 1.0f);
    for (size_t i = 4; i < 8; ++i) EXPECT_EQ(values->at(i), 1.0f) << i;
}

}  // namespace
}  // namespace weft::support
