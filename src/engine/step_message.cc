#include "engine/step_message.h"

#include <algorithm>
#include <bit>

namespace weft::engine {
namespace {

// Words of the head: total, kind, number (2), tokens, sequences, output rows, copies, asks.
constexpr size_t kHeadWords = 9;
// Words of an ask: the number of best logits, or one of these; a chain follows kToken.
constexpr int32_t kAskAll = 0, kAskToken = -1;
// The chunk size and the context bound a step; a larger message is invalid.
constexpr size_t kMostWords = size_t{1} << 26;

class WordReader {
  public:
    explicit WordReader(std::span<const int32_t> words) : words_(words) {}
    bool Take(size_t count, std::vector<int32_t>& out) {
        if (count > words_.size()) return false;
        out.assign(words_.begin(), words_.begin() + static_cast<ptrdiff_t>(count));
        words_ = words_.subspan(count);
        return true;
    }
    bool Take(int32_t& out) {
        if (words_.empty()) return false;
        out = words_.front();
        words_ = words_.subspan(1);
        return true;
    }
    bool empty() const { return words_.empty(); }

  private:
    std::span<const int32_t> words_;
};

void Append(std::vector<int32_t>& words, const std::vector<int32_t>& more) {
    words.insert(words.end(), more.begin(), more.end());
}

void AppendAsk(std::vector<int32_t>& words, const RowAsk& ask) {
    switch (ask.kind) {
        case RowAsk::Kind::kAll: words.push_back(kAskAll); return;
        case RowAsk::Kind::kBest: words.push_back(ask.top); return;
        case RowAsk::Kind::kToken: break;
    }
    const RowChain& chain = ask.chain;
    words.insert(
        words.end(),
        {kAskToken, std::bit_cast<int32_t>(chain.temperature), std::bit_cast<int32_t>(chain.top_p),
         std::bit_cast<int32_t>(chain.min_p), static_cast<int32_t>(chain.random & 0xffffffff),
         static_cast<int32_t>(chain.random >> 32)});
}

bool TakeAsk(WordReader& reader, RowAsk& ask) {
    ask = {};
    int32_t top = 0;
    if (!reader.Take(top) || top < kAskToken) return false;
    if (top != kAskToken) {
        ask.kind = top == kAskAll ? RowAsk::Kind::kAll : RowAsk::Kind::kBest;
        ask.top = top;
        return true;
    }
    ask.kind = RowAsk::Kind::kToken;
    std::vector<int32_t> words;
    if (!reader.Take(5, words)) return false;
    RowChain& chain = ask.chain;
    chain.temperature = std::bit_cast<float>(words[0]);
    chain.top_p = std::bit_cast<float>(words[1]);
    chain.min_p = std::bit_cast<float>(words[2]);
    chain.random = static_cast<uint32_t>(words[3]) |
                   static_cast<uint64_t>(static_cast<uint32_t>(words[4])) << 32;
    return chain.temperature > 0 && chain.top_p > 0 && chain.top_p <= 1 && chain.min_p >= 0 &&
           chain.min_p < 1 && chain.random < uint64_t{1} << 53;
}

Error BadStep(const char* what) {
    return MakeError(ErrorCode::kCorrupt, "step message from rank 0: {} makes no sense", what);
}

}  // namespace

backend::Step StepData::View(std::vector<backend::StepSequence>& views) const {
    views.clear();
    for (const Sequence& s : sequences) {
        views.push_back({s.row_begin, s.row_count, s.position, s.pages, s.adapter, s.state_from,
                         s.state_to, s.state_writes});
    }
    return {number, tokens, positions, views, output_rows, copies};
}

void StepData::Clear() {
    kind = StepKind::kRun;
    ++number;
    tokens.clear();
    positions.clear();
    output_rows.clear();
    sequences.clear();
    copies.clear();
    asks.clear();
    wanted = {};
}

void StepData::Append(std::span<const int32_t> new_tokens, int64_t position, Sequence sequence) {
    sequence.row_begin = static_cast<int32_t>(tokens.size());
    sequence.row_count = static_cast<int32_t>(new_tokens.size());
    sequence.position = static_cast<int32_t>(position);
    tokens.insert(tokens.end(), new_tokens.begin(), new_tokens.end());
    for (size_t i = 0; i < new_tokens.size(); ++i) {
        positions.push_back(static_cast<int32_t>(position + static_cast<int64_t>(i)));
    }
    sequences.push_back(std::move(sequence));
}

void EncodeStep(const StepData& step, std::vector<int32_t>& words) {
    const auto size = [](const auto& list) { return static_cast<int32_t>(list.size()); };
    words.clear();
    words.insert(
        words.end(),
        {0, static_cast<int32_t>(step.kind), static_cast<int32_t>(step.number & 0xffffffff),
         static_cast<int32_t>(step.number >> 32), size(step.tokens), size(step.sequences),
         size(step.output_rows), size(step.copies), size(step.asks)});
    Append(words, step.tokens);
    Append(words, step.positions);
    Append(words, step.output_rows);
    for (const backend::PageCopy& copy : step.copies) {
        words.insert(words.end(), {copy.from, copy.to});
    }
    for (const RowAsk& ask : step.asks) AppendAsk(words, ask);
    for (const StepData::Sequence& s : step.sequences) {
        words.insert(words.end(), {s.row_begin, s.row_count, s.position, s.adapter, s.state_from,
                                   s.state_to, size(s.state_writes), size(s.pages)});
        for (const backend::StateWrite& write : s.state_writes) {
            words.insert(words.end(), {write.row, write.slot});
        }
        Append(words, s.pages);
    }
    words[0] = size(words);
}

Status DecodeStep(std::span<const int32_t> words, StepData& step) {
    if (words.size() < kHeadWords || static_cast<size_t>(words[0]) != words.size()) {
        return BadStep("its length");
    }
    if (words[1] < 0 || words[1] > static_cast<int32_t>(StepKind::kGuessOn)) {
        return BadStep("its kind");
    }
    step.kind = static_cast<StepKind>(words[1]);
    step.number = static_cast<int64_t>(static_cast<uint32_t>(words[2])) |
                  (static_cast<int64_t>(words[3]) << 32);
    if (std::ranges::any_of(words.subspan(4, 5), [](int32_t n) { return n < 0; })) {
        return BadStep("a count");
    }
    const size_t tokens = static_cast<size_t>(words[4]);
    WordReader reader(words.subspan(kHeadWords));
    if (!reader.Take(tokens, step.tokens) || !reader.Take(tokens, step.positions) ||
        !reader.Take(static_cast<size_t>(words[6]), step.output_rows)) {
        return BadStep("the number of tokens");
    }
    step.copies.clear();
    for (int32_t i = 0; i < words[7]; ++i) {
        backend::PageCopy copy;
        if (!reader.Take(copy.from) || !reader.Take(copy.to)) return BadStep("a copy of a page");
        step.copies.push_back(copy);
    }
    step.asks.clear();
    if (words[8] != 0 && words[8] != words[6]) return BadStep("the number of asks");
    for (int32_t i = 0; i < words[8]; ++i) {
        if (!TakeAsk(reader, step.asks.emplace_back())) return BadStep("an ask");
    }
    step.sequences.clear();
    for (int32_t i = 0; i < words[5]; ++i) {
        StepData::Sequence s;
        int32_t pages = 0, writes = 0;
        if (!reader.Take(s.row_begin) || !reader.Take(s.row_count) || !reader.Take(s.position) ||
            !reader.Take(s.adapter) || s.adapter < 0 || !reader.Take(s.state_from) ||
            !reader.Take(s.state_to) || !reader.Take(writes) || writes < 0 || !reader.Take(pages) ||
            pages < 0) {
            return BadStep("a sequence");
        }
        for (int32_t write = 0; write < writes; ++write) {
            backend::StateWrite to;
            if (!reader.Take(to.row) || !reader.Take(to.slot)) return BadStep("a slot of state");
            s.state_writes.push_back(to);
        }
        if (!reader.Take(static_cast<size_t>(pages), s.pages)) return BadStep("a sequence");
        step.sequences.push_back(std::move(s));
    }
    return reader.empty() ? Status() : BadStep("what follows the last sequence");
}

StepChannel::Route StepChannel::RouteOf(int rank, int tp, int pp) {
    Route route;
    if (rank >= tp) route.from = rank - tp;
    if (rank == 0) {
        for (int peer = 1; peer < tp; ++peer) route.to.push_back(peer);
    }
    if (rank + tp < tp * pp) route.to.push_back(rank + tp);
    return route;
}

Status StepChannel::Send(const StepData& step) {
    if (world_ == nullptr) return {};
    EncodeStep(step, words_);
    std::copy_n(words_.begin(), std::min(words_.size(), kInlineWords), inline_.begin());
    const net::OpTag tag{"step_message", 0, step.number};
    if (by_stages_) return HandOn(tag);
    WEFT_TRY(world_->Broadcast(std::as_writable_bytes(std::span(inline_)), 0, tag));
    if (words_.size() <= kInlineWords) return {};
    const auto rest = std::span(words_).subspan(kInlineWords);
    return world_->Broadcast(std::as_writable_bytes(rest), 0, tag);
}

// Forwards the message in inline_ and words_.
Status StepChannel::HandOn(const net::OpTag& tag) {
    for (const int to : route_.to) {
        WEFT_TRY(world_->Send(std::as_bytes(std::span(inline_)), to, tag));
        if (words_.size() <= kInlineWords) continue;
        const auto rest = std::span(words_).subspan(kInlineWords);
        WEFT_TRY(world_->Send(std::as_bytes(rest), to, tag));
    }
    return {};
}

Status StepChannel::Bring(std::span<int32_t> words, const net::OpTag& tag) {
    const auto bytes = std::as_writable_bytes(words);
    return by_stages_ ? world_->Recv(bytes, route_.from, tag) : world_->Broadcast(bytes, 0, tag);
}

Status StepChannel::Receive(StepData& step) {
    const net::OpTag tag{"step_message", 0, step.number + 1};
    WEFT_TRY(Bring(inline_, tag));
    const size_t total = static_cast<uint32_t>(inline_[0]);
    if (total > kMostWords) return BadStep("its length");
    words_.assign(inline_.begin(),
                  inline_.begin() + static_cast<ptrdiff_t>(std::min(total, kInlineWords)));
    if (total > kInlineWords) {
        words_.resize(total);
        WEFT_TRY(Bring(std::span(words_).subspan(kInlineWords), tag));
    }
    WEFT_TRY(DecodeStep(words_, step));
    return by_stages_ ? HandOn(tag) : Status();
}

}  // namespace weft::engine
