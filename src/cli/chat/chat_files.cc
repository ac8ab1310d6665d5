#include "cli/chat/chat_files.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/home_folder.h"
#include "base/json.h"
#include "base/output_file.h"
#include "base/utf8.h"
#include "cli/terminal/private_file.h"

namespace weft::cli {
namespace {

constexpr uint64_t kMostConversationBytes = uint64_t{64} << 20;
constexpr uint64_t kMostFileBytes = uint64_t{4} << 20;

// "~/notes" as a shell reads it.
std::string Expanded(const std::string& path) {
    if (path != "~" && !path.starts_with("~/")) return path;
    return HomeFolder() + path.substr(1);
}

bool Exists(const std::string& path) {
    struct stat found {};
    return ::stat(path.c_str(), &found) == 0;
}

bool IsMessage(const chat::OrderedJson& message, bool first) {
    if (!message.is_object() || !message.contains("role") || !message.contains("content")) {
        return false;
    }
    const auto& role = message["role"];
    const bool known = role == "user" || role == "assistant" || (role == "system" && first);
    return known && message["content"].is_string();
}

}  // namespace

Result<chat::OrderedJson> LoadConversation(const std::string& given) {
    const std::string path = Expanded(given);
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kMostConversationBytes));
    auto json = ParseOrderedJsonText(text);
    if (!json.ok()) return MakeError(json.error().code, "{}: {}", path, json.error().message);
    const bool wrapped = json->is_object() && json->contains("messages");
    const chat::OrderedJson list = wrapped ? (*json)["messages"] : *std::move(json);
    if (!list.is_array() || list.empty()) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: no conversation: expected a list of messages, or an object with one "
                         "as 'messages'",
                         path);
    }
    chat::OrderedJson messages = chat::OrderedJson::array();
    for (size_t i = 0; i < list.size(); ++i) {
        if (!IsMessage(list[i], i == 0)) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: message {} is not a system message at the beginning, nor a "
                             "user's or assistant's, with a text as 'content'",
                             path, i + 1);
        }
        messages.push_back({{"role", list[i]["role"]}, {"content", list[i]["content"]}});
    }
    return messages;
}

Status SaveConversation(const std::string& given, const chat::OrderedJson& messages) {
    const std::string path = ThroughLinks(Expanded(given));
    if (Exists(path) && !LoadConversation(path).ok()) {
        return MakeError(ErrorCode::kDenied,
                         "{} exists and is not a conversation; choose another name", path);
    }
    const std::string folder = std::filesystem::path(path).parent_path();
    if (!folder.empty() && !std::filesystem::is_directory(folder)) {
        return MakeError(ErrorCode::kIo, "{}: there is no folder {}", path, folder);
    }
    const chat::OrderedJson whole{
        {"format", "weft-conversation"}, {"version", 1}, {"messages", messages}};
    const auto text = whole.dump(1, ' ', false, chat::OrderedJson::error_handler_t::replace);
    return ReplaceFile(path, text + "\n", 0600);
}

Result<std::string> QuoteFile(const std::string& given) {
    const std::string path = Expanded(given);
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kMostFileBytes));
    const bool control = std::ranges::any_of(text, [](unsigned char c) {
        return c < 0x20 && c != '\n' && c != '\t' && c != '\r' && c != '\f';
    });
    if (control || !IsUtf8(text)) {
        return MakeError(ErrorCode::kUnsupported, "{} is not a text in UTF-8", path);
    }
    size_t longest = 2, run = 0;
    for (const char c : text) longest = std::max(longest, run = c == '`' ? run + 1 : 0);
    const std::string fence(longest + 1, '`');
    const std::string name = path.substr(path.rfind('/') + 1);
    return fmt::format("File {}:\n\n{}\n{}{}{}", name, fence, text,
                       text.ends_with('\n') ? "" : "\n", fence);
}

}  // namespace weft::cli
