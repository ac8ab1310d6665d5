// Types of a model's weights as its quantization_config has them: what `weft run` of such a folder
// holds in memory (model_files/hf/packed.h), for a config.json without one.
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

    // Of a tensor of GGUF's name with so many columns; none: as it is without quantization.
    std::optional<DType> Of(const std::string& tensor, int64_t cols) const;
    // What to tell of a file whose weights are held otherwise than it has them; may be empty.
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
