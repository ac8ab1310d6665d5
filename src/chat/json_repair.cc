#include "chat/json_repair.h"

#include <algorithm>
#include <utility>

#include "chat/answer_grammar.h"

namespace weft::chat {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdefABCDEF";
constexpr std::string_view kEscapes = "\"\\/bfnrtu";
constexpr size_t kUnicodeLetters = 6;  // \u0123
constexpr std::string_view kDrives = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool IsIn(char c, std::string_view letters) {
    return letters.find(c) != letters.npos;
}

bool IsWordLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// The length of the escape that begins at path[at].
size_t EscapeLength(const std::string& path, size_t at) {
    return at + 1 < path.size() && path[at + 1] == 'u' ? kUnicodeLetters : 2;
}

void AppendInString(char c, std::string& out) {
    constexpr std::string_view kDigits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    switch (c) {
        case '\n': out += "\\n"; return;
        case '\r': out += "\\r"; return;
        case '\t': out += "\\t"; return;
        default: break;
    }
    if (byte >= 0x20) {
        out += c;
        return;
    }
    out += "\\u00";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
}

}  // namespace

void JsonRepair::Take(char c, std::string& out) {
    if (c == kLetters) return;
    if (in_path_ && TakePath(c, out)) return;
    if (!held_.empty() && (in_string_ ? TakeEscape(c, out) : TakeHeld(c, out))) return;
    const auto [letter, drive, colon] = before_;
    before_ = {drive, colon, c};
    if (in_string_ ? c == '\\' : c == ',' || IsWordLetter(c)) {
        held_ = c;
        in_path_ = in_string_ && colon == ':' && IsIn(drive, kDrives) && !IsWordLetter(letter);
        spaces_ = 0;
        return;
    }
    if (c == '"') in_string_ = !in_string_;
    in_string_ ? AppendInString(c, out) : void(out += c);
}

void JsonRepair::End(std::string& out) {
    if (in_path_) EndPath(true, out);
    constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"True", "true"}, {"False", "false"}, {"None", "null"}};
    std::string held = std::exchange(held_, {});
    for (const auto& [word, json] : kWords) {
        if (held == word) held = json;
    }
    out += held;
}

// Returns whether the character belongs to the held word or comma.
bool JsonRepair::TakeHeld(char c, std::string& out) {
    const bool comma = held_[0] == ',';
    if (comma && c == ',') return true;
    if (comma ? IsIn(c, " \t\r\n") : IsWordLetter(c)) {
        held_ += c;
        return true;
    }
    if (comma && IsIn(c, "]}")) held_.erase(0, 1);
    End(out);
    return false;
}

// Returns whether the character belongs to the held escape, which is a lone backslash otherwise.
bool JsonRepair::TakeEscape(char c, std::string& out) {
    const bool unicode = held_.size() > 1;
    if (!IsIn(c, unicode ? kHexDigits : kEscapes)) {
        out += '\\';
        End(out);
        return false;
    }
    held_ += c;
    before_ = {};
    if ((unicode || c == 'u') && held_.size() < kUnicodeLetters) return true;
    End(out);
    return true;
}

// Returns whether the character belongs to the held path, which may continue behind it.
bool JsonRepair::TakePath(char c, std::string& out) {
    constexpr size_t kMostBytes = 1024;
    constexpr int kMostSpaces = 2;         // C:\Program Files (x86)\node
    if (held_.size() == 1 && c == '\\') {  // it is escaped as JSON has it
        in_path_ = false;
        return TakeEscape(c, out);
    }
    const size_t last = c == ':' ? held_.rfind('\\') : 0;
    const bool is_drive = c == ':' && held_.size() == last + 3 && IsIn(held_[last + 1], "nrt") &&
                          IsIn(held_[last + 2], kDrives) && !held_.substr(0, last).ends_with('\\');
    if (is_drive) {  // the path of another line
        const std::string next = held_.substr(last);
        held_.resize(last);
        EndPath(false, out);
        out += next;
        before_ = {'\0', '\0', next.back()};
        return false;
    }
    spaces_ = c == '\\' ? 0 : spaces_ + (c == ' ');
    if (IsIn(c, "\"'`<>|*?:,;&\t\r\n") || spaces_ > kMostSpaces || held_.size() == kMostBytes) {
        EndPath(IsIn(c, kHexDigits), out);
        return false;
    }
    held_ += c;
    return true;
}

// If one backslash of a path begins no escape, none does. goes_on: the last escape may continue
// behind the path, which is then held.
void JsonRepair::EndPath(bool goes_on, std::string& out) {
    in_path_ = false;
    const std::string path = std::exchange(held_, {});
    const auto begins_escape = [&](size_t at) {
        const size_t end = at + kUnicodeLetters;
        if (path[at + 1] != 'u') return IsIn(path[at + 1], kEscapes);
        return (goes_on || end <= path.size()) &&
               std::min(path.find_first_not_of(kHexDigits, at + 2), path.size()) >=
                   std::min(end, path.size());
    };
    bool lone = false;
    for (size_t at = 0; at + 1 < path.size(); ++at) {
        if (path[at] == '\\') lone = lone || !begins_escape(at++);
    }
    for (size_t at = 0; at < path.size(); ++at) {
        if (path[at] != '\\') {
            AppendInString(path[at], out);
        } else if (at + 1 < path.size() && lone && path[at + 1] != '\\') {
            out += "\\\\";
        } else if (at + EscapeLength(path, at) > path.size()) {
            held_ = path.substr(at);
            return;
        } else {
            out.append(path, at++, 2);
        }
    }
}

std::string Repaired(std::string_view text) {
    JsonRepair repair;
    std::string out;
    for (const char c : text) repair.Take(c, out);
    repair.End(out);
    return out;
}

}  // namespace weft::chat
