#include "engine/batch/pooling.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace weft::engine {
namespace {

constexpr std::array kPoolings = {Pooling::kLast, Pooling::kMean, Pooling::kCls};

}  // namespace

const char* PoolingName(Pooling pooling) {
    switch (pooling) {
        case Pooling::kLast: return "last";
        case Pooling::kMean: return "mean";
        case Pooling::kCls: return "cls";
    }
    return "?";
}

std::optional<Pooling> PoolingOfName(std::string_view name) {
    for (const Pooling pooling : kPoolings) {
        if (name == PoolingName(pooling)) return pooling;
    }
    return std::nullopt;
}

Pooler::Pooler(Pooling pooling, int64_t tokens, int64_t columns)
    : pooling_(pooling),
      tokens_(tokens),
      columns_(static_cast<size_t>(columns)),
      sum_(static_cast<size_t>(columns)) {}

void Pooler::Add(std::span<const float> rows, int64_t position) {
    WEFT_CHECK(rows.size() % columns_ == 0);
    for (size_t at = 0; at < rows.size(); at += columns_, ++position) {
        const auto row = rows.subspan(at, columns_);
        const int64_t wanted = pooling_ == Pooling::kLast ? tokens_ - 1 : 0;
        if (pooling_ != Pooling::kMean && position != wanted) continue;
        if (pooling_ != Pooling::kMean || position == 0) {
            std::ranges::copy(row, sum_.begin());
            continue;
        }
        for (size_t i = 0; i < columns_; ++i) sum_[i] += static_cast<double>(row[i]);
    }
}

Result<std::vector<float>> Pooler::Finish() const {
    double squares = 0;
    for (const double x : sum_) squares += x * x;
    const double length = std::sqrt(squares);
    if (!(length > 0) || !std::isfinite(length)) {
        return MakeError(ErrorCode::kCorrupt,
                         "the model's hidden state has a length of {}: no embedding can be made of "
                         "it",
                         length);
    }
    std::vector<float> vector(columns_);
    for (size_t i = 0; i < columns_; ++i) vector[i] = static_cast<float>(sum_[i] / length);
    return vector;
}

}  // namespace weft::engine
