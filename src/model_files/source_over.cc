#include "model_files/source_over.h"

#include "base/check.h"

namespace weft::model_files {

SourceOver::SourceOver(const ModelSource& under)
    : under_(&under), tensors_(under.tensors()), own_(tensors_.size(), false) {
    for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].name, i);
}

SourceOver::SourceOver(std::unique_ptr<ModelSource> under) : SourceOver(*under) {
    owned_ = std::move(under);
}

void SourceOver::ChangeToF32(size_t index) {
    TensorInfo& tensor = tensors_[index];
    tensor.dtype = DType::kF32;
    tensor.bytes = static_cast<uint64_t>(tensor.rows * tensor.cols) * sizeof(float);
    own_[index] = true;
}

void SourceOver::AddMatrix(const std::string& name, DType dtype, int64_t rows, int64_t cols) {
    const auto bytes = static_cast<uint64_t>(rows * RowBytes(dtype, cols));
    AddTensor({name, dtype, cols, rows, 2, {cols, rows, 1, 1}, 0, 0, bytes});
}

void SourceOver::AddTensor(TensorInfo tensor) {
    index_.emplace(tensor.name, tensors_.size());
    tensors_.push_back(std::move(tensor));
    own_.push_back(true);
}

const TensorInfo* SourceOver::FindTensor(std::string_view tensor) const {
    const auto found = index_.find(tensor);
    return found == index_.end() ? nullptr : &tensors_[found->second];
}

Status SourceOver::ReadRows(const TensorInfo& tensor, int64_t row_begin, int64_t row_count,
                            int64_t col_begin, int64_t col_count, std::span<std::byte> out,
                            uint64_t* bytes_read) const {
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    const auto found = index_.find(tensor.name);
    WEFT_CHECK(found != index_.end());
    if (own_[found->second]) {
        return ReadOwn(found->second, row_begin, row_count, col_begin, col_count, out, bytes_read);
    }
    const TensorInfo* below = under_->FindTensor(tensor.name);
    WEFT_CHECK(below != nullptr);
    return under_->ReadRows(*below, row_begin, row_count, col_begin, col_count, out, bytes_read);
}

}  // namespace weft::model_files
