#include "train/trained_source.h"

#include <algorithm>

#include "base/check.h"

namespace weft::train {

TrainedSource::TrainedSource(const formats::ModelSource& source,
                             backend::TrainingExecutable& training)
    : source_(source), tensors_(source.tensors()) {
    const program::Program& program = training.program();
    for (size_t i = 0; i < program.values.size(); ++i) {
        const program::Value& value = program.values[i];
        if (value.storage != program::Storage::kWeight) continue;
        const bool vector = value.shape.rank == 1;
        Part part;
        part.row = vector ? 0 : value.slice.row_begin;
        part.rows = vector ? 1 : value.shape[0];
        part.col = vector ? value.slice.row_begin : value.slice.col_begin;
        part.cols = vector ? value.shape[0] : value.shape[1];
        part.data = training.Floats(static_cast<program::ValueId>(i)).data();
        parts_[value.slice.name].push_back(part);
    }
    for (formats::TensorInfo& tensor : tensors_) {
        if (!parts_.contains(tensor.name)) continue;
        tensor.dtype = DType::kF32;
        tensor.bytes = static_cast<uint64_t>(tensor.rows * tensor.cols) * sizeof(float);
    }
}

const formats::TensorInfo* TrainedSource::FindTensor(std::string_view tensor) const {
    const auto found = std::ranges::find(tensors_, tensor, &formats::TensorInfo::name);
    return found == tensors_.end() ? nullptr : &*found;
}

Status TrainedSource::ReadRows(const formats::TensorInfo& tensor, int64_t row_begin,
                               int64_t row_count, int64_t col_begin, int64_t col_count,
                               std::span<std::byte> out, uint64_t* bytes_read) const {
    const auto found = parts_.find(tensor.name);
    if (found == parts_.end()) {
        const formats::TensorInfo* mine = source_.FindTensor(tensor.name);
        WEFT_CHECK(mine != nullptr);
        return source_.ReadRows(*mine, row_begin, row_count, col_begin, col_count, out, bytes_read);
    }
    auto* to = reinterpret_cast<float*>(out.data());
    for (int64_t row = row_begin; row < row_begin + row_count; ++row, to += col_count) {
        for (const Part& part : found->second) {
            if (row < part.row || row >= part.row + part.rows) continue;
            const int64_t begin = std::max(col_begin, part.col);
            const int64_t end = std::min(col_begin + col_count, part.col + part.cols);
            if (begin >= end) continue;
            std::copy_n(part.data + (row - part.row) * part.cols + begin - part.col, end - begin,
                        to + begin - col_begin);
        }
    }
    if (bytes_read != nullptr) *bytes_read += out.size();
    return {};
}

Result<std::string> TrainedSource::Fingerprint() const {
    return MakeError(ErrorCode::kUnsupported, "a model in training has no fingerprint");
}

}  // namespace weft::train
