// Description of the served model, for clients that list and show models.
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
    std::string quantization{};  // the type of most of the weights' bytes: "Q4_K"
    std::string digest{};        // 64 hexadecimal digits; hash of the metadata and the tensor table
    uint64_t size_bytes = 0;     // of all tensors
    int64_t parameters = 0;
    int64_t modified_s = 0;  // Unix time of the file; 0: unknown
    Json info{};             // metadata: numbers, strings and short lists; longer lists are empty
    std::string chat_template{};  // source; "": none
    bool tools = false;           // the model can call tools
    bool thinking = false;        // the chat template supports reasoning
};

// path: of the opened model. chat: null if there is no template.
ModelCard DescribeModel(const model_files::ModelSource& source, const std::string& path,
                        const chat::Chat* chat);

// Examples: "134.52M", "8.0B".
std::string ParametersText(int64_t parameters);

}  // namespace weft::serve
