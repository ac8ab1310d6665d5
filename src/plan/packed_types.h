// Derives the weight types of a model from the quantization_config in its config.json, without its
// weights. The result has the types that `weft run` holds in memory for such a model
// (model_files/hf/packed.h).
#pragma once

#include <optional>
#include <string>

#include "model_files/hf/folder_config.h"
#include "tensor/dtype.h"

namespace weft::plan {

class PackedTypes {
  public:
    explicit PackedTypes(const model_files::hf::Family& family,
                         const model_files::hf::Config& config);

    // Type of a tensor, by its GGUF name and its number of columns; nullopt: the tensor is not
    // quantized in memory.
    std::optional<DType> Of(const std::string& tensor, int64_t cols) const;
    // A note for the user if memory holds weights in another type than the file; else empty.
    const std::string& note() const { return note_; }

  private:
    std::string ModuleOf(const std::string& tensor) const;
    bool IsLeftOut(const std::string& module) const;

    const model_files::hf::Family& family_;
    DType type_ = DType::kBF16;
    int64_t group_ = 0;
    std::vector<std::string> left_out_;
    std::string note_;
};

}  // namespace weft::plan
