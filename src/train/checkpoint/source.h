// The model of a checkpoint as a ModelSource: the original model, with the trained weights from the
// checkpoint's files. So the model can be exported whatever the sharding of the checkpoint.
#pragma once

#include "model_files/source_over.h"
#include "train/checkpoint/reader.h"

namespace weft::train {

// Array::kind of the model's weights.
inline constexpr char kWeightKind[] = "weight";

class CheckpointSource final : public model_files::SourceOver {
  public:
    // `source` and `checkpoint` must outlive this object. Errors: kCorrupt: a weight is missing or
    // has another shape.
    static Result<CheckpointSource> Make(const model_files::ModelSource& source,
                                         const Checkpoint& checkpoint);

  private:
    CheckpointSource(const model_files::ModelSource& source, const Checkpoint& checkpoint)
        : SourceOver(source), checkpoint_(&checkpoint) {}
    Status ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                   int64_t col_count, std::span<std::byte> out,
                   uint64_t* bytes_read) const override;

    const Checkpoint* checkpoint_;
};

// Whether `checkpoint` was trained from `source`, of which all files are read if need be
// (ReadIdentity). Logs a warning for a checkpoint of an earlier build. Errors: kDenied.
Status CheckModel(const model_files::ModelSource& source, const Checkpoint& checkpoint);

}  // namespace weft::train
