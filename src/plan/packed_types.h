// Derives the weight types of a model from the quantization_config in its config.json, without its
// weights. The result has the types that `weft run` holds in memory for such a model
// (model_files/hf/packed.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model_files/hf/folder_config.h"
#include "model_files/hf/quantization.h"
#include "tensor/dtype.h"

namespace weft::plan {

class PackedTypes {
  public:
    // text: of config.json, for the order of expressions that name modules.
    PackedTypes(const model_files::hf::Family& family, const model_files::hf::Config& config,
                std::string_view text);

    // Type of a tensor, by its GGUF name and its number of columns; nullopt: the tensor is not
    // quantized in memory.
    std::optional<DType> Of(const std::string& tensor, int64_t cols) const;
    // A note for the user if memory holds weights in another type than the file; else empty.
    const std::string& note() const { return note_; }

  private:
    std::string ModuleOf(const std::string& tensor) const;
    bool IsLeftOut(const std::string& module) const;

    const model_files::hf::Family& family_;
    bool is_packed_ = false;
    model_files::hf::Quantization quantization_;
    std::vector<std::string> left_out_;
    std::string note_;
};

}  // namespace weft::plan
