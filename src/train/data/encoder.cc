#include "train/data/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "train/data/loss_marks.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

size_t CommonPrefix(std::span<const int32_t> a, std::span<const int32_t> b) {
    return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

std::string Section(std::string_view name, std::string_view text, std::string_view end) {
    if (text.empty()) return "";
    return fmt::format("{}{}{}", name, text, end);
}

// https://github.com/tatsu-lab/stanford_alpaca, up to the response.
std::string AlpacaText(const InstructionRecord& record) {
    const bool input = !record.input.empty();
    return fmt::format(
        "{}Below is an instruction that describes a task{}. Write a response that appropriately "
        "completes the request.\n\n### Instruction:\n{}\n\n{}### Response:\n",
        Section("", record.system, "\n\n"),
        input ? ", paired with an input that provides further context" : "", record.instruction,
        Section("### Input:\n", record.input, "\n\n"));
}

// The conversation up to the output.
ChatRecord Asked(const InstructionRecord& record) {
    ChatRecord chat;
    chat.messages = OrderedJson::array();
    chat.extra = record.extra;
    const auto say = [&](const char* role, const std::string& content) {
        chat.messages.push_back({{"role", role}, {"content", content}});
    };
    if (!record.system.empty()) say("system", record.system);
    for (const auto& [instruction, answer] : record.history) {
        say("user", instruction);
        say("assistant", answer);
    }
    say("user", record.instruction + Section("\n", record.input, ""));
    return chat;
}

Result<chat::ChatInput> InputOf(const ChatRecord& record, int64_t now_s) {
    chat::ChatInput input;
    input.messages = record.messages;
    input.tools = record.tools;
    input.extra = record.extra;
    input.add_generation_prompt = false;
    input.now_s = now_s;
    WEFT_TRY(ReadTurnMarks(input.messages));
    return input;
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
                              int prompt_type, int64_t rows, const EncoderOptions& options) {
    if (prompt_type < 0 || prompt_type >= kPromptTypes) {
        return MakeError(ErrorCode::kUsage, "prompt type {}; expected 0 to {}", prompt_type,
                         kPromptTypes - 1);
    }
    const int64_t count = rows > 0 ? rows : tokenizer.vocab_size();
    Encoder made(&tokenizer, prompt_type, static_cast<int32_t>(count));
    if (chat != nullptr) made.turns_.emplace(*chat, tokenizer);
    made.control_.emplace(tokenizer, chat, options.control);
    made.no_chat_ = options.no_chat;
    made.now_s_ = options.now_s;
    return made;
}

Encoder Encoder::OfIds(int64_t rows) {
    return Encoder(nullptr, 0, static_cast<int32_t>(rows));
}

std::string Encoder::TakeNote() const {
    std::string note = control_ ? control_->TakeNote() : "";
    if (note.empty() && turns_) note = turns_->TakeNote();
    const uint64_t empty = empty_answers_->count;
    if (!note.empty() || empty == 0 || empty_answers_->told.exchange(true)) return note;
    return fmt::format(
        "{} of the answers read so far {} empty: from these, the model learns to answer nothing. "
        "If "
        "answers are missing, remove these records",
        empty, empty == 1 ? "is" : "are");
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
        return MakeError(ErrorCode::kCorrupt, "{} tokens; a sample needs at least two",
                         sample.tokens.size());
    }
    empty_answers_->count += sample.empty_answers;
    return sample;
}

Result<Sample> Encoder::EncodePrompt(const std::string& text) const {
    if (tokenizer_ == nullptr)
        return MakeError(ErrorCode::kUnsupported, "the model has no tokenizer");
    return PromptOf(control_->Read(text));
}

Result<Sample> Encoder::PromptOf(const ControlTokens::Text& read) const {
    Sample sample = Begun(read);
    sample.tokens.insert(sample.tokens.end(), read.ids.begin(), read.ids.end());
    WEFT_TRY(CheckIds(sample));
    return sample;
}

Result<Sample> Encoder::EncodePrompt(const ChatRecord& record) const {
    WEFT_ASSIGN(chat::ChatInput input, CheckedInput(record));
    Sample sample;
    WEFT_ASSIGN(sample.tokens, turns_->EncodePrompt(std::move(input), &*control_));
    WEFT_TRY(CheckIds(sample));
    return sample;
}

Result<Sample> Encoder::EncodePrompt(const InstructionRecord& record) const {
    if (turns_) return EncodePrompt(Asked(record));
    if (tokenizer_ == nullptr)
        return MakeError(ErrorCode::kUnsupported, "the model has no tokenizer");
    return PromptOf({control_->Encode(AlpacaText(record), false)});
}

Result<Sample> Encoder::EncodeText(const std::string& text, int64_t most) const {
    if (tokenizer_ == nullptr)
        return MakeError(ErrorCode::kUnsupported, "the model has no tokenizer");
    Sample sample;
    sample.tokens = tokenizer_->Encode(text, {.add_special = true});
    WEFT_TRY(CheckIds(sample));
    if (sample.tokens.empty()) return MakeError(ErrorCode::kCorrupt, "a text has no token");
    const auto size = std::ssize(sample.tokens);
    if (most <= 0 || size <= most) return sample;
    const tokenizer::TokenizerData& data = tokenizer_->data();
    const bool around = !data.prefix.empty() || !data.suffix.empty();
    const auto after = around ? std::ssize(data.suffix) : data.add_eos && data.eos >= 0 ? 1 : 0;
    const auto end = sample.tokens.end() - std::min<int64_t>(after, most - 1);
    sample.tokens.erase(end - (size - most), end);
    return sample;
}

int32_t Encoder::padding() const {
    if (tokenizer_ == nullptr) return -1;
    const tokenizer::TokenizerData& data = tokenizer_->data();
    return data.pad >= 0 ? data.pad : data.eos;
}

// The begin token that the model requires, unless the text has it.
Sample Encoder::Begun(const ControlTokens::Text& read) const {
    Sample sample;
    const tokenizer::TokenizerData& data = tokenizer_->data();
    const bool begun = read.parsed && !read.ids.empty() && read.ids.front() == data.bos;
    if (!begun && !data.prefix.empty()) {
        sample.tokens = data.prefix;
    } else if (!begun && data.add_bos && data.bos >= 0) {
        sample.tokens.push_back(data.bos);
    }
    return sample;
}

// Whether only blanks follow a token that ends a generation.
bool Encoder::EndsGeneration(const std::vector<int32_t>& ids) const {
    for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        if (tokenizer_->IsEog(*id)) return true;
        if (tokenizer_->Piece(*id).find_first_not_of(" \t\r\n") != std::string_view::npos) break;
    }
    return false;
}

Result<Sample> Encoder::Pair(const std::string& prompt, const std::string& completion,
                             bool may_parse) const {
    const std::string text = prompt + completion;
    if (!may_parse) control_->Look(text);
    const ControlTokens::Text read =
        may_parse ? control_->Read(text) : ControlTokens::Text{control_->Encode(text, false)};
    const std::vector<int32_t> head = control_->Encode(prompt, read.parsed);
    Sample sample = Begun(read);
    sample.loss.assign(sample.tokens.size() + CommonPrefix(read.ids, head), 0);
    sample.tokens.insert(sample.tokens.end(), read.ids.begin(), read.ids.end());
    const bool ended = read.parsed && EndsGeneration(read.ids);
    const int32_t eos = tokenizer_->data().eos;
    if (!ended && eos >= 0) sample.tokens.push_back(eos);
    sample.loss.resize(sample.tokens.size(), 1);
    sample.empty_answers = completion.find_first_not_of(" \t\r\n") == completion.npos ? 1 : 0;
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
    Sample sample{record.tokens, record.loss, record.starts};
    sample.loss.resize(sample.tokens.size(), 1);
    return sample;
}

Result<Sample> Encoder::Of(const PairRecord& record) const {
    return Pair(record.prompt, record.completion, true);
}

Result<Sample> Encoder::Of(const TextRecord& record) const {
    return Pair("", record.text, true);
}

Result<Sample> Encoder::Of(const InstructionRecord& record) const {
    if (!turns_) {
        if (record.history.empty()) return Pair(AlpacaText(record), record.output, false);
        return MakeError(ErrorCode::kUnsupported, "'history' needs a chat template, but {}",
                         no_chat_);
    }
    ChatRecord chat = Asked(record);
    chat.messages.push_back({{"role", "assistant"}, {"content", record.output}});
    return Of(chat);
}

Result<Sample> Encoder::Of(const QuestionRecord& record) const {
    if (prompt_type_ != 5) {
        const bool own_line = prompt_type_ >= 3;
        return Pair(PromptText(record, prompt_type_), (own_line ? "" : " ") + record.answer, false);
    }
    ChatRecord chat;
    chat.messages = OrderedJson::array();
    chat.messages.push_back({{"role", "user"}, {"content", PromptText(record, 5)}});
    chat.messages.push_back({{"role", "assistant"}, {"content", record.answer}});
    return Of(chat);
}

Result<Sample> Encoder::Of(const ChatRecord& record) const {
    WEFT_ASSIGN(chat::ChatInput input, CheckedInput(record));
    return turns_->Encode(std::move(input), &*control_);
}

Result<chat::ChatInput> Encoder::CheckedInput(const ChatRecord& record) const {
    if (!turns_) return MakeError(ErrorCode::kUnsupported, "a conversation, but {}", no_chat_);
    if (record.messages.size() > kMostMessages) {
        return MakeError(ErrorCode::kUnsupported, "{} messages; at most {} are read",
                         record.messages.size(), kMostMessages);
    }
    return InputOf(record, now_s_);
}

Result<chat::Text> Encoder::Render(const ChatRecord& record) const {
    if (!turns_) return MakeError(ErrorCode::kUnsupported, "a conversation, but {}", no_chat_);
    WEFT_ASSIGN(chat::ChatInput input, InputOf(record, now_s_));
    return turns_->Render(std::move(input));
}

}  // namespace weft::train
