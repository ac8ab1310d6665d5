#include "cli/terminal_keys.h"

#include <string_view>

namespace weft::cli {
namespace {

constexpr std::string_view kBegins = "\033[200~", kEnds = "\033[201~";
constexpr char kControlD = '\4';
constexpr char32_t kReplacement = 0xfffd;

constexpr uint32_t Value(char byte) {
    return static_cast<unsigned char>(byte);
}

// Length of the character that begins with `lead`; 0: invalid.
size_t LengthOf(char lead) {
    const uint32_t value = Value(lead);
    if (value < 0x80) return 1;
    if (value >= 0xc2 && value < 0xe0) return 2;
    if (value >= 0xe0 && value < 0xf0) return 3;
    return value >= 0xf0 && value < 0xf5 ? 4 : 0;
}

// Whether these bytes can begin a character (RFC 3629: no overlong forms, no surrogates, at most
// U+10FFFF).
bool MayBegin(std::string_view bytes) {
    const size_t length = LengthOf(bytes[0]);
    if (length == 0 || bytes.size() > length) return false;
    for (size_t i = 1; i < bytes.size(); ++i) {
        if ((Value(bytes[i]) & 0xc0) != 0x80) return false;
    }
    if (bytes.size() < 2) return true;
    const uint32_t second = Value(bytes[1]);
    switch (Value(bytes[0])) {
        case 0xe0: return second >= 0xa0;
        case 0xed: return second < 0xa0;
        case 0xf0: return second >= 0x90;
        case 0xf4: return second < 0x90;
        default: return true;
    }
}

char32_t Decoded(std::string_view bytes) {
    const size_t length = bytes.size();
    if (length == 1) return Value(bytes[0]);
    char32_t code = Value(bytes[0]) & (0x7fu >> length);
    for (const char byte : bytes.substr(1)) code = code << 6 | (Value(byte) & 0x3f);
    return code;
}

}  // namespace

void TerminalKeys::Take(char byte) {
    const std::string_view marker = pasting_ ? kEnds : kBegins;
    marker_ += byte;
    if (marker == marker_) {
        marker_.clear();
        BreakOff();
        pasting_ = !pasting_;
        after_return_ = false;
        ready_.push_back({pasting_ ? Kind::kPasteBegins : Kind::kPasteEnds});
        return;
    }
    if (marker.starts_with(marker_)) return;
    marker_.pop_back();
    const bool held = !marker_.empty();
    Decide();
    // (The byte that ends a false marker may begin another one.)
    held ? Take(byte) : TakePlain(byte);
}

void TerminalKeys::Decide() {
    const std::string bytes = std::move(marker_);
    marker_.clear();
    for (const char byte : bytes) TakePlain(byte);
}

void TerminalKeys::TakePlain(char byte) {
    if (pasting_ && byte == kControlD) {
        BreakOff();
        pasting_ = false;
        ready_.push_back({Kind::kPasteEnds});
    }
    character_ += byte;
    if (!MayBegin(character_)) {
        const bool alone = character_.size() == 1;
        BreakOff();
        if (!alone) TakePlain(byte);
        return;
    }
    if (character_.size() < LengthOf(character_[0])) return;
    const char32_t character = Decoded(character_);
    character_.clear();
    Add(character);
}

void TerminalKeys::BreakOff() {
    if (character_.empty()) return;
    character_.clear();
    Add(kReplacement);
}

void TerminalKeys::Add(char32_t character) {
    if (!pasting_) {
        // A Ctrl-D typed before the editor took the terminal arrives as NUL.
        ready_.push_back({Kind::kCharacter, character == 0 ? char32_t{kControlD} : character});
        return;
    }
    const bool second_half = after_return_ && character == '\n';
    after_return_ = character == '\r';
    if (second_half) return;
    if (character == '\r') character = '\n';
    ready_.push_back({Kind::kCharacter, character == 0 ? kReplacement : character});
}

std::optional<TerminalKeys::Key> TerminalKeys::Next() {
    if (ready_.empty()) return std::nullopt;
    const Key key = ready_.front();
    ready_.pop_front();
    return key;
}

}  // namespace weft::cli
