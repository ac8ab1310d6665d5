// FP8 matrices in pieces with separate scales: experts in one tensor of three dims, and a QKV
// matrix that was sharded for tensor parallelism before it was quantized. A packed embedding.
#include <gtest/gtest.h>

#include "model_files/hf/folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files::hf {
namespace {

using nlohmann::json;
using support::BytesOfValues;
using support::HfGolden;
using support::SafeBytes;

// FP8 [rows, cols] in blocks of high x wide that start anew at each of `pieces`, as in a
// transformers folder; `x` receives the values.
void AddPieces(std::map<std::string, SafeBytes>& tensors, const std::string& module,
               const std::vector<int64_t>& shape, std::vector<float>& x, int64_t pieces,
               int64_t high, int64_t wide) {
    const int64_t cols = shape.back(), rows = static_cast<int64_t>(x.size()) / cols;
    const int64_t each = rows / pieces, down = (each + high - 1) / high;
    const int64_t across = (cols + wide - 1) / wide;
    std::vector<float> scales(static_cast<size_t>(pieces * down * across), 0.0f);
    const auto scale_of = [&](int64_t i) -> float& {
        const int64_t row = i / cols, block = row / each * down + row % each / high;
        return scales[static_cast<size_t>(block * across + i % cols / wide)];
    };
    const auto count = static_cast<int64_t>(x.size());
    for (int64_t i = 0; i < count; ++i) {
        float& scale = scale_of(i);
        scale = std::max(scale, std::abs(x[static_cast<size_t>(i)]) / 447.0f);
    }
    std::vector<uint8_t> codes;
    for (int64_t i = 0; i < count; ++i) {
        float& value = x[static_cast<size_t>(i)];
        codes.push_back(support::E4m3Near(value / scale_of(i)));
        value = support::E4m3Value(codes.back()) * scale_of(i);
    }
    tensors[module + ".weight"] = {"F8_E4M3", shape, BytesOfValues(codes)};
    std::vector<int64_t> scale_shape = {pieces * down, across};
    if (shape.size() == 3) scale_shape = {pieces, down, across};
    tensors[module + ".weight_scale_inv"] = {"F32", scale_shape, BytesOfValues(scales)};
}

std::vector<float> FloatsOf(const SafeBytes& tensor) {
    std::vector<float> values(tensor.data.size() / sizeof(float));
    std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
    return values;
}

class Stacked : public testing::Test {
  protected:
    void Load(const std::string& name, const std::string& list = "families") {
        const HfGolden golden(support::TestData("/" + list + "/" + name + ".safetensors"));
        tensors_ = golden.Tensors(name);
        config_ = json::parse(golden.Text(name + "/config"));
    }
    void Open() {
        support::WriteText(dir_ / "config.json", config_.dump());
        support::WriteTensors(dir_.path(), tensors_);
        auto opened = OpenFolder(dir_.path());
        error_ = opened.ok() ? "" : opened.error().message;
        source_ = opened.ok() ? std::move(*opened) : nullptr;
    }
    // Allows the rounding to BF16, in which rows that are not whole blocks of 64 are held.
    void ExpectTensor(const std::string& name, const std::vector<float>& expected) {
        ASSERT_NE(source_, nullptr) << error_;
        const TensorInfo* info = source_->FindTensor(name);
        ASSERT_NE(info, nullptr) << name;
        std::vector<std::byte> bytes(info->bytes);
        const Status read = source_->ReadRows(*info, 0, info->rows, 0, info->cols, bytes, nullptr);
        ASSERT_TRUE(read.ok()) << read.error().message;
        std::vector<float> values(static_cast<size_t>(info->rows * info->cols));
        DequantizeRow(info->dtype, bytes, values);
        ASSERT_EQ(values.size(), expected.size());
        for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_LE(std::abs(values[i] - expected[i]), std::abs(expected[i]) * 0x1p-8f)
                << name << " " << i;
        }
    }

    std::map<std::string, SafeBytes> tensors_;
    json config_;
    test::TempDir dir_;
    std::unique_ptr<ModelSource> source_;
    std::string error_;
};

TEST_F(Stacked, StepExpertsHaveSeparateScales) {
    Load("step35");
    config_["text_config"]["quantization_config"] = {{"quant_method", "fp8"},
                                                     {"weight_block_size", {40, 48}}};
    std::map<std::string, std::vector<float>> expected;
    for (const char* name : {"gate", "up", "down"}) {
        const std::string module = fmt::format("model.layers.1.moe.{}_proj", name);
        const SafeBytes golden = tensors_.at(module + ".weight");
        std::vector<float>& values = expected[name];
        values = FloatsOf(golden);
        AddPieces(tensors_, module, golden.shape, values, golden.shape[0], 40, 48);
    }
    Open();
    for (const auto& [name, values] : expected) {
        ExpectTensor(fmt::format("blk.1.ffn_{}_exps.weight", name), values);
    }
    tensors_.erase("model.layers.1.moe.up_proj.weight_scale_inv");
    Open();
    EXPECT_NE(error_.find("moe.up_proj' is F8_E4M3 without weight_scale_inv"), std::string::npos)
        << error_;
}

// Gate and up in one parameter without a module; scales by block, or one per expert.
TEST_F(Stacked, MistralExpertsHaveSeparateScales) {
    for (const bool blocks : {true, false}) {
        Load("mistral4", "hf");
        config_["text_config"]["quantization_config"] = {{"quant_method", "fp8"}};
        if (blocks) {
            config_["text_config"]["quantization_config"]["weight_block_size"] = {40, 48};
        }
        std::map<std::string, std::vector<float>> expected;
        const std::string experts = "language_model.model.layers.1.mlp.experts.";
        for (const char* name : {"gate_up_proj", "down_proj"}) {
            const std::vector<int64_t> shape = tensors_.at(experts + name).shape;
            std::vector<float>& values = expected[name];
            values = FloatsOf(tensors_.at(experts + name));
            AddPieces(tensors_, "m", shape, values, shape[0], blocks ? 40 : shape[1],
                      blocks ? 48 : shape[2]);
            tensors_[experts + name] = tensors_.at("m.weight");
            tensors_[experts + name + "_scale_inv"] = tensors_.at("m.weight_scale_inv");
            tensors_[experts + name + "_activation_scale"] = {
                "F32", {1}, BytesOfValues(std::vector<float>{1})};
            tensors_.erase("m.weight");
            tensors_.erase("m.weight_scale_inv");
        }
        Open();
        ExpectTensor("blk.1.ffn_down_exps.weight", expected["down_proj"]);
        const std::vector<float>& both = expected["gate_up_proj"];
        const size_t half = 32 * 48;  // per expert
        for (size_t part = 0; part < 2; ++part) {
            std::vector<float> own;
            for (size_t expert = 0; expert < 4; ++expert) {
                const auto from = both.begin() + static_cast<ptrdiff_t>((2 * expert + part) * half);
                own.insert(own.end(), from, from + static_cast<ptrdiff_t>(half));
            }
            ExpectTensor(part == 0 ? "blk.1.ffn_gate_exps.weight" : "blk.1.ffn_up_exps.weight",
                         own);
        }
    }
    tensors_.erase("language_model.model.layers.1.mlp.experts.down_proj_scale_inv");
    Open();
    EXPECT_NE(error_.find("experts.down_proj' is F8_E4M3 without"), std::string::npos) << error_;
}

// The columns of an expert as rows, as in Qwen3-VL.
TEST_F(Stacked, TransposedFp8ExpertsAreRefused) {
    Load("qwen3vlmoe", "hf");
    config_["text_config"]["quantization_config"] = {{"quant_method", "fp8"}};
    SafeBytes& both = tensors_.at("model.language_model.layers.0.mlp.experts.gate_up_proj");
    both.dtype = "F8_E4M3";
    both.data.resize(both.data.size() / 4);
    Open();
    EXPECT_NE(error_.find("expected [experts, 64, columns] for quantized experts"),
              std::string::npos)
        << error_;
}

// A packed embedding has no `embed_tokens.weight`.
TEST_F(Stacked, EmbeddingMayBePacked) {
    Load("olmoe");
    const SafeBytes golden = tensors_.at("model.embed_tokens.weight");
    const auto rows = static_cast<size_t>(golden.shape[0]);
    const auto cols = static_cast<size_t>(golden.shape[1]);
    const auto layout = support::HfLayout::kPacked4;
    const support::HfIntegers integers = support::IntegersOf(FloatsOf(golden), rows, cols, layout);
    tensors_.erase("model.embed_tokens.weight");
    support::AddIntegers(tensors_, "model.embed_tokens", integers, layout);
    config_["quantization_config"] = support::QuantizationConfig(layout);
    config_["quantization_config"]["config_groups"]["group_0"]["targets"] = {"Embedding"};
    Open();
    ExpectTensor("token_embd.weight", integers.values);
}

// Each of `shards` holds rows of Q, then of K, then of V.
class FusedMimo : public Stacked {
  protected:
    void Make(int64_t shards, int64_t block) {
        Load("mimo2");
        config_["num_attention_heads"] = 8;
        config_["num_key_value_heads"] = 2;
        config_["swa_num_key_value_heads"] = 4;
        config_["quantization_config"] = {{"quant_method", "fp8"},
                                          {"weight_block_size", {block, 48}}};
        for (int64_t layer = 0; layer < 4; ++layer) {
            const std::string attention = fmt::format("model.layers.{}.self_attn.", layer);
            const int64_t kv = layer == 0 ? 2 : 4;
            const int64_t rows[3] = {8 * 24, kv * 24, kv * 16};
            std::vector<float> fused =
                support::MakeTensor(attention, rows[0] + rows[1] + rows[2], 96).data;
            AddPieces(tensors_, attention + "qkv_proj", {rows[0] + rows[1] + rows[2], 96}, fused,
                      shards, block, 48);
            auto at = fused.begin();
            for (int64_t shard = 0; shard < shards; ++shard) {
                for (size_t part = 0; part < 3; ++part) {
                    std::vector<float>& own =
                        expected_[fmt::format("blk.{}.attn_{}.weight", layer, "qkv"[part])];
                    const int64_t count = rows[part] / shards * 96;
                    own.insert(own.end(), at, at + count);
                    at += count;
                }
            }
            for (const char* name : {"q_proj", "k_proj", "v_proj"}) {
                tensors_.erase(attention + name + ".weight");
            }
        }
        Open();
    }
    std::map<std::string, std::vector<float>> expected_;
};

TEST_F(FusedMimo, QkvIsAssembledFromItsShards) {
    Make(2, 32);  // 136 and 176 rows per shard, in blocks that end inside: no other number matches
    for (const auto& [name, values] : expected_) ExpectTensor(name, values);
}

TEST_F(FusedMimo, UnknownShardCountIsRefused) {
    Make(2, 8);  // whole blocks, in one shard or in two
    EXPECT_NE(error_.find("its scales match 1 or 2"), std::string::npos) << error_;
    tensors_["model.layers.2.self_attn.qkv_proj.weight_scale_inv"].shape = {1, 88};
    Open();
    EXPECT_NE(error_.find("its scales match no number"), std::string::npos) << error_;
    tensors_.erase("model.layers.2.self_attn.qkv_proj.weight_scale_inv");
    Open();
    EXPECT_NE(error_.find("FP8 with weight_scale_inv"), std::string::npos) << error_;
}

}  // namespace
}  // namespace weft::model_files::hf
