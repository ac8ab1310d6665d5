#include "engine/sampling/logits_row.h"

#include <algorithm>

#include "base/check.h"

namespace weft::engine {

Status LogitsRow::Top(std::span<backend::Candidate> out) const {
    if (answer_ != nullptr) {
        WEFT_CHECK(answer_->kind == RowRequest::Kind::kBest && out.size() <= answer_->best.size());
        std::copy_n(answer_->best.begin(), out.size(), out.begin());
        return {};
    }
    if (executable_ != nullptr) {
        return executable_->ReadTopK(id_, row_, static_cast<int64_t>(columns_), out);
    }
    backend::TopK(values_, out);
    return {};
}

Status LogitsRow::CopyTo(std::vector<float>& out) const {
    WEFT_CHECK(answer_ == nullptr);
    if (executable_ == nullptr) {
        out.assign(values_.begin(), values_.end());
        return {};
    }
    out.resize(columns_);
    return executable_->ReadFloats(id_, row_ * width_, out);
}

Result<std::span<const float>> LogitsRow::All() const {
    WEFT_CHECK(answer_ == nullptr);
    if (const auto held = InHostMemory(); !held.empty()) return held;
    WEFT_TRY(CopyTo(*buffer_));
    return std::span<const float>(*buffer_);
}

std::span<const float> LogitsRow::InHostMemory() const {
    if (executable_ == nullptr) return values_;
    return executable_->HostFloats(id_, row_ * width_, static_cast<int64_t>(columns_));
}

}  // namespace weft::engine
