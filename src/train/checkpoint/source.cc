#include "train/checkpoint/source.h"

namespace weft::train {

Result<CheckpointSource> CheckpointSource::Make(const model_files::ModelSource& source,
                                                const Checkpoint& checkpoint) {
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    if (fingerprint != checkpoint.manifest().model) {
        return MakeError(
            ErrorCode::kDenied,
            "{}: was trained from another model than {}. Use the model that training began with",
            checkpoint.folder(), source.name());
    }
    CheckpointSource made(source, checkpoint);
    for (size_t i = 0; i < made.tensors().size(); ++i) {
        const model_files::TensorInfo& tensor = made.tensors()[i];
        const Array* array = checkpoint.Find(kWeightKind, tensor.name);
        if (array == nullptr) continue;
        if (array->rows != tensor.rows || array->cols != tensor.cols ||
            array->type != SafeType::kF32) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} is {} x {} of {} there; expected {} x {} "
                             "of F32",
                             checkpoint.folder(), array->Name(), array->rows, array->cols,
                             model_files::hf::SafeTypeName(array->type), tensor.rows, tensor.cols);
        }
        made.ChangeToF32(i);
    }
    return made;
}

Status CheckpointSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count,
                                 int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                                 uint64_t* bytes_read) const {
    if (bytes_read != nullptr) *bytes_read += out.size();
    if (out.empty()) return {};
    const TensorRegion region{row_begin, row_count, col_begin, col_count, 0, row_count * col_count};
    return checkpoint_->Read(*checkpoint_->Find(kWeightKind, tensors()[index].name), region, out);
}

}  // namespace weft::train
