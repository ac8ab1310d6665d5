// LoRA adapters for tiny models, as folders: random A and B for chosen matrices.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "model_files/lora/adapter.h"
#include "model_files/lora/plan.h"
#include "support/hf_folder.h"
#include "tensor/half.h"

namespace weft::support {

struct TinyAdapter {
    int64_t rank = 8;
    double alpha = 16;
    std::string targets = "all";  // LoraOptions::targets
    std::string seed = "one";     // of the random numbers
    bool rslora = false;
    bool bf16 = false;     // storage type BF16
    float size = 1;        // size of B . A, relative to the matrix
    bool dora = false;     // each row has a length
    float length = 1;      // of rows, on average
    int64_t lengths = 0;   // in each tensor; 0: as many as rows
    bool whole = false;    // the embedding, the output matrix and a norm are replaced
    bool experts = false;  // A and B of experts, too
    std::map<std::string, nlohmann::json> config{};  // more keys of adapter_config.json
};

// The products of A and B, for alpha 16 and rank 8, are about as large as W.
inline std::vector<std::byte> AdapterBytes(const std::string& name, int64_t count, double scale,
                                           bool bf16, double offset) {
    std::vector<float> values;
    std::vector<uint16_t> halves;
    const Stream stream(name);
    for (int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(offset + stream[static_cast<size_t>(i)] * scale);
        values.push_back(value);
        halves.push_back(F32ToBF16(value));
    }
    return bf16 ? BytesOfValues(halves) : BytesOfValues(values);
}

// Tensors of an adapter by name, with values up to `scale`.
class AdapterTensors {
  public:
    explicit AdapterTensors(const TinyAdapter& adapter) : adapter_(adapter) {}
    void Add(const std::string& name, const std::vector<int64_t>& shape, double scale,
             double offset = 0) {
        int64_t count = 1;
        for (const int64_t dim : shape) count *= dim;
        std::vector<std::byte> bytes =
            AdapterBytes(adapter_.seed + name, count, scale, adapter_.bf16, offset);
        tensors_[name] = {adapter_.bf16 ? "BF16" : "F32", shape, std::move(bytes)};
    }
    // A and B, whose product is about as large as a matrix.
    void AddPair(const std::string& module, int64_t rows, int64_t cols, int64_t rank) {
        Add(module + ".lora_A.weight", {rank, cols}, std::sqrt(3.0 / static_cast<double>(cols)));
        Add(module + ".lora_B.weight", {rows, rank}, static_cast<double>(adapter_.size) * 0.25);
    }
    void AddWholes(const model_files::ModelSource& source) {
        const model_files::TensorInfo& table = *source.FindTensor("token_embd.weight");
        const std::string begin = "base_model.model.", layer = begin + "model.layers.0.";
        Add(begin + "model.embed_tokens.weight", {table.rows, table.cols}, 1);
        Add(begin + "lm_head.weight", {table.rows, table.cols}, 0.1);
        Add(layer + "input_layernorm.weight", {table.cols}, 0.5, 1);
    }
    void AddExperts(const model_files::ModelSource& source) {
        for (const model_files::TensorInfo& down : source.tensors()) {
            const size_t at = down.name.find(".ffn_down_exps.weight");
            if (at == std::string::npos) continue;
            const std::string module =
                "base_model.model.model.layers." + down.name.substr(4, at - 4) + ".mlp.experts";
            const int64_t hidden = down.dims[1], wide = down.cols, experts = down.dims[2];
            AddPair(module + ".base_layer", 2 * wide, hidden, experts * adapter_.rank);
            AddPair(module, hidden, wide, experts * adapter_.rank);
        }
    }
    const std::map<std::string, SafeBytes>& all() const { return tensors_; }

  private:
    const TinyAdapter& adapter_;
    std::map<std::string, SafeBytes> tensors_;
};

// Writes an adapter for the matrices of `model`.
inline void WriteTinyAdapter(const std::string& folder, const std::string& model,
                             const TinyAdapter& adapter) {
    std::filesystem::create_directories(folder);
    const auto source = model_files::OpenModel(model);
    ASSERT_TRUE(source.ok()) << source.error().message;
    model_files::LoraOptions words;
    words.rank = adapter.rank;
    words.targets = adapter.targets;
    const auto plan = model_files::PlanLora(**source, words);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    AdapterTensors tensors(adapter);
    for (const model_files::LoraTarget& target : plan->targets) {
        const std::string name = target.NameA();
        tensors.AddPair(name.substr(0, name.find(".lora_A")), target.rows, target.cols,
                        adapter.rank);
        if (!adapter.dora) continue;
        const int64_t lengths = adapter.lengths == 0 ? target.rows : adapter.lengths;
        tensors.Add(target.NameOfLengths(), {lengths}, 0.5, static_cast<double>(adapter.length));
    }
    if (adapter.whole) tensors.AddWholes(**source);
    if (adapter.experts) tensors.AddExperts(**source);
    const std::string file = folder + "/adapter_model.safetensors";
    ASSERT_TRUE(WriteFile(file, SafetensorsFile(tensors.all())).ok());
    nlohmann::json config = {
        {"peft_type", "LORA"},          {"r", adapter.rank}, {"lora_alpha", adapter.alpha},
        {"use_rslora", adapter.rslora}, {"bias", "none"},    {"target_modules", plan->Modules()}};
    if (adapter.dora) config["use_dora"] = true;
    if (adapter.whole) config["modules_to_save"] = {"embed_tokens", "lm_head", "input_layernorm"};
    if (adapter.experts)
        config["target_parameters"] = {"experts.gate_up_proj", "experts.down_proj"};
    for (const auto& [key, value] : adapter.config) config[key] = value;
    WriteText(folder + "/adapter_config.json", config.dump());
}

}  // namespace weft::support
