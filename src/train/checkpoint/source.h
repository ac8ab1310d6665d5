// The model of a checkpoint, as a ModelSource: what the source was, with the trained weights from
// the checkpoint's files. So a model is written whatever ranks held which part of it.
#pragma once

#include "model_files/source_over.h"
#include "train/checkpoint/reader.h"

namespace weft::train {

// The kind of the arrays that are the model's weights.
inline constexpr char kWeightKind[] = "weight";

class CheckpointSource final : public model_files::SourceOver {
  public:
    // Borrows both. kDenied: the checkpoint is of another model; kCorrupt: of weights that it does
    // not have, or in another shape.
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

}  // namespace weft::train
