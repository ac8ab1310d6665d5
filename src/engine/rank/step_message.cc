#include "engine/rank/step_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

namespace weft::engine {
namespace {

// Words of the head: total, kind, number (2), tokens, sequences, output rows, copies, asks, keyed
// pages, bytes of the name.
constexpr size_t kHeadWords = 11;
constexpr const char* kCounts[] = {"tokens", "sequences",   "output rows",      "page copies",
                                   "asks",   "keyed pages", "bytes of the name"};
// First word of a logits request: a number of best logits, or these; a chain follows kRequestToken.
constexpr int32_t kRequestAll = 0, kRequestToken = -1;
// Kinds of keyed pages.
constexpr int32_t kPage = 0, kState = 1, kUsedPage = 2;
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
    size_t left() const { return words_.size(); }

  private:
    std::span<const int32_t> words_;
};

void Append(std::vector<int32_t>& words, const std::vector<int32_t>& more) {
    words.insert(words.end(), more.begin(), more.end());
}

void AppendRowRequest(std::vector<int32_t>& words, const RowRequest& ask) {
    switch (ask.kind) {
        case RowRequest::Kind::kAll: words.push_back(kRequestAll); return;
        case RowRequest::Kind::kBest: words.push_back(ask.top); return;
        case RowRequest::Kind::kToken: break;
    }
    const RowChain& chain = ask.chain;
    words.insert(words.end(),
                 {kRequestToken, std::bit_cast<int32_t>(chain.temperature),
                  std::bit_cast<int32_t>(chain.top_p), std::bit_cast<int32_t>(chain.min_p),
                  static_cast<int32_t>(chain.random & 0xffffffff),
                  static_cast<int32_t>(chain.random >> 32)});
}

template <typename Value>
Error BadStep(std::string_view what, const Value& value, std::string_view expected) {
    return MakeError(ErrorCode::kCorrupt,
                     "step message from rank 0: {} is {}; expected {}. Run the same build of Weft "
                     "on all hosts",
                     what, value, expected);
}

Error EndsIn(const char* part, int32_t number) {
    return MakeError(ErrorCode::kCorrupt,
                     "step message from rank 0: it ends within {} {}; expected all words of it. "
                     "Run the same build of Weft on all hosts",
                     part, number);
}

Status TakeChain(WordReader& reader, int32_t number, RowChain& chain) {
    std::vector<int32_t> words;
    if (!reader.Take(5, words)) return EndsIn("ask", number);
    chain.temperature = std::bit_cast<float>(words[0]);
    chain.top_p = std::bit_cast<float>(words[1]);
    chain.min_p = std::bit_cast<float>(words[2]);
    chain.random = static_cast<uint32_t>(words[3]) |
                   static_cast<uint64_t>(static_cast<uint32_t>(words[4])) << 32;
    if (!(chain.temperature > 0)) {
        return BadStep("the temperature of an ask", chain.temperature, "more than 0");
    }
    if (!(chain.top_p > 0 && chain.top_p <= 1)) {
        return BadStep("top_p of an ask", chain.top_p, "more than 0 and at most 1");
    }
    if (!(chain.min_p >= 0 && chain.min_p < 1)) {
        return BadStep("min_p of an ask", chain.min_p, "0 or more and less than 1");
    }
    if (chain.random >= uint64_t{1} << 53) {
        return BadStep("the random number of an ask", chain.random, "less than 2^53");
    }
    return {};
}

Status TakeRowRequest(WordReader& reader, int32_t number, RowRequest& ask) {
    ask = {};
    int32_t top = 0;
    if (!reader.Take(top)) return EndsIn("ask", number);
    if (top == kRequestToken) {
        ask.kind = RowRequest::Kind::kToken;
        return TakeChain(reader, number, ask.chain);
    }
    if (top < 0) return BadStep("the number of best logits of an ask", top, "-1 or more");
    ask.kind = top == kRequestAll ? RowRequest::Kind::kAll : RowRequest::Kind::kBest;
    ask.top = top;
    return {};
}

Status TakeSequence(WordReader& reader, int32_t number, StepData::Sequence& s) {
    int32_t pages = 0, writes = 0;
    if (!reader.Take(s.row_begin) || !reader.Take(s.row_count) || !reader.Take(s.position) ||
        !reader.Take(s.adapter) || !reader.Take(s.state_from) || !reader.Take(s.state_to) ||
        !reader.Take(s.prompt_rows) || !reader.Take(s.second) || !reader.Take(writes) ||
        !reader.Take(pages)) {
        return EndsIn("sequence", number);
    }
    if (s.prompt_rows < 0 || s.prompt_rows > s.row_count) {
        return BadStep("the number of prompt rows of a sequence", s.prompt_rows,
                       fmt::format("0 to {}, its rows", s.row_count));
    }
    if (s.adapter < 0) return BadStep("the adapter of a sequence", s.adapter, "0 or more");
    if (writes < 0) return BadStep("the number of state writes", writes, "0 or more");
    if (pages < 0) return BadStep("the number of pages of a sequence", pages, "0 or more");
    for (int32_t write = 0; write < writes; ++write) {
        backend::StateWrite to;
        if (!reader.Take(to.row) || !reader.Take(to.slot)) return EndsIn("sequence", number);
        s.state_writes.push_back(to);
    }
    if (!reader.Take(static_cast<size_t>(pages), s.pages)) return EndsIn("sequence", number);
    return {};
}

Status TakeKeyed(WordReader& reader, int32_t number, KeyedPage& page) {
    std::vector<int32_t> words;
    int32_t kind = 0;
    if (!reader.Take(sizeof(PageKey) / sizeof(int32_t), words) || !reader.Take(page.place) ||
        !reader.Take(kind)) {
        return EndsIn("keyed page", number);
    }
    if (kind < 0 || kind > kUsedPage) {
        return BadStep("the kind of a keyed page", kind, fmt::format("0 to {}", kUsedPage));
    }
    std::memcpy(page.key.data(), words.data(), page.key.size());
    page.is_state = kind == kState;
    page.is_used = kind == kUsedPage;
    return {};
}

Status TakeName(WordReader& reader, int32_t bytes, std::string& name) {
    std::vector<int32_t> words;
    const auto size = static_cast<size_t>(bytes);
    if (!reader.Take((size + sizeof(int32_t) - 1) / sizeof(int32_t), words)) {
        return BadStep("its number of bytes of the name", bytes,
                       fmt::format("at most {} words of them", reader.left()));
    }
    name.assign(reinterpret_cast<const char*>(words.data()), size);
    const auto rest = std::as_bytes(std::span(words)).subspan(size);
    const auto is_zero = [](std::byte one) { return one == std::byte{}; };
    if (std::ranges::all_of(rest, is_zero)) return {};
    return BadStep("the rest of the name's last word", "not 0", "0");
}

void AppendName(std::vector<int32_t>& words, const std::string& name) {
    const size_t begin = words.size();
    words.resize(begin + (name.size() + sizeof(int32_t) - 1) / sizeof(int32_t));
    std::memcpy(words.data() + begin, name.data(), name.size());
}

void AppendKeyed(std::vector<int32_t>& words, const KeyedPage& page) {
    std::array<int32_t, sizeof(PageKey) / sizeof(int32_t)> key{};
    std::memcpy(key.data(), page.key.data(), page.key.size());
    words.insert(words.end(), key.begin(), key.end());
    words.insert(words.end(), {page.place, page.is_state  ? kState
                                           : page.is_used ? kUsedPage
                                                          : kPage});
}

}  // namespace

backend::Step StepData::View(std::vector<backend::StepSequence>& views) const {
    views.clear();
    for (const Sequence& s : sequences) {
        views.push_back({s.row_begin, s.row_count, s.position, s.pages, s.adapter, s.state_from,
                         s.state_to, s.state_writes, s.prompt_rows, s.second});
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
    keyed.clear();
    name.clear();
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
    words.insert(words.end(), {0, static_cast<int32_t>(step.kind),
                               static_cast<int32_t>(step.number & 0xffffffff),
                               static_cast<int32_t>(step.number >> 32), size(step.tokens),
                               size(step.sequences), size(step.output_rows), size(step.copies),
                               size(step.asks), size(step.keyed), size(step.name)});
    Append(words, step.tokens);
    Append(words, step.positions);
    Append(words, step.output_rows);
    for (const backend::PageCopy& copy : step.copies) {
        words.insert(words.end(), {copy.from, copy.to});
    }
    for (const RowRequest& ask : step.asks) AppendRowRequest(words, ask);
    for (const StepData::Sequence& s : step.sequences) {
        words.insert(words.end(),
                     {s.row_begin, s.row_count, s.position, s.adapter, s.state_from, s.state_to,
                      s.prompt_rows, s.second, size(s.state_writes), size(s.pages)});
        for (const backend::StateWrite& write : s.state_writes) {
            words.insert(words.end(), {write.row, write.slot});
        }
        Append(words, s.pages);
    }
    for (const KeyedPage& page : step.keyed) AppendKeyed(words, page);
    AppendName(words, step.name);
    words[0] = size(words);
}

Status DecodeStep(std::span<const int32_t> words, StepData& step) {
    if (words.size() < kHeadWords || static_cast<size_t>(words[0]) != words.size()) {
        return BadStep("its number of words", words.empty() ? 0 : words[0],
                       fmt::format("{}, as received, and at least {}", words.size(), kHeadWords));
    }
    constexpr auto kLast = static_cast<int32_t>(StepKind::kLoadSlot);
    if (words[1] < 0 || words[1] > kLast) {
        return BadStep("its kind", words[1], fmt::format("0 to {}", kLast));
    }
    step.kind = static_cast<StepKind>(words[1]);
    step.number = static_cast<int64_t>(static_cast<uint32_t>(words[2])) |
                  (static_cast<int64_t>(words[3]) << 32);
    const auto counts = words.subspan(4, std::size(kCounts));
    for (size_t i = 0; i < counts.size(); ++i) {
        if (counts[i] >= 0) continue;
        return BadStep(fmt::format("its number of {}", kCounts[i]), counts[i], "0 or more");
    }
    const int32_t tokens = counts[0], sequences = counts[1], output_rows = counts[2],
                  copies = counts[3], asks = counts[4], keyed = counts[5];
    const auto rows = static_cast<size_t>(tokens);
    WordReader reader(words.subspan(kHeadWords));
    if (!reader.Take(rows, step.tokens) || !reader.Take(rows, step.positions) ||
        !reader.Take(static_cast<size_t>(output_rows), step.output_rows)) {
        return BadStep("its number of tokens and output rows",
                       fmt::format("{} and {}", tokens, output_rows),
                       fmt::format("at most {} words of them", words.size() - kHeadWords));
    }
    step.copies.clear();
    for (int32_t i = 0; i < copies; ++i) {
        backend::PageCopy copy;
        if (!reader.Take(copy.from) || !reader.Take(copy.to)) return EndsIn("page copy", i);
        step.copies.push_back(copy);
    }
    step.asks.clear();
    if (asks != 0 && asks != output_rows) {
        return BadStep("its number of asks", asks, fmt::format("0 or {}", output_rows));
    }
    for (int32_t i = 0; i < asks; ++i)
        WEFT_TRY(TakeRowRequest(reader, i, step.asks.emplace_back()));
    step.sequences.clear();
    for (int32_t i = 0; i < sequences; ++i) {
        WEFT_TRY(TakeSequence(reader, i, step.sequences.emplace_back()));
    }
    step.keyed.clear();
    for (int32_t i = 0; i < keyed; ++i) WEFT_TRY(TakeKeyed(reader, i, step.keyed.emplace_back()));
    WEFT_TRY(TakeName(reader, counts[6], step.name));
    if (reader.left() == 0) return {};
    return BadStep("the number of words after its name", reader.left(), "0");
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
    if (total > kMostWords) {
        return BadStep("its number of words", total, fmt::format("at most {}", kMostWords));
    }
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
