// The small Llama of the training curves in tests/data/train_losses.json. Its weights and tokens
// come from a formula (splitmix64 of a seed, a tensor's number and an element's), so other programs
// can build the same model.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/hf_folder.h"
#include "support/paths.h"
#include "train/data/loader.h"

namespace weft::support {

struct TrainGolden {
    static constexpr int kVocab = 1024, kHidden = 256, kFfn = 768, kLayers = 4, kHeads = 4,
                         kKvHeads = 2, kHeadDim = 64, kSequences = 8, kLength = 64;

    static uint64_t Bits(uint64_t seed, uint64_t tensor, uint64_t element) {
        uint64_t z = (seed << 56 | tensor << 40) + element + 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        return z ^ (z >> 31);
    }

    // Weight matrices are noise of -1/8 to 1/8; norm weights are 1 plus such noise.
    static std::vector<float> Noise(uint64_t tensor, size_t count, float add, uint64_t seed = 1) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) {
            const auto bits = static_cast<float>(Bits(seed, tensor, i) >> 40);
            values[i] = (bits / 16777216.0f - 0.5f) / 4 + add;
        }
        return values;
    }

    static std::map<std::string, std::vector<int64_t>> Shapes() {
        std::map<std::string, std::vector<int64_t>> shapes = {
            {"model.embed_tokens.weight", {kVocab, kHidden}}, {"model.norm.weight", {kHidden}}};
        for (int layer = 0; layer < kLayers; ++layer) {
            const std::string at = fmt::format("model.layers.{}.", layer);
            shapes[at + "input_layernorm.weight"] = {kHidden};
            shapes[at + "post_attention_layernorm.weight"] = {kHidden};
            shapes[at + "self_attn.q_proj.weight"] = {kHeads * kHeadDim, kHidden};
            shapes[at + "self_attn.k_proj.weight"] = {kKvHeads * kHeadDim, kHidden};
            shapes[at + "self_attn.v_proj.weight"] = {kKvHeads * kHeadDim, kHidden};
            shapes[at + "self_attn.o_proj.weight"] = {kHidden, kHeads * kHeadDim};
            shapes[at + "mlp.gate_proj.weight"] = {kFfn, kHidden};
            shapes[at + "mlp.up_proj.weight"] = {kFfn, kHidden};
            shapes[at + "mlp.down_proj.weight"] = {kHidden, kFfn};
        }
        return shapes;
    }

    static constexpr int kLoraRank = 8;

    // An adapter for all matrices of the layers; A is noise, B zero.
    static void WriteAdapter(const std::string& folder) {
        std::map<std::string, SafeBytes> tensors;
        uint64_t number = 0;
        for (const auto& [name, shape] : Shapes()) {
            if (shape.size() < 2 || name.starts_with("model.embed")) continue;
            const std::string at = "base_model.model." + name.substr(0, name.rfind('.'));
            const auto a = static_cast<size_t>(kLoraRank * shape[1]);
            tensors[at + ".lora_A.weight"] = {
                "F32", {kLoraRank, shape[1]}, BytesOfValues(Noise(number++, a, 0, 2))};
            const std::vector<float> b(static_cast<size_t>(shape[0] * kLoraRank), 0.0f);
            tensors[at + ".lora_B.weight"] = {"F32", {shape[0], kLoraRank}, BytesOfValues(b)};
        }
        const std::string file = folder + "/adapter_model.safetensors";
        ASSERT_TRUE(WriteFile(file, SafetensorsFile(tensors)).ok());
        const nlohmann::json config = {
            {"peft_type", "LORA"},
            {"r", kLoraRank},
            {"lora_alpha", 16},
            {"bias", "none"},
            {"target_modules",
             {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}}};
        WriteText(folder + "/adapter_config.json", config.dump());
    }

    static void WriteFolder(const std::string& folder) {
        std::map<std::string, SafeBytes> tensors;
        uint64_t number = 0;
        for (const auto& [name, shape] : Shapes()) {
            const size_t count = static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1));
            const float add = shape.size() > 1 ? 0.0f : 1.0f;
            tensors[name] = {"F32", shape, BytesOfValues(Noise(number++, count, add))};
        }
        WriteTensors(folder, tensors);
        const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                       {"model_type", "llama"},
                                       {"hidden_act", "silu"},
                                       {"attention_bias", false},
                                       {"mlp_bias", false},
                                       {"torch_dtype", "float32"},
                                       {"bos_token_id", 1},
                                       {"eos_token_id", 2},
                                       {"vocab_size", kVocab},
                                       {"hidden_size", kHidden},
                                       {"intermediate_size", kFfn},
                                       {"num_hidden_layers", kLayers},
                                       {"num_attention_heads", kHeads},
                                       {"num_key_value_heads", kKvHeads},
                                       {"head_dim", kHeadDim},
                                       {"rms_norm_eps", 1e-5},
                                       {"rope_theta", 10000.0},
                                       {"max_position_embeddings", 2048},
                                       {"tie_word_embeddings", true}};
        WriteText(folder + "/config.json", config.dump());
    }

    // The batch of every step, with sequences [begin, end). The first prompt_lengths[i] tokens of
    // sequence i are not targets.
    static train::Batch MakeBatch(const std::vector<int>& prompt_lengths, int begin = 0,
                                  int end = kSequences) {
        train::Batch batch;
        batch.global_sequences = kSequences;
        for (int k = 0; k < kSequences; ++k) {
            train::Sequence sequence;
            for (int i = 0; i + 1 < kLength; ++i) {
                sequence.tokens.push_back(Token(k, i));
                const bool counts = i + 1 >= prompt_lengths[static_cast<size_t>(k)];
                sequence.targets.push_back(counts ? Token(k, i + 1) : -1);
                batch.global_targets += counts ? 1 : 0;
            }
            sequence.begins = {0};
            sequence.used = kLength - 1;
            if (k >= begin && k < end) batch.sequences.push_back(std::move(sequence));
        }
        return batch;
    }

    static int32_t Token(int sequence, int position) {
        return static_cast<int32_t>(
            Bits(3, static_cast<uint64_t>(sequence), static_cast<uint64_t>(position)) % kVocab);
    }

    static nlohmann::json Curves() {
        std::ifstream file(support::TestData("/train_losses.json"));
        return nlohmann::json::parse(file).at("cases");
    }
};

}  // namespace weft::support
