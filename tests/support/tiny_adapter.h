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
    bool bf16 = false;                               // storage type BF16
    float size = 1;                                  // size of B . A, relative to the matrix
    std::map<std::string, nlohmann::json> config{};  // more keys of adapter_config.json
};

// The products of A and B, for alpha 16 and rank 8, are about as large as W.
inline std::vector<std::byte> AdapterBytes(const std::string& name, int64_t count, double scale,
                                           bool bf16) {
    std::vector<float> values;
    std::vector<uint16_t> halves;
    for (int64_t i = 0; i < count; ++i) {
        const auto value = static_cast<float>(Formula(name, static_cast<uint32_t>(i)) * scale);
        values.push_back(value);
        halves.push_back(F32ToBF16(value));
    }
    return bf16 ? BytesOfValues(halves) : BytesOfValues(values);
}

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
    const char* type = adapter.bf16 ? "BF16" : "F32";
    std::map<std::string, SafeBytes> tensors;
    for (const model_files::LoraTarget& target : plan->targets) {
        const double a = std::sqrt(3.0 / static_cast<double>(target.cols));
        const double b = static_cast<double>(adapter.size) * 0.25;
        tensors[target.NameA()] = {type,
                                   {adapter.rank, target.cols},
                                   AdapterBytes(adapter.seed + target.NameA(),
                                                adapter.rank * target.cols, a, adapter.bf16)};
        tensors[target.NameB()] = {type,
                                   {target.rows, adapter.rank},
                                   AdapterBytes(adapter.seed + target.NameB(),
                                                target.rows * adapter.rank, b, adapter.bf16)};
    }
    const std::string file = folder + "/adapter_model.safetensors";
    ASSERT_TRUE(WriteFile(file, SafetensorsFile(tensors)).ok());
    nlohmann::json config = {
        {"peft_type", "LORA"},          {"r", adapter.rank}, {"lora_alpha", adapter.alpha},
        {"use_rslora", adapter.rslora}, {"bias", "none"},    {"target_modules", plan->Modules()}};
    for (const auto& [key, value] : adapter.config) config[key] = value;
    WriteText(folder + "/adapter_config.json", config.dump());
}

}  // namespace weft::support
