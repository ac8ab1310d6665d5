#include "load/events.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/json.h"

namespace weft::load {
namespace {

using nlohmann::json;

constexpr size_t kMostLine = 4 << 20;

// Makes text printable and short, for messages.
std::string Shown(std::string_view text) {
    std::string shown(text.substr(0, 200));
    std::ranges::replace_if(
        shown, [](unsigned char c) { return c < ' ' || c > '~'; }, '?');
    return shown;
}

bool IsText(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() &&
           !found->get_ref<const std::string&>().empty();
}

int64_t Count(const json& usage, const char* key) {
    const auto found = usage.find(key);
    const bool good = found != usage.end() && found->is_number_unsigned();
    return good ? static_cast<int64_t>(std::min<uint64_t>(found->get<uint64_t>(), 1ull << 40)) : 0;
}

// Whether the choice has text, or in completions a token without text (part of a character).
bool IsPiece(const json& choice, bool chat) {
    if (!choice.is_object()) return false;
    if (!chat) {
        const auto reason = choice.find("finish_reason");
        const bool goes_on = reason == choice.end() || reason->is_null();
        return IsText(choice, "text") || (goes_on && choice.contains("text"));
    }
    const auto delta = choice.find("delta");
    if (delta == choice.end() || !delta->is_object()) return false;
    return IsText(*delta, "content") || IsText(*delta, "reasoning_content") ||
           IsText(*delta, "reasoning") || delta->contains("tool_calls");
}

}  // namespace

Status EventReader::Take(std::string_view bytes) {
    for (size_t end = 0; (end = bytes.find('\n')) != bytes.npos; bytes.remove_prefix(end + 1)) {
        if (rest_.empty()) {
            WEFT_TRY(Line(bytes.substr(0, end)));
            continue;
        }
        rest_ += bytes.substr(0, end);
        const std::string line = std::move(rest_);
        rest_.clear();
        WEFT_TRY(Line(line));
    }
    if (bytes.size() > kMostLine - std::min(kMostLine, rest_.size())) {
        return MakeError(ErrorCode::kUnsupported, "a line of the stream has more than {} bytes",
                         kMostLine);
    }
    rest_ += bytes;
    return {};
}

Status EventReader::Line(std::string_view line) {
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with("data:")) return {};  // comments, event names, empty lines
    line.remove_prefix(5);
    if (line.starts_with(' ')) line.remove_prefix(1);
    return line.empty() ? Status() : on_data_(line);
}

Result<Chunk> ParseChunk(std::string_view text, bool chat) {
    const json event = JsonOrDiscarded(text);
    if (!event.is_object()) {
        return MakeError(ErrorCode::kCorrupt, "an event is not a JSON object: '{}'", Shown(text));
    }
    if (event.contains("error") && !event["error"].is_null()) {
        return MakeError(ErrorCode::kIo, "the endpoint reports an error: {}",
                         Shown(event["error"].dump()));
    }
    Chunk chunk;
    const auto choices = event.find("choices");
    if (choices != event.end() && choices->is_array()) {
        chunk.is_piece = std::ranges::any_of(
            *choices, [&](const json& choice) { return IsPiece(choice, chat); });
    }
    const auto usage = event.find("usage");
    if (usage != event.end() && usage->is_object()) {
        chunk.has_usage = true;
        chunk.input_tokens = Count(*usage, "prompt_tokens");
        chunk.output_tokens = Count(*usage, "completion_tokens");
    }
    return chunk;
}

}  // namespace weft::load
