#include "cli/terminal/terminal_keys.h"

#include <string_view>
#include <utility>

#include "base/text.h"
#include "base/utf8.h"

namespace weft::cli {
namespace {

constexpr std::string_view kBegins = "\033[200~", kEnds = "\033[201~";
constexpr char kControlD = '\4';
constexpr char32_t kReplacement = 0xfffd;

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
    if (IncompleteTail(character_) == character_.size()) return;  // more bytes may complete it
    if (CodePointLength(character_, 0) == character_.size()) {
        return Add(CodePointOf(std::exchange(character_, {})));
    }
    const bool alone = character_.size() == 1;
    BreakOff();
    if (!alone) TakePlain(byte);
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
