// What there is to say of the model that is served, for clients that list and show models.
#pragma once

#include <cstdint>
#include <string>

#include "chat/chat.h"
#include "model_files/model_file.h"
#include "serve/api/fields.h"

namespace weft::serve {

struct ModelCard {
    std::string family{};        // "llama": general.architecture
    std::string format{};        // "gguf", "safetensors", "synthetic"
    std::string quantization{};  // the type of most of its bytes: "Q4_K"
    std::string digest{};        // 64 hexadecimal digits, of the metadata and the table of tensors
    uint64_t size_bytes = 0;     // of all tensors
    int64_t parameters = 0;
    int64_t modified_s = 0;  // Unix time of the file; 0: not known
    Json info{};             // metadata: numbers, texts and short lists; others are empty lists
    bool tools = false;      // it may call them
    bool thinking = false;   // by its chat template
};

// path: where it was opened from. chat: null where there is no template.
ModelCard DescribeModel(const model_files::ModelSource& source, const std::string& path,
                        const chat::Chat* chat);

// "134.52M", "8.0B"
std::string ParametersText(int64_t parameters);

}  // namespace weft::serve
