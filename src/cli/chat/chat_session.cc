#include "cli/chat/chat_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/nearest_word.h"
#include "base/text.h"
#include "cli/chat/chat_files.h"
#include "cli/command_line/sampling_flags.h"
#include "engine/sampling/sampler_defaults.h"

namespace weft::cli {
namespace {

constexpr std::string_view kHelp =
    "/set NAME VALUE  temp, top-k, top-p, min-p, repeat-penalty, seed, predict (tokens; -1: no "
    "end), typical, top-nsigma, xtc-probability, xtc-threshold, dry-multiplier, dry-base, "
    "dry-allowed-length\n"
    "/set             show the settings\n"
    "/system TEXT     set the system message; without TEXT: remove it\n"
    "/clear           forget the conversation\n"
    "/retry           answer the last question again\n"
    "/think on|off    turn reasoning on or off, if the template can; default: the template's\n"
    "/file PATH       add a text file to the next message\n"
    "/save PATH       write the conversation to a file; /load PATH continues it\n"
    "/drop            leave out the oldest turns, for example when the context is full\n"
    "/undrop          restore the turns that /drop left out\n"
    "/bye             end, like Ctrl-D\n"
    "\"\"\"              begins and ends a message of several lines; so does a line that ends with "
    "\\\n"
    "Ctrl-C stops an answer.";

template <typename T>
bool Parse(std::string_view text, T& value) {
    T parsed{};
    const auto done = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (done.ec != std::errc() || done.ptr != text.data() + text.size()) return false;
    value = parsed;
    return true;
}

// The first word, and the text after it.
std::pair<std::string_view, std::string_view> FirstWord(std::string_view text) {
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    return {text.substr(0, end), Trim(text.substr(end))};
}

// True for "/set temp 1" and "/?", false for a path or a program's comment.
bool IsCommand(std::string_view text) {
    if (!text.starts_with('/')) return false;
    const std::string_view name = FirstWord(text).first.substr(1);
    const auto is_letter = [](unsigned char c) { return c >= 0x80 || std::isalpha(c) != 0; };
    return name == "?" || (!name.empty() && std::ranges::all_of(name, is_letter));
}

// Whether the setting exists and the text is a value of its type; empty: no such setting.
std::optional<bool> SetOne(engine::Request& request, std::string_view name,
                           std::string_view value) {
    engine::SamplerOptions& s = request.sampler;
    if (name == "temperature") name = "temp";
    model_files::SamplingHints unused;
    std::optional<bool> set;
    engine::VisitSampling(s, unused, [&](const char* flag, auto& number, auto&) {
        if (name == flag) set = Parse(value, number);
    });
    if (set) return set;
    if (name == "seed") {
        // (As in --seed: -1 is random, -2 the second largest.)
        int64_t below_zero = 0;
        const bool negative = value.starts_with('-') && Parse(value, below_zero);
        if (negative) s.seed = static_cast<uint64_t>(below_zero);
        return negative || Parse(value, s.seed);
    }
    if (name != "predict") return std::nullopt;
    int64_t tokens = 0;
    if (!Parse(value, tokens) || tokens < kLeastTokens || tokens > kMostTokens) return false;
    request.max_tokens = tokens;
    return true;
}

}  // namespace

ChatSession::ChatSession(std::string system, engine::Request settings, bool seeded,
                         bool switches_thinking, std::optional<bool> usual_thinking)
    : settings_(std::move(settings)),
      seeded_(seeded),
      switches_thinking_(switches_thinking),
      usual_thinking_(usual_thinking) {
    SetSystem(system);
}

ChatSession::Next ChatSession::Take(std::string_view entered, bool only_text) {
    const std::string_view text = Trim(entered);
    if (text.empty()) return {};
    if (only_text || !IsCommand(text)) {
        const bool replaces = std::exchange(pending_, false);
        if (replaces) left_out_.back() = true;
        Add("user", std::exchange(attached_, {}) + std::string(text));
        return {Act::kAsk, replaces ? "The previous question did not fit into the context, so the "
                                      "model continues without it; /undrop restores it."
                                    : ""};
    }
    const auto [command, rest] = FirstWord(text);
    if (command == "/bye" || command == "/quit" || command == "/exit") return {Act::kEnd};
    if (command == "/help" || command == "/?") return {Act::kTell, std::string(kHelp)};
    if (command == "/set") return Set(rest);
    if (command == "/system") return SetSystem(rest);
    if (command == "/drop") return Drop();
    if (command == "/undrop") return Undrop();
    if (command == "/clear") {
        SetSystem(system_);
        return {Act::kTell, "The conversation is forgotten."};
    }
    if (command == "/retry") return Retry();
    if (command == "/think") return Think(rest);
    if (command == "/file") return Attach(std::string(rest));
    if (command == "/save") return Save(std::string(rest));
    if (command == "/load") return Load(std::string(rest));
    const std::vector<std::string> commands = {"/bye",   "/help", "/set",    "/system",
                                               "/clear", "/drop", "/undrop", "/retry",
                                               "/think", "/file", "/save",   "/load"};
    return {
        Act::kTell,
        fmt::format("There is no command {}.{} /help lists them; \"\"\"{} ...\"\"\" is a message.",
                    command, DidYouMean(command, commands), command)};
}

ChatSession::Next ChatSession::Set(std::string_view words) {
    if (words.empty()) return {Act::kTell, Settings()};
    const auto [name, value] = FirstWord(words);
    engine::Request changed = settings_;
    const std::optional<bool> set = SetOne(changed, name, value);
    if (!set) return {Act::kTell, fmt::format("There is no setting '{}'. /help lists them.", name)};
    if (!*set) return {Act::kTell, fmt::format("'{}' is not a valid value of {}.", value, name)};
    if (const Status sound = engine::CheckSampler(changed.sampler); !sound.ok()) {
        return {Act::kTell, sound.error().message};
    }
    settings_ = std::move(changed);
    if (name == "seed") seeded_ = value != "-1";
    return {Act::kTell, Settings()};
}

// A new system message starts a new conversation, because earlier answers used the old one.
ChatSession::Next ChatSession::SetSystem(std::string_view text) {
    system_ = std::string(text);
    input_.messages = chat::OrderedJson::array();
    left_out_.clear();
    pending_ = false;
    forgotten_.clear();
    attached_.clear();
    if (!system_.empty()) Add("system", system_);
    return {Act::kTell, system_.empty() ? "The conversation starts over without a system message."
                                        : "The conversation starts over with this system message."};
}

void ChatSession::Add(const char* role, std::string text) {
    input_.messages.push_back({{"role", role}, {"content", std::move(text)}});
    left_out_.push_back(false);
}

chat::ChatInput ChatSession::conversation() const {
    chat::ChatInput input = input_;
    input.messages = chat::OrderedJson::array();
    for (size_t i = 0; i < size(); ++i) {
        if (left_out_[i]) continue;
        const auto& message = input_.messages[i];
        const bool joins = !input.messages.empty() && message["role"] == "user" &&
                           input.messages.back()["role"] == "user";
        if (!joins) {
            input.messages.push_back(message);
            continue;
        }
        auto& text = input.messages.back()["content"].get_ref<std::string&>();
        text += "\n\n" + message["content"].get_ref<const std::string&>();
    }
    return input;
}

size_t ChatSession::first() const {
    size_t at = system_.empty() ? 0 : 1;
    while (at < size() && left_out_[at]) ++at;
    return at;
}

size_t ChatSession::OldestKept(bool half) const {
    const auto size_of = [&](size_t i) {
        const auto& text = input_.messages[i]["content"].get_ref<const std::string&>();
        return left_out_[i] ? size_t{0} : text.size();
    };
    size_t all = 0, kept = 0;
    for (size_t i = first(); i < size(); ++i) all += size_of(i);
    std::optional<size_t> oldest;
    for (size_t i = size(); i-- > first();) {
        kept += size_of(i);
        if (left_out_[i] || input_.messages[i]["role"] != "user") continue;
        if (oldest && (!half || kept > all / 2)) break;
        oldest = i;
    }
    return oldest.value_or(first());
}

// Keeps the newer half of the included messages, by size, and a pending question. If nothing would
// be dropped and no question is pending, the conversation restarts.
ChatSession::Next ChatSession::Drop() {
    size_t end = OldestKept(true);
    if (end == first() && !pending_) end = size();
    if (end == first()) {
        return {Act::kTell,
                "There are no older turns to drop: shorten the message, /clear the conversation, "
                "or start with a larger --ctx."};
    }
    for (size_t i = first(); i < end; ++i) left_out_[i] = true;
    const auto count = std::ranges::count(left_out_, true);
    if (end == size()) {
        return {
            Act::kTell,
            fmt::format(
                "The model starts over without the previous {} messages; /undrop restores them.",
                count)};
    }
    return {
        pending_ ? Act::kAsk : Act::kTell,
        fmt::format("The model continues without the oldest {} messages; /undrop restores them.",
                    count)};
}

ChatSession::Next ChatSession::Undrop() {
    const bool any = std::ranges::count(left_out_, true) > 0;
    left_out_.assign(size(), false);
    return {Act::kTell,
            any ? "The model sees all turns again." : "No turns were dropped: see /drop."};
}

ChatSession::Next ChatSession::Save(const std::string& path) {
    if (path.empty()) return {Act::kTell, "Name a file: /save PATH."};
    const auto saved = SaveConversation(path, input_.messages);
    if (!saved.ok()) return {Act::kTell, saved.error().message};
    return {Act::kTell, fmt::format("Saved {} messages; /load {} continues them.", size(), path)};
}

ChatSession::Next ChatSession::Load(const std::string& path) {
    if (path.empty()) return {Act::kTell, "Name a file: /load PATH."};
    const auto messages = LoadConversation(path);
    if (!messages.ok()) return {Act::kTell, messages.error().message};
    const bool has_system = messages->front()["role"] == "system";
    SetSystem(has_system ? messages->front()["content"].get<std::string>() : "");
    for (size_t i = has_system ? 1 : 0; i < messages->size(); ++i) {
        const auto& message = (*messages)[i];
        const bool asks = message["role"] == "user";
        Add(asks ? "user" : "assistant", message["content"].get<std::string>());
    }
    return {Act::kTell, fmt::format("The conversation continues after {} messages.", size())};
}

// The next message begins with the file's text.
ChatSession::Next ChatSession::Attach(const std::string& path) {
    if (path.empty()) return {Act::kTell, "Name a file: /file PATH."};
    const auto text = QuoteFile(path);
    if (!text.ok()) return {Act::kTell, text.error().message};
    attached_ += *text + "\n\n";
    return {Act::kTell, fmt::format("{}: {} bytes go with your next message.", path, text->size())};
}

ChatSession::Next ChatSession::Retry() {
    const bool any = size() > 0 && !left_out_.back();
    if (any && input_.messages.back()["role"] == "assistant") {
        input_.messages.erase(size() - 1);
        left_out_.pop_back();
    } else if (!forgotten_.empty()) {
        Add("user", std::exchange(forgotten_, {}));
    }
    if (size() == 0 || left_out_.back() || input_.messages.back()["role"] != "user") {
        return {Act::kTell, "There is no question to answer again."};
    }
    return {Act::kAsk};
}

ChatSession::Next ChatSession::Think(std::string_view word) {
    if (!switches_thinking_ && (word == "on" || word == "off")) {
        return {Act::kTell,
                "/think has no effect: the model's chat template has no switch for reasoning."};
    }
    if (word == "on" || word == "off") {
        input_.extra = {{"enable_thinking", word == "on"}, {"thinking", word == "on"}};
    } else if (word == "default") {
        input_.extra = nullptr;
    } else if (!word.empty()) {
        return {Act::kTell, fmt::format("'{}' is not valid: /think on, off or default.", word)};
    }
    const auto name = [](bool on) { return on ? "on" : "off"; };
    if (input_.extra.is_object()) {
        return {Act::kTell, fmt::format("thinking: {}", name(input_.extra["thinking"] == true))};
    }
    if (!usual_thinking_) return {Act::kTell, "thinking: the template's default"};
    return {Act::kTell, fmt::format("thinking: {} (default)", name(*usual_thinking_))};
}

void ChatSession::NoteAnswer(std::string text) {
    pending_ = false;
    forgotten_.clear();
    Add("assistant", std::move(text));
}

void ChatSession::ForgetQuestion() {
    pending_ = false;
    if (size() == 0 || input_.messages.back()["role"] != "user") return;
    forgotten_ = input_.messages.back()["content"].get<std::string>();
    input_.messages.erase(input_.messages.end() - 1);
    left_out_.pop_back();
}

engine::Request ChatSession::NextRequest() const {
    engine::Request request = settings_;
    if (!seeded_) request.sampler.seed = engine::RandomSeed();
    return request;
}

std::string ChatSession::Settings() const {
    const engine::SamplerOptions& s = settings_.sampler;
    return fmt::format(
        "temp {}, top-k {}, top-p {}, min-p {}, repeat-penalty {}{}, seed {}, predict {}",
        s.temperature, s.top_k, s.top_p, s.min_p, s.repeat_penalty, engine::RareSamplingText(s),
        seeded_ ? fmt::format("{}", s.seed) : "random", settings_.max_tokens);
}

}  // namespace weft::cli
