#include "train/lora/merge.h"

#include "model_files/lora/adapter.h"
#include "tensor/quant.h"

namespace weft::train {

Result<std::unique_ptr<MergedSource>> MergedSource::Make(
    std::unique_ptr<model_files::ModelSource> model, const std::string& adapter) {
    LoraOptions words;
    words.from = adapter;
    WEFT_ASSIGN(LoraPlan plan, PlanLora(*model, words));
    std::unique_ptr<MergedSource> made(new MergedSource(std::move(model), std::move(plan)));
    WEFT_ASSIGN(const model_files::AdapterFile file, model_files::AdapterFile::Open(made->plan_));
    const int64_t rank = made->plan_.words.rank;
    for (const LoraTarget& target : made->plan_.targets) {
        Pair pair;
        pair.a.resize(static_cast<size_t>(rank * target.cols));
        pair.b.resize(static_cast<size_t>(target.rows * rank));
        WEFT_TRY(file.Read(target, false, 0, rank, pair.a));
        WEFT_TRY(file.Read(target, true, 0, target.rows, pair.b));
        const auto index =
            static_cast<size_t>(made->FindTensor(target.tensor) - made->tensors().data());
        made->ChangeToF32(index);
        made->pairs_.emplace(index, std::move(pair));
    }
    return made;
}

Status MergedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                             int64_t col_count, std::span<std::byte> out,
                             uint64_t* bytes_read) const {
    const model_files::TensorInfo* from = &under().tensors()[index];
    const Pair& pair = pairs_.at(index);
    std::vector<std::byte> raw(static_cast<size_t>(row_count * RowBytes(from->dtype, col_count)));
    WEFT_TRY(under().ReadRows(*from, row_begin, row_count, col_begin, col_count, raw, bytes_read));
    const std::span<float> values(reinterpret_cast<float*>(out.data()),
                                  static_cast<size_t>(row_count * col_count));
    DequantizeRow(from->dtype, raw, values);
    const auto scale = static_cast<float>(plan_.scale());
    const int64_t rank = plan_.words.rank;
    for (int64_t row = 0; row < row_count; ++row) {
        float* const to = values.data() + row * col_count;
        for (int64_t r = 0; r < rank; ++r) {
            const float factor = scale * pair.b[static_cast<size_t>((row_begin + row) * rank + r)];
            const float* const a = pair.a.data() + r * from->cols + col_begin;
            for (int64_t col = 0; col < col_count; ++col) to[col] += factor * a[col];
        }
    }
    return {};
}

}  // namespace weft::train
