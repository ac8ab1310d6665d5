#include "engine/rank/step_links.h"

#include <cmath>
#include <cstring>
#include <utility>

namespace weft::engine {
namespace {

using backend::Candidate;

size_t AnswerBytes(const RowRequest& ask, size_t columns) {
    switch (ask.kind) {
        case RowRequest::Kind::kAll: return columns * sizeof(float);
        case RowRequest::Kind::kBest: return static_cast<size_t>(ask.top) * sizeof(Candidate);
        case RowRequest::Kind::kToken: return sizeof(Candidate);
    }
    return 0;
}

size_t MessageBytes(std::span<const RowRequest> asks, size_t columns) {
    size_t bytes = 0;
    for (const RowRequest& ask : asks) bytes += AnswerBytes(ask, columns);
    return bytes;
}

}  // namespace

Result<size_t> StepLinks::Columns(size_t bytes) const {
    const size_t columns = bytes / sizeof(float) / asks_.size();
    if (columns == 0 || columns * asks_.size() * sizeof(float) != bytes) {
        return MakeError(ErrorCode::kCorrupt,
                         "the logits of a step are {} bytes; expected {} equal rows of float32, "
                         "one for each output row. Run the same build of Weft on all hosts",
                         bytes, asks_.size());
    }
    for (const RowRequest& ask : asks_) {
        if (ask.kind != RowRequest::Kind::kBest) continue;
        if (ask.top > 0 && std::cmp_less_equal(ask.top, columns)) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "a step requests the {} best logits of a row; expected 1 to {}, the "
                         "logits of a row. Run the same build of Weft on all hosts",
                         ask.top, columns);
    }
    return columns;
}

Status StepLinks::Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) {
    if (peer != 0 || asks_.empty()) return comm_.Send(data, peer, tag);
    WEFT_ASSIGN(const size_t columns, Columns(data.size()));
    Pack(data, columns);
    return comm_.Send(message_, peer, tag);
}

void StepLinks::Pack(std::span<const std::byte> data, size_t columns) {
    message_.resize(MessageBytes(asks_, columns));
    std::byte* to = message_.data();
    for (size_t i = 0; i < asks_.size(); ++i) {
        const RowRequest& ask = asks_[i];
        const std::span row(reinterpret_cast<const float*>(data.data()) + i * columns, columns);
        const size_t bytes = AnswerBytes(ask, columns);
        switch (ask.kind) {
            case RowRequest::Kind::kAll: std::memcpy(to, row.data(), bytes); break;
            case RowRequest::Kind::kBest:
                backend::TopK(row, {reinterpret_cast<Candidate*>(to), bytes / sizeof(Candidate)});
                break;
            case RowRequest::Kind::kToken: {
                const Candidate drawn = sampler_.DrawToken(row, ask.chain);
                std::memcpy(to, &drawn, bytes);
                break;
            }
        }
        to += bytes;
    }
}

Status StepLinks::Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) {
    if (comm_.rank() != 0) return comm_.Recv(data, peer, tag);
    answers_.clear();
    if (asks_.empty()) return comm_.Recv(data, peer, tag);
    WEFT_ASSIGN(const size_t columns, Columns(data.size()));
    message_.resize(MessageBytes(asks_, columns));
    WEFT_TRY(comm_.Recv(message_, peer, tag));
    return Unpack(data, columns);
}

Status StepLinks::Unpack(std::span<std::byte> data, size_t columns) {
    const std::byte* from = message_.data();
    answers_.resize(asks_.size());
    for (size_t i = 0; i < asks_.size(); ++i) {
        const RowRequest& ask = asks_[i];
        const size_t bytes = AnswerBytes(ask, columns);
        RowAnswer& answer = answers_[i];
        answer.kind = ask.kind;
        answer.columns = columns;
        if (ask.kind == RowRequest::Kind::kAll) {
            std::memcpy(data.data() + i * bytes, from, bytes);
        } else {
            answer.best.resize(bytes / sizeof(Candidate));
            std::memcpy(answer.best.data(), from, bytes);
        }
        from += bytes;
        for (const Candidate& each : answer.best) {
            const bool none = each.index == -1 && !std::isfinite(each.value);
            const bool token = each.index >= 0 && std::cmp_less(each.index, columns);
            if (token || (none && ask.kind == RowRequest::Kind::kToken)) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "the last pipeline stage answered with token {}; expected 0 to {}. "
                             "Run the same build of Weft on all hosts",
                             each.index, columns - 1);
        }
    }
    return {};
}

const RowAnswer* StepLinks::Find(int64_t row) const {
    if (std::cmp_greater_equal(row, answers_.size())) return nullptr;
    const RowAnswer& answer = answers_[static_cast<size_t>(row)];
    return answer.kind == RowRequest::Kind::kAll ? nullptr : &answer;
}

}  // namespace weft::engine
