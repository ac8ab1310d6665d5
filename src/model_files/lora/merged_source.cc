#include "model_files/lora/merged_source.h"

#include <algorithm>
#include <cmath>

#include "tensor/quant.h"

namespace weft::model_files {
namespace {

constexpr size_t kMostRecent = 8;  // tensors; several threads load weights

Result<LoraPlan> PlanOf(const ModelSource& model, const std::string& adapter) {
    LoraOptions words;
    words.from = adapter;
    return PlanLora(model, words, LoraUse::kApply);
}

}  // namespace

Result<std::unique_ptr<MergedSource>> MergedSource::Make(std::unique_ptr<ModelSource> model,
                                                         const std::string& adapter) {
    WEFT_ASSIGN(const LoraPlan plan, PlanOf(*model, adapter));
    return Make(std::move(model), plan);
}

Result<std::unique_ptr<MergedSource>> MergedSource::Make(const ModelSource& model,
                                                         const std::string& adapter) {
    WEFT_ASSIGN(const LoraPlan plan, PlanOf(model, adapter));
    return Make(nullptr, model, plan);
}

Result<std::unique_ptr<MergedSource>> MergedSource::Make(std::unique_ptr<ModelSource> model,
                                                         const LoraPlan& plan) {
    const ModelSource& under = *model;
    return Make(std::move(model), under, plan);
}

Result<std::unique_ptr<MergedSource>> MergedSource::Make(std::unique_ptr<ModelSource> owned,
                                                         const ModelSource& model,
                                                         const LoraPlan& plan) {
    std::unique_ptr<MergedSource> made(new MergedSource(std::move(owned), model));
    WEFT_ASSIGN(made->file_, AdapterFile::Open(plan));
    made->plan_ = plan;
    const TensorInfo* embedding = made->FindTensor(kEmbeddingTensor);
    const int64_t hidden = embedding != nullptr ? embedding->cols : 0;
    if (plan.ChangesEnds() && embedding != nullptr && made->FindTensor(kOutputTensor) == nullptr) {
        made->AddMatrix(kOutputTensor, DType::kF32, embedding->rows, embedding->cols);
    }
    for (const LoraWhole& whole : plan.wholes) {
        if (whole.height > 0) made->AddMatrix(whole.tensor, DType::kF32, whole.height, hidden);
        made->ChangeOf(whole.tensor).whole = whole;
        WEFT_TRY(made->file_->CheckWhole(whole, *made->FindTensor(whole.tensor)));
    }
    for (const LoraTarget& target : plan.targets) {
        made->ChangeOf(target.tensor).targets.push_back(target);
    }
    return made;
}

MergedSource::Change& MergedSource::ChangeOf(const std::string& tensor) {
    const TensorInfo* found = FindTensor(tensor);
    WEFT_CHECK(found != nullptr);
    const auto index = static_cast<size_t>(found - tensors().data());
    ChangeToF32(index);
    return changes_[index];
}

const TensorInfo& MergedSource::Below(size_t index) const {
    const std::vector<TensorInfo>& own = under().tensors();
    return index < own.size() ? own[index] : *under().FindTensor(kEmbeddingTensor);
}

Result<MergedSource::Pairs> MergedSource::PairsOf(size_t index) const {
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [of, pairs] : recent_) {
            if (of == index) return pairs;
        }
    }
    std::vector<LoraPair> read;
    std::map<std::string, int64_t> begins;  // by module
    int64_t ranks = 0;
    const auto found = changes_.find(index);
    for (const LoraTarget& target :
         found == changes_.end() ? std::vector<LoraTarget>() : found->second.targets) {
        LoraPair& pair = read.emplace_back();
        pair.scale = static_cast<float>(target.scale);
        pair.rank = target.rank;
        pair.row_begin = target.row_begin;
        pair.rows = target.rows;
        pair.experts = target.experts;
        if (tensors()[index].dim_count == 2) {
            const auto [begin, first] = begins.try_emplace(target.module, ranks);
            pair.rank_begin = begin->second;
            if (first) ranks += target.rank;
        }
        WEFT_ASSIGN(pair.a, file_->ReadWhole(target, false));
        WEFT_ASSIGN(pair.b, file_->ReadWhole(target, true));
        if (target.dora) {
            WEFT_ASSIGN(pair.lengths, file_->ReadLengths(target));
        }
    }
    auto pairs = std::make_shared<const std::vector<LoraPair>>(std::move(read));
    const std::lock_guard lock(mutex_);
    recent_.emplace_front(index, pairs);
    if (recent_.size() > kMostRecent) recent_.pop_back();
    return pairs;
}

Status MergedSource::ReadBelow(size_t index, int64_t begin, int64_t count, std::span<float> out,
                               uint64_t* bytes_read) const {
    const auto found = changes_.find(index);
    const TensorInfo& from = Below(index);
    const bool replaced = found != changes_.end() && found->second.whole.has_value();
    if (replaced && found->second.whole->rows.empty()) {
        return file_->ReadRows(*found->second.whole, from, begin, count, out);
    }
    std::vector<std::byte> raw(static_cast<size_t>(count * RowBytes(from.dtype, from.cols)));
    WEFT_TRY(under().ReadRows(from, begin, count, 0, from.cols, raw, bytes_read));
    DequantizeRow(from.dtype, raw, out);
    if (!replaced) return {};
    const LoraWhole& some = *found->second.whole;
    for (size_t i = 0; i < some.rows.size(); ++i) {
        const int64_t row = some.rows[i] - begin;
        if (row < 0 || row >= count) continue;
        WEFT_TRY(file_->ReadRows(
            some, from, static_cast<int64_t>(i), 1,
            out.subspan(static_cast<size_t>(row * from.cols), static_cast<size_t>(from.cols))));
    }
    return {};
}

Result<float> MergedSource::Apply(const std::vector<LoraPair>& pairs, size_t index, int64_t row,
                                  std::span<float> values) const {
    const auto cols = static_cast<int64_t>(values.size());
    float gain = 1;
    for (const LoraPair& pair : pairs) {
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
        gain = static_cast<float>(length / std::sqrt(squares));
        if (std::isfinite(gain)) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "{}: DoRA scales row {} of {} from length {} to {}; expected a row that "
                         "is not zero. Is it an adapter of another model?",
                         path(), row, tensors()[index].name, std::sqrt(squares), length);
    }
    return gain;
}

Status MergedSource::EachRow(
    size_t index, int64_t begin, int64_t count, uint64_t* bytes_read,
    const std::function<void(int64_t, std::span<float>, float)>& each) const {
    WEFT_ASSIGN(const Pairs pairs, PairsOf(index));
    // (A row's length needs all of its columns.)
    constexpr int64_t kElementsAtATime = 1 << 20;
    const int64_t cols = Below(index).cols, most = std::max<int64_t>(1, kElementsAtATime / cols);
    std::vector<float> values;
    for (int64_t done = 0; done < count; done += most) {
        const int64_t rows = std::min(most, count - done);
        values.resize(static_cast<size_t>(rows * cols));
        WEFT_TRY(ReadBelow(index, begin + done, rows, values, bytes_read));
        for (int64_t i = 0; i < rows; ++i) {
            const auto row =
                std::span(values).subspan(static_cast<size_t>(i * cols), static_cast<size_t>(cols));
            WEFT_ASSIGN(const float gain, Apply(*pairs, index, begin + done + i, row));
            each(done + i, row, gain);
        }
    }
    return {};
}

Result<std::vector<float>> MergedSource::Gains(size_t index, int64_t begin, int64_t count) const {
    std::vector<float> gains(static_cast<size_t>(count));
    WEFT_TRY(EachRow(index, begin, count, nullptr, [&](int64_t row, std::span<float>, float gain) {
        gains[static_cast<size_t>(row)] = gain;
    }));
    return gains;
}

Status MergedSource::ReadFloats(size_t index, int64_t begin, std::span<float> out) const {
    std::vector<float> all(static_cast<size_t>(Below(index).cols));
    WEFT_TRY(ReadBelow(index, 0, 1, all, nullptr));
    std::ranges::copy(std::span(all).subspan(static_cast<size_t>(begin), out.size()), out.begin());
    return {};
}

Status MergedSource::ReadOwn(size_t index, int64_t row_begin, int64_t row_count, int64_t col_begin,
                             int64_t col_count, std::span<std::byte> out,
                             uint64_t* bytes_read) const {
    const auto put = [&](int64_t at, std::span<float> row, float gain) {
        for (float& value : row) value *= gain;
        const auto slice = std::as_bytes(
            row.subspan(static_cast<size_t>(col_begin), static_cast<size_t>(col_count)));
        std::ranges::copy(slice, out.begin() + at * static_cast<int64_t>(slice.size()));
    };
    return EachRow(index, row_begin, row_count, bytes_read, put);
}

}  // namespace weft::model_files
