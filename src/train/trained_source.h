// A model after training, as a ModelSource: what the source was, with the trained weights in
// float32. So it is exported by `formats::Quantize`, to any type.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/cpu/training.h"
#include "formats/model_file.h"

namespace weft::train {

class TrainedSource final : public formats::ModelSource {
  public:
    // Borrows both. The executable has all weights whole.
    TrainedSource(const formats::ModelSource& source, backend::TrainingExecutable& training);

    const std::string& name() const override { return source_.name(); }
    const formats::Metadata& meta() const override { return source_.meta(); }
    std::string folder() const override { return source_.folder(); }
    const std::vector<formats::TensorInfo>& tensors() const override { return tensors_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const formats::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    Result<std::string> Fingerprint() const override;

  private:
    // A weight that is (a part of) a tensor: rows and columns from there on.
    struct Part {
        int64_t row = 0, rows = 0, col = 0, cols = 0;
        const float* data = nullptr;
    };
    const formats::ModelSource& source_;
    std::vector<formats::TensorInfo> tensors_;
    std::map<std::string, std::vector<Part>, std::less<>> parts_;
};

}  // namespace weft::train
