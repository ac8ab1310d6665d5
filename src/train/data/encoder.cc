#include "train/data/encoder.h"

#include <algorithm>
#include <utility>

namespace weft::train {
namespace {

using chat::OrderedJson;
using chat::Text;

// How many tokens two lists begin with in common.
size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
    return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

// Where the answer to `asking` begins in `whole`; at least at `least`. The template may ask with
// more than it writes later (an opened <think>), and an answer may begin like that by chance.
size_t AnswerBegin(const Text& whole, const Text& asking, size_t least) {
    const std::string_view a = whole.view(), b = asking.view();
    auto at = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
    if (at == b.size()) return at;
    for (const TextRange& range : whole.given()) {
        if (range.begin >= least && range.begin < at && at <= range.end) at = range.begin;
    }
    return at;
}

std::string Section(std::string_view name, std::string_view text, std::string_view end) {
    if (text.empty()) return "";
    return fmt::format("{}{}{}", name, text, end);
}

}  // namespace

std::string PromptText(const QuestionRecord& record, int prompt_type) {
    const std::string_view question = record.question, context = record.context;
    switch (prompt_type) {
        case 0: return fmt::format("Question: {}\nAnswer:", question);
        case 1:
            return fmt::format("{}Question: {}\nAnswer:", Section("Context: ", context, "\n\n"),
                               question);
        case 2:
            return fmt::format("Question: {}\n{}Answer:", question,
                               Section("Context: ", context, "\n"));
        case 3: return fmt::format("{}{}\n", Section("", context, "\n\n"), question);
        case 4:
            return fmt::format("{}{}### Question\n{}\n\n### Answer\n",
                               context.empty() ? "Answer the question.\n\n"
                                               : "Answer the question from the context.\n\n",
                               Section("### Context\n", context, "\n\n"), question);
        default: return fmt::format("{}{}", Section("", context, "\n\n"), question);
    }
}

Result<Encoder> Encoder::Make(const tokenizer::Tokenizer& tokenizer, const chat::Chat* chat,
                              int prompt_type, int64_t rows) {
    if (prompt_type < 0 || prompt_type >= kPromptTypes) {
        return MakeError(ErrorCode::kUsage, "prompt type {}; expected 0 to {}", prompt_type,
                         kPromptTypes - 1);
    }
    const int64_t count = rows > 0 ? rows : tokenizer.vocab_size();
    return Encoder(&tokenizer, chat, prompt_type, static_cast<int32_t>(count));
}

Encoder Encoder::OfIds(int64_t rows) {
    return Encoder(nullptr, nullptr, 0, static_cast<int32_t>(rows));
}

Result<Sample> Encoder::Encode(const Record& record) const {
    if (tokenizer_ == nullptr && !std::holds_alternative<TokensRecord>(record)) {
        return MakeError(ErrorCode::kUnsupported,
                         "the record is text, but the model has no tokenizer. Put the "
                         "tokenizer.json that belongs to it into the model's folder, or give "
                         "token ids: {{\"input_ids\": [...]}}");
    }
    WEFT_ASSIGN(Sample sample, std::visit([&](const auto& each) { return Of(each); }, record));
    WEFT_TRY(CheckIds(sample));
    if (sample.tokens.size() < 2) {
        return MakeError(ErrorCode::kCorrupt, "{} tokens; a sample has two at least",
                         sample.tokens.size());
    }
    return sample;
}

std::vector<int32_t> Encoder::Plain(std::string_view text) const {
    return tokenizer_->Encode(text, {.add_special = false, .parse_special = false});
}

Result<Sample> Encoder::Pair(std::string prompt, const std::string& completion) const {
    const std::vector<int32_t> head = Plain(prompt);
    prompt += completion;
    Sample sample;
    const tokenizer::TokenizerData& data = tokenizer_->data();
    if (!data.prefix.empty()) {
        sample.tokens = data.prefix;
    } else if (data.add_bos && data.bos >= 0) {
        sample.tokens.push_back(data.bos);
    }
    const std::vector<int32_t> ids = Plain(prompt);
    sample.loss.assign(sample.tokens.size() + CommonPrefix(ids, head), 0);
    sample.tokens.insert(sample.tokens.end(), ids.begin(), ids.end());
    if (data.eos >= 0) sample.tokens.push_back(data.eos);
    sample.loss.resize(sample.tokens.size(), 1);
    return sample;
}

Status Encoder::CheckIds(const Sample& sample) const {
    for (const int32_t id : sample.tokens) {
        if (id >= 0 && id < rows_) continue;
        return MakeError(ErrorCode::kCorrupt, "token {}; the model's embedding has rows 0 to {}",
                         id, rows_ - 1);
    }
    return {};
}

Result<Sample> Encoder::Of(const TokensRecord& record) const {
    Sample sample{record.tokens, record.loss};
    sample.loss.resize(sample.tokens.size(), 1);
    return sample;
}

Result<Sample> Encoder::Of(const PairRecord& record) const {
    return Pair(record.prompt, record.completion);
}

Result<Sample> Encoder::Of(const TextRecord& record) const {
    return Pair("", record.text);
}

Result<Sample> Encoder::Of(const QuestionRecord& record) const {
    if (prompt_type_ != 5) {
        const bool own_line = prompt_type_ >= 3;
        return Pair(PromptText(record, prompt_type_), (own_line ? "" : " ") + record.answer);
    }
    ChatRecord chat;
    chat.messages = OrderedJson::array();
    chat.messages.push_back({{"role", "user"}, {"content", PromptText(record, 5)}});
    chat.messages.push_back({{"role", "assistant"}, {"content", record.answer}});
    return Of(chat);
}

Result<Text> Encoder::Render(std::span<const OrderedJson> messages, const ChatRecord& record,
                             bool asks) const {
    chat::ChatInput input;
    for (const OrderedJson& message : messages) input.messages.push_back(message);
    input.tools = record.tools;
    input.add_generation_prompt = asks;
    input.now_s = 1;  // the same text on every day
    return chat_->Render(input);
}

Result<Sample> Encoder::Of(const ChatRecord& record) const {
    if (chat_ == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "a conversation, but the model has no chat template");
    }
    const size_t count = record.messages.size();
    if (count > kMostMessages) {
        return MakeError(ErrorCode::kUnsupported, "{} messages; at most {} are read", count,
                         kMostMessages);
    }
    const auto& list = record.messages.get_ref<const OrderedJson::array_t&>();
    WEFT_ASSIGN(const Text whole, Render(list, record, false));
    Sample sample;
    sample.tokens = chat_->Encode(whole);
    sample.loss.assign(sample.tokens.size(), 0);
    for (size_t turn = 0; turn < count; ++turn) {
        const auto role = list[turn].find("role");
        if (role != list[turn].end() && *role == "assistant" && turn > 0) {
            WEFT_TRY(MarkTurn(record, turn, whole, sample));
        }
    }
    return sample;
}

Status Encoder::MarkTurn(const ChatRecord& record, size_t turn, const Text& whole,
                         Sample& sample) const {
    const std::span<const OrderedJson> list =
        record.messages.get_ref<const OrderedJson::array_t&>();
    WEFT_ASSIGN(const Text before, Render(list.first(turn), record, false));
    WEFT_ASSIGN(const Text asking, Render(list.first(turn), record, true));
    const size_t begin = AnswerBegin(whole, asking, before.size());
    if (begin < before.size() && begin < asking.size()) {
        return MakeError(ErrorCode::kUnsupported,
                         "message {}: the chat template writes what comes before it otherwise "
                         "when more follows, so its turn can't be told",
                         turn + 1);
    }
    const auto tokens_to = [&](size_t end) {
        return CommonPrefix(sample.tokens, chat_->Encode(whole.Cut(0, end)));
    };
    const size_t first = tokens_to(begin);
    // What the turn reaches to at most; not known where the template ends a text otherwise than it
    // goes on.
    size_t bound = whole.size();
    bool known = turn + 1 == list.size();
    if (!known) {
        WEFT_ASSIGN(const Text through, Render(list.first(turn + 1), record, false));
        known = whole.view().starts_with(through.view());
        if (known) bound = through.size();
    }
    // It ends with the first end token behind its last words.
    size_t words = begin;
    for (const TextRange& range : whole.given()) {
        if (known && range.begin >= begin && range.begin < bound)
            words = std::min(range.end, bound);
    }
    const size_t last = tokens_to(bound);
    size_t end = std::max(first, tokens_to(words));
    while (end < last && !tokenizer_->IsEog(sample.tokens[end])) ++end;
    if (end < last) {
        ++end;
    } else if (!known || first == last) {
        return MakeError(ErrorCode::kUnsupported, "message {}: {}", turn + 1,
                         known ? "the chat template writes nothing for it"
                               : "no token of the vocabulary ends its turn");
    }
    std::fill(sample.loss.begin() + static_cast<ptrdiff_t>(first),
              sample.loss.begin() + static_cast<ptrdiff_t>(end), uint8_t{1});
    return {};
}

}  // namespace weft::train
