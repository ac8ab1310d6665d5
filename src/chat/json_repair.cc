#include "chat/json_repair.h"

#include <utility>

#include "chat/answer_grammar.h"

namespace weft::chat {
namespace {

bool IsIn(char c, std::string_view letters) {
    return letters.find(c) != letters.npos;
}

bool IsWordLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
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
    if (!held_.empty() && (in_string_ ? TakeEscape(c, out) : TakeHeld(c, out))) return;
    if (in_string_ ? c == '\\' : c == ',' || IsWordLetter(c)) {
        held_ = c;
        return;
    }
    if (c == '"') in_string_ = !in_string_;
    in_string_ ? AppendInString(c, out) : void(out += c);
}

void JsonRepair::End(std::string& out) {
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
    constexpr size_t kUnicodeLetters = 6;  // \u0123
    const bool unicode = held_.size() > 1;
    if (!IsIn(c, unicode ? "0123456789abcdefABCDEF" : "\"\\/bfnrtu")) {
        out += '\\';
        End(out);
        return false;
    }
    held_ += c;
    if ((unicode || c == 'u') && held_.size() < kUnicodeLetters) return true;
    End(out);
    return true;
}

std::string Repaired(std::string_view text) {
    JsonRepair repair;
    std::string out;
    for (const char c : text) repair.Take(c, out);
    repair.End(out);
    return out;
}

}  // namespace weft::chat
