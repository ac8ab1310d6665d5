#include "train/checkpoint/source.h"

#include <algorithm>

namespace weft::train {

Result<CheckpointSource> CheckpointSource::Make(const formats::ModelSource& source,
                                                const Checkpoint& checkpoint) {
    WEFT_ASSIGN(const std::string fingerprint, source.Fingerprint());
    if (fingerprint != checkpoint.manifest().model) {
        return MakeError(ErrorCode::kDenied,
                         "{}: was trained from another model than {}. Name the one that training "
                         "began with",
                         checkpoint.folder(), source.name());
    }
    CheckpointSource made(source, checkpoint);
    for (formats::TensorInfo& tensor : made.tensors_) {
        const Array* array = checkpoint.Find(kWeightKind, tensor.name);
        if (array == nullptr) continue;
        if (array->rows != tensor.rows || array->cols != tensor.cols ||
            array->type != SafeType::kF32) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: {} is {} x {} of {} there; expected {} x {} "
                             "of F32",
                             checkpoint.folder(), array->Name(), array->rows, array->cols,
                             formats::hf::SafeTypeName(array->type), tensor.rows, tensor.cols);
        }
        tensor.dtype = DType::kF32;
        tensor.bytes = static_cast<uint64_t>(tensor.rows * tensor.cols) * sizeof(float);
    }
    return made;
}

const formats::TensorInfo* CheckpointSource::FindTensor(std::string_view tensor) const {
    const auto found = std::ranges::find(tensors_, tensor, &formats::TensorInfo::name);
    return found == tensors_.end() ? nullptr : &*found;
}

Status CheckpointSource::ReadRows(const formats::TensorInfo& tensor, int64_t row_begin,
                                  int64_t row_count, int64_t col_begin, int64_t col_count,
                                  std::span<std::byte> out, uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    const Array* array = checkpoint_->Find(kWeightKind, tensor.name);
    if (array == nullptr) {
        const formats::TensorInfo* inner = source_->FindTensor(tensor.name);
        WEFT_CHECK(inner != nullptr);
        return source_->ReadRows(*inner, row_begin, row_count, col_begin, col_count, out,
                                 bytes_read);
    }
    if (bytes_read != nullptr) *bytes_read += out.size();
    if (out.empty()) return {};
    const Region region{row_begin, row_count, col_begin, col_count, 0, row_count * col_count};
    return checkpoint_->Read(*array, region, out);
}

Result<std::string> CheckpointSource::Fingerprint() const {
    return source_->Fingerprint();
}

}  // namespace weft::train
