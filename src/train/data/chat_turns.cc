#include "train/data/chat_turns.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "chat/tool_words.h"

namespace weft::train {
namespace {

using chat::ChatInput;
using chat::OrderedJson;
using chat::Text;

// Length of the common prefix.
size_t SharedTokens(std::span<const int32_t> a, std::span<const int32_t> b) {
    return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Start of the answer to `asking` in `whole`, at least `least`. The generation prompt may have more
// than the template writes later (an opened <think>), and an answer may begin with that text by
// chance.
size_t AnswerBegin(const Text& whole, const Text& asking, size_t least) {
    const std::string_view a = whole.view(), b = asking.view();
    auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    if (at == b.size()) return at;
    for (const TextRange& range : whole.given()) {
        if (range.begin >= least && range.begin < at && at <= range.end) at = range.begin;
    }
    return at;
}

// Replaces each number by one digit: templates may number the turns.
std::string WithoutNumbers(std::string_view text) {
    std::string squeezed;
    bool digits = false;
    for (const char c : text) {
        const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
        if (!digit) squeezed += c;
        if (digit && !digits) squeezed += '0';
        digits = digit;
    }
    return squeezed;
}

bool HasDigit(std::string_view text) {
    return std::ranges::any_of(text, [](unsigned char c) { return std::isdigit(c) != 0; });
}

std::string RoleOf(const OrderedJson& message) {
    return chat::TextMember(message, "role");
}

bool IsLearned(const OrderedJson& message) {
    const auto weight = message.find(chat::kLossMember);
    const bool left_out = weight != message.end() && *weight == 0;
    return RoleOf(message) == "assistant" && !left_out;
}

// Whether a conversation, as the record has it, ends in a call.
bool EndsInCall(const ChatInput& input) {
    if (input.messages.empty()) return false;
    const OrderedJson& last = input.messages.back();
    return chat::HasCalls(last) || last.contains("function_call");
}

OrderedJson ResultOf(const OrderedJson& message) {
    OrderedJson result{{"role", "tool"}, {"content", "weft probe result"}};
    if (!chat::HasCalls(message)) return result;
    const OrderedJson& call = message["tool_calls"].front();
    if (call.contains("id")) result["tool_call_id"] = call["id"];
    return result;
}

bool IsBlankText(std::string_view text) {
    return text.find_first_not_of(" \t\r\n") == text.npos;
}

// Looks for control tokens in the parts that the template copied from the record. (It may write
// some of a message's control tokens itself, such as <think>.)
void LookInto(const Text& text, const ControlTokens* control) {
    if (control == nullptr) return;
    for (const TextRange& range : text.given()) {
        control->Look(text.view().substr(range.begin, range.end - range.begin));
    }
}

// The end of the text of message `at`.
std::optional<size_t> WordsEnd(const Text& text, size_t at) {
    const auto& given = text.given();
    const auto last =
        std::ranges::find(given.rbegin(), given.rend(),
                          chat::kMessageWords + static_cast<uint32_t>(at), &TextRange::source);
    return last == given.rend() ? std::nullopt : std::optional<size_t>(last->end);
}

}  // namespace

// One rendered conversation whose turns are marked in order.
class TurnMarker {
  public:
    TurnMarker(const ChatTurns& turns, ChatInput input, Text whole)
        : turns_(turns), input_(std::move(input)), whole_(std::move(whole)) {
        tokens_ = turns.chat_->Encode(whole_, &marks_);
        loss_.assign(tokens_.size(), 0);
        words_.resize(list().size());
        for (size_t i = 0; i < whole_.given().size(); ++i) {
            const uint32_t source = whole_.given()[i].source;
            if (source < chat::kMessageWords) continue;
            Words& words = words_[source - chat::kMessageWords];
            if (!words.shown) words.first = i;
            words.last = i;
            words.shown = true;
        }
    }

    Result<Sample> MarkAll() {
        for (size_t turn = 0; turn < list().size(); ++turn) {
            if (IsLearned(list()[turn])) WEFT_TRY(Mark(turn));
        }
        Sample sample{std::move(tokens_), std::move(loss_)};
        sample.empty_answers = empty_answers_;
        return sample;
    }

    // Start of the turn according to the template's generation prompt.
    Result<size_t> AskedBegin(size_t turn) {
        WEFT_TRY(CountAsked(turn));
        WEFT_ASSIGN(const Text before, RenderFirst(turn, false));
        WEFT_ASSIGN(const Text asking, RenderFirst(turn, true));
        const size_t begin = AnswerBegin(whole_, asking, before.size());
        if (begin < before.size() && begin < asking.size()) return UnknownBegin(turn);
        header_begin_ = before.size();
        asked_exactly_ = whole_.view().starts_with(asking.view());
        if (asked_exactly_ || !words_[turn].shown) return begin;
        // If a template leaves the last message open, its generation prompt lacks what closes that
        // message.
        if (!asking.view().starts_with(before.view())) return begin;
        const std::string_view prompt = asking.view().substr(before.size());
        const size_t own = WordsBegin(turn), gap = GapBegin(turn);
        const bool written =
            !prompt.empty() && gap <= own && whole_.view().substr(gap, own - gap).ends_with(prompt);
        if (!written) return begin;
        header_begin_ = own - prompt.size();
        asked_exactly_ = true;
        return own;
    }
    // Start of the answer's header, from the last AskedBegin.
    size_t header_begin() const { return header_begin_; }
    const Text& whole() const { return whole_; }
    // Start of the turn's text; the end of the rendered text if the turn shows none.
    size_t WordsBegin(size_t turn) const {
        const Words& words = words_[turn];
        return words.shown ? whole_.given()[words.first].begin : whole_.size();
    }

  private:
    // A message's first and last range in whole_.given().
    struct Words {
        size_t first = 0, last = 0;
        bool shown = false;
    };

    const OrderedJson::array_t& list() const {
        return input_.messages.get_ref<const OrderedJson::array_t&>();
    }

    static Error UnknownBegin(size_t turn) {
        return MakeError(ErrorCode::kUnsupported,
                         "message {}: the chat template writes the messages before it differently "
                         "when more messages follow, so it is unknown where its turn begins",
                         turn + 1);
    }

    Status CountAsked(size_t turn) {
        if (++asked_ <= kMostRenderings) return {};
        return MakeError(ErrorCode::kUnsupported,
                         "message {}: the chat template writes a different text before each turn; "
                         "at most {} such turns are read. Split the conversation",
                         turn + 1, kMostRenderings);
    }

    Result<Text> RenderFirst(size_t count, bool asks) const {
        ChatInput input;
        for (size_t i = 0; i < count; ++i) input.messages.push_back(list()[i]);
        input.tools = input_.tools;
        input.extra = input_.extra;
        input.results_in_turn = input_.results_in_turn;
        input.now_s = input_.now_s;
        input.add_generation_prompt = asks;
        return turns_.chat_->Render(input);
    }

    Status Mark(size_t turn) {
        if (turn == 0 && !words_[turn].shown) return {};  // an empty answer without a question
        if (!chat::HasCalls(list()[turn]) && IsBlankText(WordsOf(turn))) ++empty_answers_;
        WEFT_ASSIGN(const size_t begin, Begin(turn));
        const Words& own = words_[turn];
        if (!own.shown) {
            WEFT_ASSIGN(const size_t end, EndOfUnshown(turn, begin));
            Learn(begin, end);
            return {};
        }
        if (begin < GapBegin(turn)) return UnknownBegin(turn);
        // A template may write another message inside of the turn: a call's result before the text.
        for (Words run = RunFrom(own.first, own.last);; run = NextRun(run, own.last)) {
            const bool final = run.last == own.last;
            const size_t from = run.first == own.first ? begin : whole_.given()[run.first].begin;
            WEFT_ASSIGN(const std::optional<size_t> end, EndOfRun(turn, from, run, final));
            if (end) Learn(from, *end);
            if (final) return {};
        }
    }

    void Learn(size_t begin, size_t end_token) {
        std::fill(loss_.begin() + static_cast<ptrdiff_t>(TokensTo(begin)),
                  loss_.begin() + static_cast<ptrdiff_t>(end_token), uint8_t{1});
    }

    // The adjacent ranges from `first` that have its source, up to `most`.
    Words RunFrom(size_t first, size_t most) const {
        const auto& ranges = whole_.given();
        size_t last = first;
        while (last < most && ranges[last + 1].source == ranges[first].source) ++last;
        return {first, last, true};
    }
    // The next run of the same source. Precondition: there is one, up to `most`.
    Words NextRun(const Words& run, size_t most) const {
        size_t first = run.last + 1;
        while (whole_.given()[first].source != whole_.given()[run.first].source) ++first;
        return RunFrom(first, most);
    }
    size_t NextBegin(size_t range) const {
        const auto& ranges = whole_.given();
        return range + 1 == ranges.size() ? whole_.size() : ranges[range + 1].begin;
    }

    // The text of a turn, from its first byte to its last.
    std::string_view WordsOf(size_t turn) const {
        const Words& words = words_[turn];
        if (!words.shown) return "";
        const size_t begin = whole_.given()[words.first].begin;
        return whole_.view().substr(begin, whole_.given()[words.last].end - begin);
    }

    // End of the text before the turn's own.
    size_t GapBegin(size_t turn) const {
        const size_t first = words_[turn].first;
        return first == 0 ? 0 : whole_.given()[first - 1].end;
    }

    Result<size_t> Begin(size_t turn) {
        const std::string before = turn == 0 ? "" : RoleOf(list()[turn - 1]);
        if (!words_[turn].shown) {
            const auto begin = AskedBegin(turn);
            return begin.ok() && before == "assistant" && !asked_exactly_ ? UnknownBegin(turn)
                                                                          : begin;
        }
        const size_t own = WordsBegin(turn), gap = GapBegin(turn);
        const std::string key =
            before + '\n' + WithoutNumbers(whole_.view().substr(gap, own - gap));
        if (const auto known = leads_.find(key); known != leads_.end()) return own - known->second;
        auto begin = turn == 0 ? Result<size_t>(UnknownBegin(turn)) : AskedBegin(turn);
        if (!begin.ok()) {
            const auto by_header = BeginByHeader(gap, own);
            if (!by_header) return begin.error();
            begin = *by_header;
        } else if (before == "assistant" && !asked_exactly_) {
            // The end of the previous turn and the header do not belong to the answer.
            begin = BeginByHeader(gap, own).value_or(own);
        }
        if (*begin >= gap && *begin <= own &&
            !HasDigit(whole_.view().substr(*begin, own - *begin))) {
            leads_[key] = own - *begin;
        }
        return begin;
    }

    // Start of an answer's text, from the header that the template writes before answers.
    std::optional<size_t> BeginByHeader(size_t gap, size_t own) const {
        if (!turns_.header_) return {};
        const std::string_view written = whole_.view().substr(gap, own - gap);
        if (written.ends_with(*turns_.header_ + *turns_.lead_)) return own - turns_.lead_->size();
        if (turns_.header_->empty()) return own;
        const size_t at = written.rfind(*turns_.header_);
        if (at == written.npos) return {};
        return gap + at + turns_.header_->size();
    }

    // The position after the first end token of the bytes [begin, end).
    std::optional<size_t> EndTokenIn(size_t begin, size_t end) const {
        const size_t last = TokensTo(end);
        for (size_t at = TokensTo(begin); at < last; ++at) {
            if (turns_.tokenizer_->EndsMessage(tokens_[at])) return at + 1;
        }
        return {};
    }

    // The position after the end token of a run of the turn's ranges. A template may repeat a part
    // of a call (its name, its id) in the header of the result, so the end token follows the last
    // range behind which there is one before the next range. A run that is not the final one and
    // has no end token is such a header: nullopt. If the template writes no end token for the turn,
    // the position is the end of the text written for it.
    Result<std::optional<size_t>> EndOfRun(size_t turn, size_t from, const Words& run, bool final) {
        const auto& ranges = whole_.given();
        for (size_t at = run.last + 1; at-- > run.first;) {
            const size_t words = std::max(from, ranges[at].end);
            const auto token = EndTokenIn(words, NextBegin(at));
            if (!final || at < run.last) {
                if (token) return token;
                continue;
            }
            WEFT_ASSIGN(const Ending ending, EndingOf(turn, words, at, token.has_value()));
            if (ending == Ending::kToken) return token;
            if (ending == Ending::kText) break;
        }
        if (!final) return std::optional<size_t>();
        const size_t words = std::max(from, ranges[run.last].end);
        WEFT_ASSIGN(const auto written, WrittenTo(turn, words, NextBegin(run.last)));
        WEFT_ASSIGN(const size_t end, EndOfText(turn, from, written));
        return std::optional(end);
    }

    Result<size_t> EndOfUnshown(size_t turn, size_t begin) {
        std::optional<size_t> written = whole_.size();
        if (turn + 1 < list().size()) {
            WEFT_ASSIGN(written, RenderedEnd(turn));
        }
        const auto token = EndTokenIn(begin, written.value_or(whole_.size()));
        return token ? Result<size_t>(*token) : EndOfText(turn, begin, written);
    }

    // The end of a turn without an end token. written: from WrittenTo.
    Result<size_t> EndOfText(size_t turn, size_t from, std::optional<size_t> written) {
        if (written && TokensTo(from) < TokensTo(*written)) {
            turns_.notes_->no_end = true;
            return TokensTo(*written);
        }
        return MakeError(ErrorCode::kUnsupported, "message {}: {}", turn + 1,
                         written ? "the chat template writes nothing for it"
                                 : "no token of the vocabulary ends its turn");
    }

    // How the turn ends, given its last range `at`, which ends at `words`: with the end token that
    // follows (token: an end token exists); with text, before a token of the next message's header;
    // or before the range, which belongs to that header.
    enum class Ending { kToken, kText, kBefore };
    Result<Ending> EndingOf(size_t turn, size_t words, size_t at, bool token) {
        const size_t next = NextBegin(at);
        WEFT_ASSIGN(const std::optional<size_t> written, WrittenTo(turn, words, next));
        // If rendering does not decide, a next message that shows nothing may have repeated the
        // range.
        if (!written) return token && words_[turn + 1].shown ? Ending::kToken : Ending::kBefore;
        if (*written < words) return Ending::kBefore;
        if (!token) return Ending::kText;
        if (EndTokenIn(words, std::min(*written, next))) return Ending::kToken;
        // A template may close a turn only if another message follows.
        if (at + 1 == whole_.given().size()) return Ending::kText;
        size_t end = TokensTo(*written);
        const size_t last = TokensTo(next);
        while (end < last && IsBlankText(turns_.tokenizer_->Piece(tokens_[end]))) ++end;
        const bool ends = end < last && turns_.tokenizer_->EndsMessage(tokens_[end]);
        return ends ? Ending::kToken : Ending::kText;
    }

    // End of the text that the template writes for the messages up to the turn (0: it is before
    // `words`); nullopt if it ends a text differently from how it continues. Remembers the result
    // by the text between `words` and `gap_end`, without numbers, as the bytes of that text's part
    // that has no numbers.
    Result<std::optional<size_t>> WrittenTo(size_t turn, size_t words, size_t gap_end) {
        if (turn + 1 == list().size()) return std::optional(whole_.size());
        const std::string_view gap = whole_.view().substr(words, gap_end - words);
        const std::string key = RoleOf(list()[turn + 1]) + '\n' + WithoutNumbers(gap);
        if (const auto known = ends_.find(key); known != ends_.end()) {
            const std::optional<Part>& part = known->second;
            if (!part) return std::optional<size_t>();
            if (part->before) return std::optional<size_t>(0);
            return std::optional(part->first ? words + part->bytes : gap_end - part->bytes);
        }
        WEFT_ASSIGN(const std::optional<size_t> end, RenderedEnd(turn));
        if (!end) {
            ends_[key] = std::nullopt;
        } else if (*end < words) {
            ends_[key] = Part{.before = true};
        } else if (*end <= gap_end) {
            const size_t before = *end - words;
            if (!HasDigit(gap.substr(before))) {
                ends_[key] = Part{.bytes = gap_end - *end};
            } else if (!HasDigit(gap.substr(0, before))) {
                ends_[key] = Part{.first = true, .bytes = before};
            }
        }
        return end;
    }

    Result<std::optional<size_t>> RenderedEnd(size_t turn) {
        WEFT_TRY(CountAsked(turn));
        const auto through = RenderFirst(turn + 1, false);
        const bool goes_on = through.ok() && whole_.view().starts_with(through->view());
        return goes_on ? std::optional(through->size()) : std::nullopt;
    }

    // Length of the common prefix, in tokens, of the text up to `end` and the whole text.
    size_t TokensTo(size_t end) const {
        const auto after = std::ranges::upper_bound(marks_, end, {}, &tokenizer::SpecialMark::byte);
        const tokenizer::SpecialMark& mark = *(after - 1);  // the first one is at 0
        const Text part = whole_.Cut(mark.byte, end);
        const std::vector<int32_t> ids = turns_.tokenizer_->Encode(
            part.view(), {.add_special = false, .parse_special = true, .plain = part.given()});
        return mark.token + SharedTokens(std::span(tokens_).subspan(mark.token), ids);
    }

    const ChatTurns& turns_;
    const ChatInput input_;
    const Text whole_;
    std::vector<int32_t> tokens_;
    std::vector<uint8_t> loss_;
    std::vector<tokenizer::SpecialMark> marks_;
    std::vector<Words> words_;
    // The first or the last part of a text; before: the turn ends before the text.
    struct Part {
        bool first = false, before = false;
        size_t bytes = 0;
    };
    // By the text between two turns: bytes from the start of the later turn to its text, and the
    // part before or behind the end of the earlier turn.
    std::map<std::string, size_t> leads_;
    std::map<std::string, std::optional<Part>> ends_;
    size_t asked_ = 0, header_begin_ = 0, empty_answers_ = 0;
    // Result of the last AskedBegin: the text continues exactly as the template's prompt.
    bool asked_exactly_ = false;
};

ChatTurns::ChatTurns(const chat::Chat& chat, const tokenizer::Tokenizer& tokenizer)
    : chat_(&chat), tokenizer_(&tokenizer), forms_(chat::FindForms(chat)) {
    FindHeader();
    FindClosing();
}

void ChatTurns::FindHeader() {
    ChatInput input = chat::OneQuestion("", "weft probe question");
    input.messages.push_back({{"role", "assistant"}, {"content", "weft probe answer"}});
    input.messages.push_back({{"role", "user"}, {"content", "weft probe question"}});
    input.add_generation_prompt = false;
    input.now_s = 1;
    if (!Prepare(input).ok()) return;
    auto whole = chat_->Render(input);
    if (!whole.ok()) return;
    TurnMarker marker(*this, std::move(input), std::move(*whole));
    const auto begin = marker.AskedBegin(1);
    const size_t own = marker.WordsBegin(1);
    if (!begin.ok() || *begin < marker.header_begin() || *begin > own) return;
    const std::string_view text = marker.whole().view();
    header_ = text.substr(marker.header_begin(), *begin - marker.header_begin());
    lead_ = text.substr(*begin, own - *begin);
}

void ChatTurns::FindClosing() {
    ChatInput input = chat::OneQuestion("", "weft probe question");
    input.messages.push_back({{"role", "assistant"}, {"content", "weft probe answer"}});
    input.add_generation_prompt = false;
    input.now_s = 1;
    ChatInput longer = input;
    longer.messages.push_back({{"role", "user"}, {"content", "weft probe question"}});
    if (!Prepare(input).ok()) return;
    const auto open = chat_->Render(input);
    if (open.ok() && EndsOpen(input, *open)) closing_ = ClosingIn(std::move(longer), *open);
}

// The text that `longer`, `open` plus one message, writes after `open` to close its last answer.
std::string ChatTurns::ClosingIn(ChatInput longer, const Text& open) const {
    if (!Prepare(longer).ok()) return "";
    const auto closed = chat_->Render(longer);
    if (!closed.ok() || !closed->view().starts_with(open.view())) return "";
    const auto next = std::ranges::find_if(
        closed->given(), [&](const TextRange& range) { return range.begin >= open.size(); });
    if (next == closed->given().end()) return "";
    const std::string_view gap = closed->view().substr(open.size(), next->begin - open.size());
    const auto ids = tokenizer_->Encode(gap, {.add_special = false, .parse_special = true});
    const auto end =
        std::ranges::find_if(ids, [&](int32_t id) { return tokenizer_->EndsMessage(id); });
    if (end == ids.end()) return "";
    const std::string_view piece = tokenizer_->Piece(*end);
    const size_t at = gap.find(piece);
    if (at == gap.npos || !IsBlankText(gap.substr(0, at))) return "";
    return std::string(gap.substr(0, at + piece.size()));
}

// Whether the last message is a learned answer without an end-of-generation token after its text.
bool ChatTurns::EndsOpen(const ChatInput& input, const Text& text) const {
    if (input.messages.empty() || !IsLearned(input.messages.back())) return false;
    const auto words = WordsEnd(text, input.messages.size() - 1);
    if (!words) return false;
    const auto ids = tokenizer_->Encode(text.view().substr(*words),
                                        {.add_special = false, .parse_special = true});
    return std::ranges::none_of(ids, [&](int32_t id) { return tokenizer_->EndsMessage(id); });
}

Status ChatTurns::Prepare(ChatInput& input) const {
    const auto fault = chat::PrepareConversation(forms_, input);
    if (!fault) return {};
    return MakeError(ErrorCode::kCorrupt, "message {}: {}", fault->at + 1, fault->message);
}

Result<Text> ChatTurns::Render(ChatInput input) const {
    WEFT_TRY(Prepare(input));
    return chat_->Render(input);
}

Result<std::vector<int32_t>> ChatTurns::EncodePrompt(ChatInput input,
                                                     const ControlTokens* control) const {
    input.add_generation_prompt = true;
    WEFT_TRY(Prepare(input));
    WEFT_ASSIGN(const Text whole, chat_->Render(input));
    LookInto(whole, control);
    return chat_->Encode(whole);
}

Result<Sample> ChatTurns::Encode(ChatInput input, const ControlTokens* control) const {
    // A call may end differently from an answer: GLM's ends with the header of its result.
    std::optional<ChatInput> with_result;
    if (!closing_.empty() && EndsInCall(input)) {
        with_result = input;
        with_result->messages.push_back(ResultOf(input.messages.back()));
    }
    WEFT_TRY(Prepare(input));
    WEFT_ASSIGN(Text whole, chat_->Render(input));
    LookInto(whole, control);
    if (!closing_.empty() && EndsOpen(input, whole)) {
        whole.Append(with_result ? ClosingIn(std::move(*with_result), whole) : closing_, 0);
    }
    return TurnMarker(*this, std::move(input), std::move(whole)).MarkAll();
}

std::string ChatTurns::TakeNote() const {
    if (!notes_->no_end || notes_->warned_no_end.exchange(true)) return "";
    const int32_t eos = tokenizer_->data().eos;
    return fmt::format(
        "the chat template writes no end token after an answer{}, so the model will not learn to "
        "stop. Give the model a template that closes each answer, or render the records with an "
        "end token into 'prompt' and 'completion'",
        eos >= 0 ? fmt::format(" (such as {})", tokenizer_->Piece(eos)) : "");
}

}  // namespace weft::train
