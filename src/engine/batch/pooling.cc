#include "engine/batch/pooling.h"

#include <cmath>

#include "base/check.h"

namespace weft::engine {
namespace {

// Adds the state of the token at `position`, of tokens [first, tokens).
void AddRow(Pooling pooling, std::span<const float> row, int64_t position, int64_t first,
            int64_t tokens, std::vector<double>& columns) {
    if (position < first || (pooling == Pooling::kLast && position != tokens - 1)) return;
    if (pooling == Pooling::kCls && position != first) return;
    const double weight = pooling == Pooling::kWeighted ? static_cast<double>(position + 1) : 1;
    for (size_t i = 0; i < row.size(); ++i) {
        const double x = double{row[i]};
        if (pooling == Pooling::kLast || position == first)
            columns[i] = pooling == Pooling::kWeighted ? weight * x : x;
        else if (pooling != Pooling::kMax)
            columns[i] += weight * x;
        else if (!(x <= columns[i]))
            columns[i] = x;  // NaN stays
    }
}

// The divisor of the sums of the states [first, tokens).
double Divisor(Pooling pooling, double first, double tokens) {
    switch (pooling) {
        case Pooling::kLast:
        case Pooling::kCls:
        case Pooling::kMax: return 1;
        case Pooling::kMean: return tokens - first;
        case Pooling::kMeanSqrt: return std::sqrt(tokens - first);
        case Pooling::kWeighted: return (tokens * (tokens + 1) - first * (first + 1)) / 2;
    }
    return 1;
}

}  // namespace

Pooler::Pooler(const std::vector<Pooling>& poolings, int64_t tokens, int64_t columns, int64_t first)
    : tokens_(tokens), first_(first < tokens ? first : 0), columns_(static_cast<size_t>(columns)) {
    for (const Pooling each : poolings) parts_.push_back({each, std::vector<double>(columns_)});
}

void Pooler::Add(std::span<const float> rows, int64_t position) {
    WEFT_CHECK(rows.size() % columns_ == 0);
    for (size_t at = 0; at < rows.size(); at += columns_, ++position) {
        for (Part& part : parts_) {
            AddRow(part.pooling, rows.subspan(at, columns_), position, first_, tokens_,
                   part.columns);
        }
    }
}

Result<std::vector<float>> Pooler::Finish() const {
    std::vector<float> vector;
    double squares = 0;
    for (const Part& part : parts_) {
        const double divisor =
            Divisor(part.pooling, static_cast<double>(first_), static_cast<double>(tokens_));
        for (const double sum : part.columns) {
            const double x = sum / divisor;
            squares += x * x;
            vector.push_back(static_cast<float>(x));
        }
    }
    const double length = std::sqrt(squares);
    if (length > 0 && std::isfinite(length)) return vector;
    return MakeError(ErrorCode::kCorrupt,
                     "the model's hidden state has a length of {}: no embedding can be made of it",
                     length);
}

}  // namespace weft::engine
