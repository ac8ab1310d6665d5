#include "train/lora/merge.h"

#include <algorithm>
#include <cmath>

#include "tensor/quant.h"

namespace weft::train {
namespace {

using model_files::LoraUse;
using model_files::LoraWhole;
using model_files::TensorInfo;

constexpr const char *kOutput = "output.weight", *kEmbedding = "token_embd.weight";

}  // namespace

Result<std::unique_ptr<MergedSource>> MergedSource::Make(
    std::unique_ptr<model_files::ModelSource> model, const std::string& adapter) {
    LoraOptions words;
    words.from = adapter;
    WEFT_ASSIGN(const LoraPlan plan, PlanLora(*model, words, LoraUse::kMerged));
    std::unique_ptr<MergedSource> made(new MergedSource(std::move(model)));
    WEFT_ASSIGN(const model_files::AdapterFile file, model_files::AdapterFile::Open(plan));
    const auto at_end = [](const auto& one) {
        return one.tensor == kOutput || one.tensor == kEmbedding;
    };
    const TensorInfo* embedding = made->FindTensor(kEmbedding);
    const bool ends =
        std::ranges::any_of(plan.targets, at_end) || std::ranges::any_of(plan.wholes, at_end);
    if (ends && embedding != nullptr && made->FindTensor(kOutput) == nullptr) {
        made->AddMatrix(kOutput, DType::kF32, embedding->rows, embedding->cols);
    }
    WEFT_TRY(made->AddChanges(plan, file));
    return made;
}

Status MergedSource::AddChanges(const LoraPlan& plan, const model_files::AdapterFile& file) {
    for (const LoraWhole& whole : plan.wholes) {
        WEFT_ASSIGN(Change * change, ChangeOf(whole.tensor));
        const TensorInfo& tensor = *FindTensor(whole.tensor);
        WEFT_ASSIGN(change->whole, file.ReadWhole(whole, tensor.rows, tensor.cols));
    }
    for (const LoraTarget& target : plan.targets) {
        WEFT_ASSIGN(Change * change, ChangeOf(target.tensor));
        Pair pair{static_cast<float>(target.scale),
                  target.rank,
                  target.row_begin,
                  target.rows,
                  target.experts,
                  {},
                  {},
                  {}};
        WEFT_ASSIGN(pair.a, file.ReadWhole(target, false));
        WEFT_ASSIGN(pair.b, file.ReadWhole(target, true));
        if (target.dora) {
            WEFT_ASSIGN(pair.lengths, file.ReadLengths(target));
        }
        change->pairs.push_back(std::move(pair));
    }
    return {};
}

Result<MergedSource::Change*> MergedSource::ChangeOf(const std::string& tensor) {
    const TensorInfo* found = FindTensor(tensor);
    WEFT_CHECK(found != nullptr);
    const auto index = static_cast<size_t>(found - tensors().data());
    ChangeToF32(index);
    return &changes_[index];
}

const TensorInfo& MergedSource::Below(size_t index) const {
    const std::vector<TensorInfo>& own = under().tensors();
    return index < own.size() ? own[index] : *under().FindTensor(kEmbedding);
}

void MergedSource::Apply(const Change& change, int64_t row, std::span<float> values) const {
    const auto cols = static_cast<int64_t>(values.size());
    for (const Pair& pair : change.pairs) {
        const int64_t own = row - pair.row_begin;
        if (own < 0 || own >= pair.rows) continue;
        const int64_t expert = own / (pair.rows / pair.experts);
        for (int64_t r = 0; r < pair.rank; ++r) {
            const float factor = pair.scale * pair.b[static_cast<size_t>(own * pair.rank + r)];
            const float* const a = pair.a.data() + (expert * pair.rank + r) * cols;
            for (size_t col = 0; col < values.size(); ++col) values[col] += factor * a[col];
        }
        if (pair.lengths.empty()) continue;
        double squares = 0;
        for (const float value : values) squares += double{value} * value;
        const double length = pair.lengths[static_cast<size_t>(own)];
        const auto factor = static_cast<float>(length / std::sqrt(squares));
        for (float& value : values) value *= factor;
    }
}

Status MergedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                             int64_t col_count, std::span<std::byte> out,
                             uint64_t* bytes_read) const {
    static const Change kNone;
    const TensorInfo& from = Below(index);
    const auto found = changes_.find(index);
    const Change& change = found == changes_.end() ? kNone : found->second;
    // (A row's length needs all of its columns.)
    constexpr int64_t kElementsAtATime = 1 << 20;
    const int64_t cols = from.cols, most = std::max<int64_t>(1, kElementsAtATime / cols);
    std::vector<std::byte> raw;
    std::vector<float> values;
    for (int64_t done = 0; done < row_count; done += most) {
        const int64_t begin = row_begin + done, rows = std::min(most, row_count - done);
        values.resize(static_cast<size_t>(rows * cols));
        if (change.whole.empty()) {
            raw.resize(static_cast<size_t>(rows * RowBytes(from.dtype, cols)));
            WEFT_TRY(under().ReadRows(from, begin, rows, 0, cols, raw, bytes_read));
            DequantizeRow(from.dtype, raw, values);
        } else {
            std::ranges::copy(
                std::span(change.whole).subspan(static_cast<size_t>(begin * cols), values.size()),
                values.begin());
        }
        for (int64_t i = 0; i < rows; ++i) {
            const auto row =
                std::span(values).subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols));
            Apply(change, begin + i, row);
            const auto slice = std::as_bytes(
                row.subspan(static_cast<size_t>(col_begin), static_cast<size_t>(col_count)));
            std::ranges::copy(slice, out.begin() + (done + i) * static_cast<int64_t>(slice.size()));
        }
    }
    return {};
}

}  // namespace weft::train
