// The model of a checkpoint, as a ModelSource: what the source was, with the trained weights from
// the checkpoint's files. So a model is written whatever ranks held which part of it.
#pragma once

#include <string>
#include <vector>

#include "formats/model_file.h"
#include "train/checkpoint/reader.h"

namespace weft::train {

// The kind of the arrays that are the model's weights.
inline constexpr char kWeightKind[] = "weight";

class CheckpointSource final : public formats::ModelSource {
  public:
    // Borrows both. kDenied: the checkpoint is of another model; kCorrupt: of weights that it does
    // not have, or in another shape.
    static Result<CheckpointSource> Make(const formats::ModelSource& source,
                                         const Checkpoint& checkpoint);

    const std::string& name() const override { return source_->name(); }
    const formats::Metadata& meta() const override { return source_->meta(); }
    std::string folder() const override { return source_->folder(); }
    const std::vector<formats::TensorInfo>& tensors() const override { return tensors_; }
    const formats::TensorInfo* FindTensor(std::string_view tensor) const override;
    Status ReadRows(const formats::TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                    int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                    uint64_t* bytes_read) const override;
    // That of the model that training began with.
    Result<std::string> Fingerprint() const override;

  private:
    CheckpointSource(const formats::ModelSource& source, const Checkpoint& checkpoint)
        : source_(&source), checkpoint_(&checkpoint), tensors_(source.tensors()) {}

    const formats::ModelSource* source_;
    const Checkpoint* checkpoint_;
    std::vector<formats::TensorInfo> tensors_;
};

}  // namespace weft::train
