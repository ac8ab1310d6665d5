#include "train/lora/merge.h"

#include <algorithm>

#include "tensor/quant.h"
#include "formats/lora/adapter.h"

namespace weft::train {

Result<std::unique_ptr<MergedSource>> MergedSource::Make(
    std::unique_ptr<formats::ModelSource> model, const std::string& adapter) {
    LoraWords words;
    words.from = adapter;
    WEFT_ASSIGN(LoraPlan plan, PlanLora(*model, words));
    std::unique_ptr<MergedSource> made(new MergedSource(std::move(model), std::move(plan)));
    WEFT_ASSIGN(const formats::AdapterFile file, formats::AdapterFile::Open(made->plan_));
    const int64_t rank = made->plan_.words.rank;
    for (const LoraTarget& target : made->plan_.targets) {
        Pair pair{&target, {}, {}};
        pair.a.resize(static_cast<size_t>(rank * target.cols));
        pair.b.resize(static_cast<size_t>(target.rows * rank));
        WEFT_TRY(file.Read(target, false, 0, rank, pair.a));
        WEFT_TRY(file.Read(target, true, 0, target.rows, pair.b));
        made->pairs_.push_back(std::move(pair));
    }
    made->tensors_ = made->model_->tensors();
    for (formats::TensorInfo& tensor : made->tensors_) {
        if (made->PairOf(tensor.name) == nullptr) continue;
        tensor.dtype = DType::kF32;
        tensor.bytes = static_cast<uint64_t>(tensor.rows * tensor.cols) * sizeof(float);
    }
    return made;
}

const MergedSource::Pair* MergedSource::PairOf(const std::string& tensor) const {
    const auto found = std::ranges::find(
        pairs_, tensor, [](const Pair& pair) -> const std::string& { return pair.target->tensor; });
    return found == pairs_.end() ? nullptr : &*found;
}

const formats::TensorInfo* MergedSource::FindTensor(std::string_view tensor) const {
    const auto found = std::ranges::find(tensors_, tensor, &formats::TensorInfo::name);
    return found == tensors_.end() ? nullptr : &*found;
}

Status MergedSource::ReadRows(const formats::TensorInfo& tensor, int64_t row_begin,
                              int64_t row_count, int64_t col_begin, int64_t col_count,
                              std::span<std::byte> out, uint64_t* bytes_read) const {
    const formats::TensorInfo* from = model_->FindTensor(tensor.name);
    WEFT_CHECK(from != nullptr);
    const Pair* pair = PairOf(tensor.name);
    if (pair == nullptr) {
        return model_->ReadRows(*from, row_begin, row_count, col_begin, col_count, out, bytes_read);
    }
    CheckSlice(tensor, row_begin, row_count, col_begin, col_count, out.size());
    std::vector<std::byte> raw(static_cast<size_t>(row_count * RowBytes(from->dtype, col_count)));
    WEFT_TRY(model_->ReadRows(*from, row_begin, row_count, col_begin, col_count, raw, bytes_read));
    const std::span<float> values(reinterpret_cast<float*>(out.data()),
                                  static_cast<size_t>(row_count * col_count));
    DequantizeRow(from->dtype, raw, values);
    const auto scale = static_cast<float>(plan_.scale());
    const int64_t rank = plan_.words.rank;
    for (int64_t row = 0; row < row_count; ++row) {
        float* const to = values.data() + row * col_count;
        for (int64_t r = 0; r < rank; ++r) {
            const float factor = scale * pair->b[static_cast<size_t>((row_begin + row) * rank + r)];
            const float* const a = pair->a.data() + r * tensor.cols + col_begin;
            for (int64_t col = 0; col < col_count; ++col) to[col] += factor * a[col];
        }
    }
    return {};
}

}  // namespace weft::train
