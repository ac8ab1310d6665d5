// GGUF files that Ollama's converter wrote: their keys and values become llama.cpp's.
#include "model_files/ollama_keys.h"

#include <gtest/gtest.h>

#include <map>

#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "model_files/read_tokenizer.h"
#include "model_files/write_tokenizer.h"
#include "tokenizer/tokenizer.h"

namespace weft::model_files {
namespace {

class OllamaKeys : public testing::Test {
  protected:
    Metadata Parsed() {
        header_ = writer_.Header();
        const auto parsed = ParseGguf(header_, header_.size(), "header");
        EXPECT_TRUE(parsed.ok()) << parsed.error().message;
        return {"header", parsed->entries};
    }
    // The settings of Gemma 3 that a file with `numbers` has.
    std::string Gemma3(const std::map<std::string, float>& numbers, uint32_t context) {
        writer_ = GgufWriter();
        writer_.String("general.architecture", "gemma3");
        writer_.U32("gemma3.block_count", 34);
        writer_.U32("gemma3.context_length", context);
        for (const auto& [key, value] : numbers) writer_.F32("gemma3." + key, value);
        const Metadata meta = Parsed();
        std::string found;
        for (const char* key : {"attention.layer_norm_rms_epsilon", "rope.freq_base",
                                "rope.freq_base_swa", "rope.scaling.factor"}) {
            const auto value = meta.F64Or(std::string("gemma3.") + key, 0);
            EXPECT_TRUE(value.ok()) << value.error().message;
            found += fmt::format("{:g} ", value.ok() ? *value : -1);
        }
        return found + meta.StringOr("gemma3.rope.scaling.type", "none").value();
    }

    GgufWriter writer_;
    std::vector<std::byte> header_;
};

TEST_F(OllamaKeys, OfGemma3) {
    const std::string eps = "attention.layer_norm_rms_epsilon";
    EXPECT_EQ(
        Gemma3({{eps, 2e-6f}, {"rope.global.freq_base", 5e5f}, {"rope.local.freq_base", 3e4f}},
               32768),
        "2e-06 500000 30000 0 none");
    EXPECT_EQ(Gemma3({}, 131072), "1e-06 1e+06 0 8 linear");
    EXPECT_EQ(Gemma3({}, 32768), "1e-06 1e+06 0 0 none");
    EXPECT_EQ(Gemma3({{"rope.global.freq_base", 5e5f}}, 131072), "1e-06 500000 0 8 linear");
    // Files of llama.cpp.
    EXPECT_EQ(Gemma3({{eps, 2e-6f}}, 131072), "2e-06 0 0 0 none");
    EXPECT_EQ(Gemma3({{eps, 2e-6f}, {"rope.freq_base", 7e5f}, {"rope.global.freq_base", 5e5f}}, 9),
              "2e-06 700000 0 0 none");
}

TEST_F(OllamaKeys, OfMistral3) {
    const std::pair<const char*, const char*> named[] = {
        {"rope.scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
        {"rope.scaling.beta_slow", "rope.scaling.yarn_beta_slow"},
        {"rope.scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
        {"rope.scaling_beta", "attention.temperature_scale"}};
    writer_.String("general.architecture", "mistral3");
    float number = 1;
    for (const auto& [ollama, usual] : named)
        writer_.F32(std::string("mistral3.") + ollama, ++number);
    const Metadata meta = Parsed();
    number = 1;
    for (const auto& [ollama, usual] : named) {
        const auto value = meta.F64(std::string("mistral3.") + usual);
        ASSERT_TRUE(value.ok()) << value.error().message;
        EXPECT_EQ(*value, ++number) << usual;
    }
}

TEST_F(OllamaKeys, TensorsOfGemma4AndQwen35) {
    const int64_t dims[] = {8};
    for (const char* name : {"blk.2.ffn_gate_inp.per_expert_scale", "blk.2.ffn_gate_inp.scale",
                             "blk.2.ssm_dt", "blk.3.ssm_dt.weight", "blk.3.ssm_dt.bias"}) {
        writer_.Tensor(name, DType::kF32, dims, std::vector<std::byte>(32));
    }
    const std::vector<std::byte> file = writer_.File();
    const auto parsed = ParseGguf(file, file.size(), "file");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->tensors[0].name, "blk.2.ffn_down_exps.scale");
    EXPECT_EQ(parsed->tensors[1].name, "blk.2.ffn_gate_inp.scale");
    EXPECT_EQ(parsed->tensors[2].name, "blk.2.ssm_dt.bias");
    EXPECT_EQ(parsed->tensors[3].name, "blk.3.ssm_dt.weight");
    EXPECT_EQ(parsed->tensors[4].name, "blk.3.ssm_dt.bias");
}

TEST_F(OllamaKeys, TokenizerOfGemma4) {
    tokenizer::TokenizerData data;
    data.model = "llama";
    data.pre = "gemma4";
    data.tokens = {"<pad>", "<eos>", "<bos>", "a", "b", "ab", "<0x0A>", "<0xC3>"};
    data.types = {3, 3, 3, 1, 1, 1, 1, 1};
    data.scores = {0, 1, 2, 3, 4, 5, 6, 7};
    data.merges = {"a b"};
    data.eos = 1;
    data.bos = 2;
    writer_.String("general.architecture", "gemma4");
    WriteTokenizer(data, writer_);
    const auto read = ReadTokenizer(Parsed());
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->model, "gemma4");
    const auto made = tokenizer::Tokenizer::Make(*read);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_EQ((*made)->Encode("ab\n"), (std::vector<int32_t>{2, 5, 6}));
    EXPECT_EQ((*made)->Piece(6), "\n");
}

}  // namespace
}  // namespace weft::model_files
